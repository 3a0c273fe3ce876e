"""Every metric, calibrator and loss by its short name, read from its folder: nothing is registered by hand.

A folder is loaded when it is first asked for: who measures does not wait for calibrators and losses.
"""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from calibrant.checks import check_known
from calibrant.named_text import NamedKind, read_named
from calibrant.paper import Paper

if TYPE_CHECKING:
    from calibrant.calibrators import Calibrator, FeatureCalibrator
    from calibrant.losses import Loss, MetaLoss
    from calibrant.method_text import AnyCalibrator
    from calibrant.metrics import Metric

__all__ = [
    "all_calibrators",
    "all_feature_calibrators",
    "all_losses",
    "all_meta_losses",
    "all_metrics",
    "find_any_calibrator",
    "find_any_loss",
    "find_calibrator",
    "find_loss",
    "find_metric",
    "find_papers",
]


def all_metrics() -> "dict[str, Metric]":
    """Every metric with its default options, by name.

    Example:
        >>> all_metrics()["ece"].title
        'Expected calibration error'
    """
    from calibrant.metrics import Metric

    made: list[Metric] = [kind() for kind in _exported("metrics", Metric)]
    return {metric.name: metric for metric in sorted(made, key=lambda metric: metric.name)}


def find_metric(name: str) -> "Metric":
    """The metric of that name.

    Raises:
        UnknownNameError: If there is none; the message names the closest.
    """
    known = all_metrics()
    check_known(name, known, "a metric")
    return known[name]


def all_calibrators() -> "dict[str, Calibrator]":
    """Every calibrator that is fitted on predictions alone, with its default options, by name.

    Example:
        >>> all_calibrators()["none"].title
        'Do nothing'
    """
    from calibrant.calibrators import Calibrator

    made: list[Calibrator] = [kind() for kind in _exported("calibrators", Calibrator)]
    return {calibrator.name: calibrator for calibrator in sorted(made, key=lambda calibrator: calibrator.name)}


def all_feature_calibrators() -> "dict[str, FeatureCalibrator]":
    """Every calibrator that looks at features too, with its default options, by name.

    Example:
        >>> all_feature_calibrators()["density_ratio"].title
        'Density-ratio calibration'
    """
    from calibrant.calibrators import FeatureCalibrator

    made: list[FeatureCalibrator] = [kind() for kind in _exported("calibrators", FeatureCalibrator)]
    return {calibrator.name: calibrator for calibrator in sorted(made, key=lambda calibrator: calibrator.name)}


def find_calibrator(text: str) -> "Calibrator":
    """The calibrator that a text describes.

    Args:
        text: A name; a name with options, ``temperature(criterion=focal,gamma=2)``; or a chain of these,
            ``temperature+isotonic``.

    Raises:
        UnknownNameError: If there is no such calibrator or option; the message names the closest.
        InputError: If the text does not read like that, a value does not suit its option, or the calibrator needs
            features (see :func:`find_any_calibrator`).

    Example:
        >>> find_calibrator("none")
        DoNothing()
    """
    from calibrant.method_text import without_features

    return without_features(find_any_calibrator(text))


def find_any_calibrator(text: str) -> "AnyCalibrator":
    """The calibrator that a text describes, as :func:`find_calibrator`, or one that looks at features too."""
    from calibrant.method_text import parse_method

    return parse_method(text, {**all_calibrators(), **all_feature_calibrators()})


def all_losses() -> "dict[str, Loss]":
    """Every loss with its default options, by name.

    Example:
        >>> all_losses()["inverse_focal"].title
        'Inverse focal loss'
    """
    from calibrant.losses import PenalisedLoss, RowLoss

    made: list[Loss] = [kind() for kind in _exported("losses", (RowLoss, PenalisedLoss))]
    return {loss.name: loss for loss in sorted(made, key=lambda loss: loss.name)}


def find_loss(text: str) -> "Loss":
    """The loss that a text describes.

    Args:
        text: A name, or a name with options: ``focal(gamma=2)``, ``mmce(weight=0.5,base=focal(gamma=1))``.

    Raises:
        UnknownNameError: If there is no such loss or option; the message names the closest.
        InputError: If the text does not read like that, or a value does not suit its option.

    Example:
        >>> find_loss("focal(gamma=2)")
        FocalLoss(gamma=2.0, detach_weight=False)
    """
    return read_named(text, all_losses(), NamedKind("a loss", "ce, focal(gamma=2) or mmce(base=focal)"), find_loss)


def all_meta_losses() -> "dict[str, MetaLoss]":
    """Every loss that is learned on held-out rows while the network trains, with its default options, by name.

    Example:
        >>> all_meta_losses()["meta_focal"].objective
        'sece'
    """
    from calibrant.losses import MetaLoss

    made: list[MetaLoss] = [kind() for kind in _exported("losses", MetaLoss)]
    return {loss.name: loss for loss in sorted(made, key=lambda loss: loss.name)}


def find_any_loss(text: str) -> "Loss | MetaLoss":
    """The loss that a text describes, as :func:`find_loss`, or one that is learned on the way.

    Example:
        >>> find_any_loss("meta_focal(objective=dece)").objective
        'dece'
    """
    kind = NamedKind("a loss", "ce, focal(gamma=2), mmce(base=focal) or meta_focal(objective=sece)")
    return read_named(text, {**all_losses(), **all_meta_losses()}, kind, find_loss)


def find_papers(text: str) -> tuple[Paper, ...]:
    """The papers behind what a text describes, each once: those of the steps, for a chain.

    Args:
        text: The name of a metric or loss, or a calibrator as for :func:`find_calibrator`.

    Raises:
        UnknownNameError: If there is no such metric, loss, calibrator or option; the message names the closest.
        InputError: If the text does not read like that.

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
    if text.partition("(")[0].strip() in {**all_losses(), **all_meta_losses()}:
        loss = find_any_loss(text)
        parts = (part for part in loss.modules() if isinstance(part, RowLoss | PenalisedLoss | MetaLoss))
        return tuple(dict.fromkeys(part.paper for part in parts))
    method = find_any_calibrator(text)
    steps = method.steps if isinstance(method, Chain) else (method,)
    return tuple(dict.fromkeys(step.paper for step in steps))


def _papers_by_name() -> dict[str, tuple[Paper, ...]]:
    """Of every metric, calibrator and loss; two where a metric and a loss share a name but no paper."""
    things: list[tuple[str, Metric | AnyCalibrator]] = [
        *all_metrics().items(),
        *all_calibrators().items(),
        *all_feature_calibrators().items(),
    ]
    found = [(name, thing.paper) for name, thing in things]
    found += [(name, loss.paper) for name, loss in {**all_losses(), **all_meta_losses()}.items()]
    # A metric that is a plain function, as it needs more than predictions; from the same paper as this calibrator.
    found.append(("piece", replace(all_feature_calibrators()["density_ratio"].paper, where="eq. 4")))
    papers: dict[str, tuple[Paper, ...]] = {}
    for name, paper in found:
        known = papers.get(name, ())
        papers[name] = known if any(paper.title == other.title for other in known) else (*known, paper)
    return papers


def _exported(folder: str, base: type | tuple[type, ...]) -> Iterator[Any]:
    """The concrete classes that a folder of the package exports."""
    module = import_module(f"calibrant.{folder}")
    things = (getattr(module, name) for name in module.__all__)
    return (
        thing
        for thing in things
        if isinstance(thing, type) and issubclass(thing, base) and not inspect.isabstract(thing)
    )
