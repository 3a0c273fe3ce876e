"""One example of every map and curve that is exported; a test fails where a new one has none."""

import json

import torch

from calibrant.files.map_file import describe
from calibrant.maps import (
    Affine,
    Bands,
    BetaCurve,
    ChainMap,
    ClassBins,
    Identity,
    Line,
    LogMixture,
    Map,
    Mixture,
    MonotoneMap,
    OneVsRest,
    OrderPreservingMap,
    Polynomial,
    PooledMap,
    ProximityMap,
    Scale,
    Steps,
    Table,
    TopLabelMap,
    TwoClassMap,
)

__all__ = ["EXAMPLES", "program_of", "used"]

_SCALE = Scale(torch.tensor(1.7), n_classes=3)
_STEPS = Steps(
    edges=torch.tensor([[-1.0, 0.5, torch.inf]]),  # a column with fewer edges than others repeats infinity
    values=torch.tensor([[-2.0, -0.25, 1.0, 3.0]]),
)
_LINE = Line(knots=torch.tensor([[-2.0, 0.0, 4.0]]), values=torch.tensor([[-1.0, 0.5, 2.0]]))
_CUBES = Polynomial(torch.tensor([[0.1, 0.8, 0.0, 0.01], [0.0, 1.1, 0.0, 0.02], [-0.1, 1.0, 0.0, 0.0]]))
_BETA = BetaCurve(a=torch.tensor([0.7]), b=torch.tensor([1.2]), c=torch.tensor([0.3]))

_REFERENCE = torch.nn.functional.normalize(torch.tensor([[3.0, 4.0], [1.0, 0.0], [-1.0, 1.0], [0.0, -2.0]]), dim=1)
_BANDS = Bands(
    edges=torch.tensor([0.4]),
    cell_edges=torch.tensor([[0.0, 1.0], [0.5, torch.inf]]),
    offsets=torch.tensor([[0.1, 0.0, -0.1], [0.0, -0.05, 0.0]]),
    keep_share=torch.tensor(1.0),
    least=torch.tensor(0.01),
)
_TABLE = Table(
    values=torch.tensor([[-2.0, -1.0], [0.0, 1.0], [2.0, 4.0]]),
    confidence=torch.tensor([0.3, 1.0]),
    proximity=torch.tensor([0.2, 0.9]),
)

# By the kind that the example is for: a map, or a curve inside one.
EXAMPLES: dict[str, Map | ProximityMap] = {
    "affine": Affine(torch.eye(3) + 0.1, torch.tensor([0.1, -0.2, 0.3]), n_classes=3, of_log_probs=True),
    "bands": ProximityMap(_REFERENCE, _BANDS, n_classes=3, neighbours=2, closeness="mean_exp_square"),
    "beta": OneVsRest(_BETA, n_classes=3),
    "chain": ChainMap([_SCALE, TopLabelMap(_STEPS, n_classes=3), _SCALE], n_classes=3),
    "class_bins": ClassBins(torch.tensor([[-2.0, 0.0, 1.0], [-1.5, 0.5, 2.0], [-1.0, 0.25, 3.0]]), n_classes=3),
    "identity": Identity(n_classes=3),
    "line": TopLabelMap(_LINE, n_classes=3),
    "log_mixture": LogMixture(torch.tensor([0.25, 0.75]), [_SCALE, TopLabelMap(_STEPS, n_classes=3)], n_classes=3),
    "mixture": Mixture(torch.tensor([0.75, 0.25]), [_SCALE, Identity(n_classes=3)], n_classes=3),
    "monotone": MonotoneMap(
        beta=torch.tensor(0.8), knots=torch.tensor([-3.0, -0.5]), slopes=torch.tensor([0.5, 1.5, 1.0]), n_classes=3
    ),
    "one_vs_rest": OneVsRest(_LINE, n_classes=3),
    "order_preserving": OrderPreservingMap(
        beta=torch.tensor(0.8),
        centre=torch.tensor([-1.0, -1.5, -0.5]),
        hidden_weight=torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.5, -0.5]]),
        hidden_bias=torch.tensor([0.1, -0.1]),
        out_weight=torch.tensor([[0.3, -0.3], [0.2, 0.4]]),
        out_bias=torch.tensor(0.5),
        n_classes=3,
        sees="sorted",
    ),
    "polynomial": OneVsRest(_CUBES, n_classes=3),
    "pooled": PooledMap(_STEPS, n_classes=3),
    "proximity": ProximityMap(_REFERENCE.double(), _BANDS, n_classes=3, neighbours=3),
    "scale": _SCALE,
    "steps": TopLabelMap(_STEPS, n_classes=3),
    "table": ProximityMap(_REFERENCE, _TABLE, n_classes=3, neighbours=2),
    "top_label": TopLabelMap(_LINE, n_classes=3),
    "two_class": TwoClassMap(_BETA, n_classes=2),
}


def used(fitted: Map | ProximityMap, logits: torch.Tensor) -> torch.Tensor:
    """What an example gives; one that looks at features gets the first two logits as those."""
    return fitted(logits) if isinstance(fitted, Map) else fitted(logits, logits[..., :2])


def program_of(fitted):
    """What decides the operators of an exported map: its kinds, settings and axes, not what was learned."""

    def kinds_of(described):
        parts = described["parts"].values()
        inside = [[kinds_of(one) for one in part] if isinstance(part, list) else kinds_of(part) for part in parts]
        return [described["kind"], described["settings"], inside]

    return json.dumps([kinds_of(describe(fitted)), [values.ndim for values in fitted.state_dict().values()]])
