"""TrustScore: whether the training rows around an input agree with the classifier."""

import dataclasses
import time
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import as_tensor, check_at_least, check_class_numbers, check_real_number, check_same_length
from calibrant.confidence.density_filter import dense_rows
from calibrant.confidence.neighbour_confidence import NeighbourConfidence
from calibrant.errors import CalibrantWarning, InputError
from calibrant.maps import FitSummary
from calibrant.numerics.neighbours import as_features
from calibrant.paper import Paper

__all__ = ["TrustScore"]


@final
@dataclass(frozen=True)
class TrustScore:
    """How much nearer an input lies to training rows of the predicted class than to those of any other.

    It asks the data and not the network, and so can be right where the network is sure and wrong. It works where
    distances mean something: in few dimensions, or in features of a network that was trained to separate the classes;
    in the pixels of images, nearest neighbours tell little. Scores are unbounded and no probabilities: they rank
    answers. Its cost in use is a search among all training rows.

    Formula: score = d(x, nearest class that is not ŷ) / d(x, class ŷ), d the distance to the nearest row of a class
    Rows: the training rows, some tens of each class.

    Args:
        alpha: Share of each class that is left out, those rows that lie farthest from their neighbours; for labels
            that may be wrong and classes with outliers.
        neighbours: The distance to this one tells how dense it is; looked at only if ``alpha`` is above 0.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0], [6.0, 0.0]])
        >>> trust = TrustScore().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> trust.scores(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).tolist()  # 3 from class 1, 1 from class 0
        [3.0]
    """

    name: ClassVar[str] = "trust_score"
    title: ClassVar[str] = "Trust score"
    paper: ClassVar[Paper] = Paper(
        "Jiang et al.", 2018, "To Trust Or Not To Trust A Classifier", "arXiv:1805.11783", "Algorithms 1 and 2"
    )

    alpha: float = 0.0
    neighbours: int = 10

    def __post_init__(self) -> None:
        # Kept as Python's own numbers, which a file can hold, where NumPy's were given.
        object.__setattr__(self, "alpha", check_real_number(self.alpha, "alpha", least=0))
        object.__setattr__(self, "neighbours", check_at_least(self.neighbours, 1, "neighbours"))
        if self.alpha >= 1:
            raise InputError(f"alpha must be below 1, so that rows are left; got {self.alpha}.")

    @torch.no_grad()
    def fit(self, features: object, labels: object, *, n_classes: int | None = None) -> NeighbourConfidence:
        """Keep the training rows that later inputs are compared with.

        Args:
            features: Of the rows that the classifier was trained on, (n, d), finite: the activations before its last
                layer, or the inputs themselves, flattened. What is scored later must come from the same place.
            labels: Their true classes, (n,), whole numbers from 0.
            n_classes: How many there are; one more than the largest label if None.

        Raises:
            InputError: If features or labels are not that, or only one class has rows.

        Warns:
            CalibrantWarning: If a class has no more rows than neighbours are to be looked at.
        """
        begun = time.perf_counter()
        rows = as_features(features)
        classes = check_class_numbers(as_tensor(labels, "labels")).to(rows.device)
        check_same_length(rows, "features", classes, "labels")
        kept = self._kept(rows, classes) if self.alpha else torch.ones_like(classes, dtype=torch.bool)
        n_classes = max(int(classes.max()) + 1, 2) if n_classes is None else n_classes
        fitted = NeighbourConfidence(rows[kept], classes[kept], n_classes=n_classes)
        note = f"{int(kept.sum()):,} of {len(rows):,} rows are kept."
        seconds = time.perf_counter() - begun
        fitted.summary = FitSummary(self.name, self.settings(), len(rows), seconds, notes=(note,))
        return fitted

    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        return dataclasses.asdict(self)

    def _kept(self, rows: Tensor, classes: Tensor) -> Tensor:
        kept = torch.ones_like(classes, dtype=torch.bool)
        small: list[int] = []
        for each in classes.unique().tolist():
            members = (classes == each).nonzero()[:, 0]
            small += [each] if len(members) <= self.neighbours else []
            kept[members] = dense_rows(rows[members].double(), neighbours=self.neighbours, alpha=self.alpha)
        if small:
            warnings.warn(
                f"each class should have more rows than the {self.neighbours} neighbours that tell its density; "
                f"{len(small)} have not ({', '.join(map(str, small[:5]))}), and all their rows count as neighbours. "
                "Take fewer neighbours, or alpha=0.",
                CalibrantWarning,
                stacklevel=4,
            )
        return kept
