"""Reliability class by class, the worst classes first."""

from dataclasses import dataclass
from typing import final

from calibrant.checks import check_at_least
from calibrant.diagrams.bins import ReliabilityBins
from calibrant.metrics.classwise import SCE
from calibrant.predictions import Predictions

__all__ = ["ClassReliability", "ClasswiseDiagram", "classwise_reliability"]


@final
@dataclass(frozen=True, eq=False)
class ClassReliability:
    """One class: share of rows that are of the class, against the probability given to it."""

    index: int
    name: str  # "class 7" where classes have no names
    rows: int  # of this class
    error: float  # its part of sce: the gaps over all n rows
    bins: ReliabilityBins  # of the class's probability, over all n rows


@final
@dataclass(frozen=True, eq=False)
class ClasswiseDiagram:
    """The classes with the largest errors, in falling order."""

    classes: tuple[ClassReliability, ...]
    n: int
    n_classes: int
    sce: float  # over all classes


def classwise_reliability(predictions: Predictions, *, n_bins: int = 15, most: int = 12) -> ClasswiseDiagram:
    """How often a row is of a class when the model gives the class this probability.

    The worst of many classes look bad by chance alone; the consistency bands say by how much.

    Args:
        predictions: Logits and labels; confidence and correctness alone do not suffice.
        n_bins: Number of equal-width bins of each class's probability.
        most: How many classes to keep.

    Raises:
        InputError: If only the top label is given.

    Example:
        >>> predictions = Predictions.from_probs([[0.5, 0.5], [0.5, 0.5]], [0, 0], class_names=["cat", "dog"])
        >>> [(of.name, of.error) for of in classwise_reliability(predictions).classes]
        [('cat', 0.5), ('dog', 0.5)]
    """
    check_at_least(most, 1, "most")
    metric = SCE(n_bins)
    state = metric.statistic(predictions)
    errors = metric.by_class(state)
    rows = state.hits.sum(-1).long().tolist()
    names = predictions.class_names
    classes = tuple(
        ClassReliability(
            index=index,
            name=f"class {index}" if names is None else names[index],
            rows=rows[index],
            error=float(errors[index]),
            bins=ReliabilityBins.from_sums(state.count[index], state.probability[index], state.hits[index]),
        )
        for index in errors.argsort(descending=True, stable=True)[:most].tolist()
    )
    return ClasswiseDiagram(classes, len(predictions), predictions.n_classes, float(metric.value(state)))
