"""How near an input lies to the class that was predicted, against the nearest other one."""

import warnings
from typing import Any, final

import torch
from torch import Tensor, nn

from calibrant.checks import as_tensor, check_at_least, check_class_numbers, check_same_length
from calibrant.confidence.nearest_rows import nearest_row_distances
from calibrant.errors import CalibrantWarning, InputError
from calibrant.maps import FitSummary
from calibrant.numerics.fast import sigmoid
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions
from calibrant.top_label import TopLabel

__all__ = ["NeighbourConfidence"]


@final
class NeighbourConfidence(nn.Module):
    """Features and a predicted class in, the logarithm of the trust score out, (n, d) and (n,) -> (n,).

    It holds the features of the training rows that it looks among, in the type they came in: 50,000 rows of 512 float32
    features are 100 MB.

    Args:
        reference: Features of training rows, (r, d), finite.
        classes: Of these rows, (r,), whole numbers.
        n_classes: How many there are, more than the largest of them.

    Raises:
        InputError: If any of that does not hold, or fewer than two classes have rows.

    Example:
        >>> trust = NeighbourConfidence(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]), n_classes=2)
        >>> trust.scores(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0])).tolist()
        [3.0, 0.3333333333333333]
    """

    reference: Tensor
    classes: Tensor

    def __init__(self, reference: Tensor, classes: Tensor, *, n_classes: int) -> None:
        super().__init__()
        features = as_features(reference)
        classes = check_class_numbers(as_tensor(classes, "classes")).to(features.device)
        check_same_length(features, "features", classes, "labels")
        self.n_classes = check_at_least(n_classes, 2, "n_classes")
        _check_classes(classes, self.n_classes, "labels")
        if bool((classes == classes[0]).all()):
            raise InputError(
                f"rows of at least two classes are needed, so that there is another one to be near to; got only class "
                f"{int(classes[0])}. Fit on rows of all classes."
            )
        order = classes.argsort(stable=True)
        self.register_buffer("reference", features[order])
        self.register_buffer("classes", classes[order])
        self.summary: FitSummary | None = None

    def settings(self) -> dict[str, Any]:
        """What the constructor needs beside its buffers."""
        return {"n_classes": self.n_classes}

    @torch.no_grad()
    def class_distances(self, features: object) -> Tensor:
        """The distance to the nearest row of each class, (n, d) -> (n, k), float64; infinite if it has none.

        Raises:
            InputError: If the features are not finite, or not as many a row as those fitted on.
        """
        rows = as_features(features).to(self.reference.device)
        if rows.shape[1] != self.reference.shape[1]:
            raise InputError(
                f"this was fitted on {self.reference.shape[1]} features a row; got {rows.shape[1]}. Take them from the "
                "same layer."
            )
        points = rows.double()
        distances = points.new_full((len(points), self.n_classes), torch.inf)
        counts = torch.bincount(self.classes, minlength=self.n_classes).tolist()
        for each, members in enumerate(self.reference.split(counts)):
            if len(members):
                distances[:, each] = nearest_row_distances(points, members.double(), 1)[:, 0]
        return distances

    def forward(self, features: Tensor, predicted: Tensor) -> Tensor:
        """The logarithm of the trust score, (n,), float64: infinite where a distance is 0, and 0 where both are.

        Args:
            features: Shape (n, d), from the layer that was fitted on.
            predicted: The classes that the classifier says, (n,).

        Raises:
            InputError: If features or classes do not fit.

        Warns:
            CalibrantWarning: If a predicted class has no rows; the score is then 0, nothing being infinitely far.
        """
        own, other = self._nearest(features, predicted, stacklevel=6)
        # As near to both as can be: neither is nearer.
        return torch.where((own == 0) & (other == 0), 0.0, other.log() - own.log())

    @torch.no_grad()
    def scores(self, features: Tensor, predicted: Tensor) -> Tensor:
        """The trust score: distance to the nearest other class over distance to the predicted one, from 0 to infinity.

        Arguments and errors as of :meth:`forward`.
        """
        own, other = self._nearest(features, predicted, stacklevel=5)
        return torch.where((own == 0) & (other == 0), 1.0, other / own)

    def _nearest(self, features: Tensor, predicted: Tensor, *, stacklevel: int) -> tuple[Tensor, Tensor]:
        """Distance to the predicted class and to the nearest other one, (n,) each."""
        distances = self.class_distances(features)
        predicted = check_class_numbers(as_tensor(predicted, "predicted")).to(distances.device)
        check_same_length(distances, "features", predicted, "predicted")
        _check_classes(predicted, self.n_classes, "predicted")
        own = distances.gather(1, predicted[:, None])[:, 0]
        self._warn_of_empty(predicted[own.isinf()], stacklevel)
        return own, distances.scatter(1, predicted[:, None], torch.inf).amin(dim=1)

    def top_label(self, predictions: Predictions, features: object) -> TopLabel:
        """The classifier's answers, ranked by the trust score.

        The confidence is score / (1 + score), the other distance over the sum of both. It orders rows as the score does
        and is above one half where the predicted class is nearest, but **no probability**: calibration errors of it
        mean nothing, only refinement (AUROC, AUPR, AURC) does, unless a map is fitted on it.

        Args:
            predictions: Of the classifier.
            features: Of the same rows, (n, d).

        Raises:
            InputError: If the features are not finite, or not of these rows.

        Warns:
            CalibrantWarning: If a predicted class has no rows.
        """
        rows = as_features(features, rows=len(predictions))
        log_odds = self(rows, predictions.predicted).to(predictions.logits.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds)

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        rows, d = self.reference.shape
        return f"classes={self.n_classes}, rows={rows}, features={d}"

    @staticmethod
    def _warn_of_empty(predicted: Tensor, stacklevel: int) -> None:
        if len(predicted):
            named = ", ".join(map(str, predicted.unique().tolist()[:5]))
            warnings.warn(
                f"{len(predicted)} rows are predicted to be of a class that no fitted row has ({named}); their trust "
                "score is 0. Fit on rows of all classes.",
                CalibrantWarning,
                stacklevel=stacklevel,
            )


def _check_classes(classes: Tensor, n_classes: int, name: str) -> None:
    outside = ((classes < 0) | (classes >= n_classes)).nonzero()
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{name} must lie in 0..{n_classes - 1}; got {int(classes[row])} at row {row}. If some classes have no "
            "rows, say how many classes there are: n_classes."
        )
