"""Everything that has a name: metrics, calibrators, losses, data sets, corruptions and maps, with plugins.

Each registry loads its package when it is first used: measuring does not wait for calibrators or losses. An installed
package adds to one by an entry point of its group, ``calibrant.calibrators = mine = package.module:Class``.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, Union

from calibrant.checks import check_known
from calibrant.errors import InputError
from calibrant.paper import Paper
from calibrant.registry import Registry

if TYPE_CHECKING:
    from calibrant.calibrators import Calibrator, FeatureCalibrator
    from calibrant.datasets import Corruption, DatasetReader
    from calibrant.losses import Loss, MetaLoss
    from calibrant.metrics import Metric

AnyCalibrator: TypeAlias = Union["Calibrator", "FeatureCalibrator"]  # the second is fitted on features as well

__all__ = [
    "AnyCalibrator",
    "calibrators",
    "corruptions",
    "datasets",
    "feature_calibrators",
    "find_papers",
    "losses",
    "meta_losses",
    "metrics",
    "parse_any_calibrator",
    "parse_any_loss",
    "parse_calibrator",
]

_METHODS = "temperature, temperature(criterion=focal) or temperature+isotonic"
_CALIBRATOR_PLUGINS, _LOSS_PLUGINS = "calibrant.calibrators", "calibrant.losses"


def _chain(steps: "list[AnyCalibrator]") -> "AnyCalibrator":
    from calibrant.calibrators import Chain

    return Chain(tuple(_without_features(step) for step in steps))


def _without_features(method: "AnyCalibrator") -> "Calibrator":
    from calibrant.calibrators import Calibrator

    if not isinstance(method, Calibrator):
        raise InputError(
            f"{method.name} needs features beside the predictions, so it cannot stand here: fit it by itself."
        )
    return method


metrics: "Registry[Metric]" = Registry(
    "a metric", examples="ece or nll", module="calibrant.metrics", bases=("Metric",), group="calibrant.metrics"
)
calibrators: "Registry[Calibrator]" = Registry(
    "a method", examples=_METHODS, module="calibrant.calibrators", bases=("Calibrator",), group=_CALIBRATOR_PLUGINS
)
feature_calibrators: "Registry[FeatureCalibrator]" = Registry(
    "a method",
    examples=_METHODS,
    module="calibrant.calibrators",
    bases=("FeatureCalibrator",),
    group="calibrant.feature_calibrators",
)
losses: "Registry[Loss]" = Registry(
    "a loss",
    examples="ce, focal(gamma=2) or mmce(base=focal)",
    module="calibrant.losses",
    bases=("RowLoss", "PenalisedLoss"),
    group=_LOSS_PLUGINS,
)
meta_losses: "Registry[MetaLoss]" = Registry(
    "a loss", examples="meta_focal(objective=sece)", module="calibrant.losses", bases=("MetaLoss",)
)
datasets: "Registry[DatasetReader]" = Registry(
    "a data set",
    examples="cifar100 or medmnist(flag=pathmnist)",
    module="calibrant.datasets",
    bases=("DatasetReader",),
    group="calibrant.datasets",
)
corruptions: "Registry[Corruption]" = Registry(
    "a corruption", examples="gaussian_noise", module="calibrant.datasets.corruptions", bases=("Corruption",)
)
_any_calibrators: "Registry[AnyCalibrator]" = Registry(
    "a method",
    examples=_METHODS,
    module="calibrant.calibrators",
    bases=("Calibrator", "FeatureCalibrator"),
    group=_CALIBRATOR_PLUGINS,
    combine=_chain,
    nested=_without_features,
)
_any_losses: "Registry[Loss | MetaLoss]" = Registry(
    "a loss",
    examples="ce, focal(gamma=2), mmce(base=focal) or meta_focal(objective=sece)",
    module="calibrant.losses",
    bases=("RowLoss", "PenalisedLoss", "MetaLoss"),
    group=_LOSS_PLUGINS,
)


def parse_any_calibrator(text: str) -> "AnyCalibrator":
    """Build the calibrator that an expression describes, also one that needs features.

    Args:
        text: A name; a name with options, ``temperature(criterion=focal,gamma=2)``; or a chain of these,
            ``temperature+isotonic``.

    Raises:
        UnknownNameError: If there is no such calibrator or option; the message names the closest.
        InputError: If the text is no such expression, a value does not suit its option, or a step of a chain needs
            features.

    Example:
        >>> parse_any_calibrator("density_ratio(neighbours=5)").neighbours
        5
    """
    return _any_calibrators.parse(text)


def parse_calibrator(text: str) -> "Calibrator":
    """Build the calibrator that an expression describes; see :func:`parse_any_calibrator`.

    Raises:
        InputError: If the calibrator needs features.

    Example:
        >>> [step.name for step in parse_calibrator("temperature+isotonic").steps]
        ['temperature', 'isotonic']
    """
    return _without_features(parse_any_calibrator(text))


def parse_any_loss(text: str) -> "Loss | MetaLoss":
    """Build the loss that an expression describes, also one with parameters that are meta-learned.

    Args:
        text: A name, or a name with options: ``focal(gamma=2)``, ``mmce(weight=0.5,base=focal(gamma=1))``.

    Raises:
        UnknownNameError: If there is no such loss or option; the message names the closest.
        InputError: If the text is no such expression, or a value does not suit its option.

    Example:
        >>> parse_any_loss("meta_focal(objective=dece)").objective
        'dece'
    """
    return _any_losses.parse(text)


def find_papers(text: str) -> tuple[Paper, ...]:
    """Return the papers behind a metric, a loss or a calibrator, each once: those of the steps, for a chain.

    Args:
        text: The name of a metric, or an expression of a loss or a calibrator.

    Raises:
        UnknownNameError: If there is no such metric, loss, calibrator or option; the message names the closest.
        InputError: If the text is no such expression.

    Example:
        >>> [paper.short for paper in find_papers("temperature+isotonic")]
        ['Guo et al. (2017)', 'Zadrozny & Elkan (2002)']
    """
    from calibrant.calibrators import Chain
    from calibrant.losses import MetaLoss, PenalisedLoss, RowLoss

    if not set(text) & set("+()"):
        papers = _papers_by_name()
        check_known(text, papers, "a metric, loss or calibrator")
        return papers[text]
    if text.partition("(")[0].strip() in _any_losses:
        loss = parse_any_loss(text)
        parts = (part for part in loss.modules() if isinstance(part, RowLoss | PenalisedLoss | MetaLoss))
        return tuple(dict.fromkeys(part.paper for part in parts))
    method = parse_any_calibrator(text)
    steps = method.steps if isinstance(method, Chain) else (method,)
    return tuple(dict.fromkeys(step.paper for step in steps))


def _papers_by_name() -> dict[str, tuple[Paper, ...]]:
    """The papers of every name; two where a metric and a loss share a name but no paper."""
    registries = (metrics, _any_calibrators, _any_losses)
    named = [(name, kind.paper) for registry in registries for name, kind in registry.kinds.items()]
    # A metric that is a plain function, as it needs more than predictions; from the same paper as this calibrator.
    named.append(("piece", replace(feature_calibrators["density_ratio"].paper, where="eq. 4")))
    papers: dict[str, tuple[Paper, ...]] = {}
    for name, paper in named:
        known = papers.get(name, ())
        papers[name] = known if any(paper.title == other.title for other in known) else (*known, paper)
    return papers
