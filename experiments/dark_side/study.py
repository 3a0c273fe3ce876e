"""Fig. 1a-c of the paper, and what of its sections 2.1 and 4 can be looked at without training a network."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from calibrant.calibrators import TemperatureScaling
from calibrant.datasets import load_resnet110
from calibrant.metrics import AUROC, ECE, refinement_terms
from experiments.dark_side.hypothetical import Side, hypothetical
from experiments.dark_side.learned import learned_confidence
from experiments.dark_side.results import numbers_of, page_of
from experiments.runner import Cell, Place, RunCells, Scalar, Settings, Study, Table, one_by_one

__all__ = ["DARK_SIDE_STUDY"]

# AUROC and ECE as the paper prints them under Fig. 1. On which side of calibration each lies is not printed.
HYPOTHETICAL: dict[str, tuple[float, float, Side]] = {
    "a": (0.774, 0.06, "overconfident"),
    "b": (0.9946, 0.18, "underconfident"),
    "c": (0.89, 0.08, "overconfident"),
}
DRAWN, QUICK_DRAWN = 100_000, 1_000
BINS = 100  # of the paper's assumption
HEAD: dict[str, Scalar] = {"units": 100, "epochs": 40, "learning_rate": 0.001}


def _grid(
    drawn: int = DRAWN,
    head: Settings = HEAD,
    seeds: Sequence[int] = (0, 1, 2),
    samples: Sequence[int] = (300, 750, 1500, 5000),
) -> Iterator[dict[str, Scalar]]:
    for panel, (auroc, ece, side) in HYPOTHETICAL.items():
        about: dict[str, Scalar] = {"what": "hypothetical", "panel": panel, "auroc": auroc, "ece": ece, "side": side}
        yield about | {"drawn": drawn, "seed": 0}
    for name in ("none", "temperature"):
        yield {"what": "bins", "network": "resnet110", "map": name, "bins": BINS}
    for seed in seeds:
        for n in samples:
            for inputs in ("features", "log-probabilities"):
                about = {"what": "confidnet", "network": "resnet110", "inputs": inputs, "samples": n}
                yield about | {**head, "seed": seed}


def _prepare(_place: Place, _cells: Sequence[Cell], *, quick: bool) -> RunCells:  # noqa: ARG001  # nothing to load
    return one_by_one(_run)


def _run(cell: Settings) -> dict[str, Any]:
    if cell["what"] == "confidnet":
        return learned_confidence(cell)
    if cell["what"] == "bins":
        calibration, test = load_resnet110()
        seen = TemperatureScaling().fit(calibration).transform(test) if cell["map"] == "temperature" else test
        terms = refinement_terms(seen, n_bins=int(cell["bins"]))
        return terms._asdict() | {"equation_9": terms.equation_9}
    classifier = hypothetical(float(cell["auroc"]), float(cell["ece"]), str(cell["side"]))  # type: ignore[arg-type]
    answers = classifier.draw(int(cell["drawn"]), seed=int(cell["seed"]))
    terms = refinement_terms(answers)
    return {
        "d": classifier.d,
        "q": classifier.q,
        "auroc": float(AUROC()(answers)),
        "ece": float(ECE()(answers)),
        "overconfident_bins": terms.overconfident_bins,
        "equation_9": terms.equation_9,
    }


# Hypothetical classifiers; overconfident bins of a real one, and ConfidNet behind it.
DARK_SIDE_STUDY = Study(
    name="dark-side",
    title="On the Dark Side of Calibration, Singh et al. 2021",
    folder=Path(__file__).parent,
    grid=_grid,
    quick_grid=partial(_grid, QUICK_DRAWN, HEAD | {"epochs": 3}, (0,), (300,)),
    prepare=_prepare,
    numbers=numbers_of,
    page=page_of,
    tables=(
        Table("Fig. 1a to c", ("what=hypothetical",)),
        Table("Section 2.1, overconfident bins", ("what=bins",)),
        Table("Section 4, ConfidNet by number of samples", ("what=confidnet",)),
    ),
)
