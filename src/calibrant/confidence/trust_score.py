"""TrustScore: the distance to the predicted class against that to the nearest other class."""

import dataclasses
import time
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from calibrant.checks import as_tensor, check_at_least, check_class_numbers, check_real_number, check_same_length
from calibrant.errors import CalibrantWarning, InputError
from calibrant.maps import FitSummary
from calibrant.numerics.fast import sigmoid
from calibrant.numerics.neighbours import as_features, blocks_of, nearest_distances
from calibrant.paper import Paper
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "NeighbourConfidence",
    "TrustScore",
    "dense_rows",
    "nearest_row_distances",
]


def dense_rows(points: Tensor, *, neighbours: int, alpha: float) -> Tensor:
    """Mark all but the share ``alpha`` of the rows that are farthest from their neighbours.

    A row's own place is not among its neighbours; one that is there twice is its own neighbour's neighbour, at distance
    0. Rows as dense as the last one kept are kept too, so that the order of rows plays no part, and at least one row
    always stays. With fewer rows than neighbours, as many as there are count.

    Args:
        points: Points of one class, (n, d), float64, n >= 1.
        neighbours: The density is that of the distance to this one.
        alpha: At least 0 and below 1.

    Returns:
        Shape (n,), bool.

    Example:
        >>> points = torch.tensor([[0.0], [0.1], [0.2], [9.0]], dtype=torch.float64)
        >>> dense_rows(points, neighbours=1, alpha=0.25).tolist()
        [True, True, True, False]

    Reference:
        Jiang et al. (2018), Algorithm 1.
    """
    n = len(points)
    dropped = int(alpha * n + 1e-9)  # 0.3 times 10 is less than 3 in binary
    if dropped == 0:
        return torch.ones(n, dtype=torch.bool, device=points.device)
    # Differs from the public code: it counts a row as the first of its own neighbours.
    radius = nearest_row_distances(points, points, min(neighbours, n - 1) + 1)[:, -1]
    return radius <= radius.sort().values[n - dropped - 1]


_FEW_DIMENSIONS = 8
_MANY_PAIRS = 1 << 20  # for fewer it does not pay to plant a tree


def nearest_row_distances(points: Tensor, reference: Tensor, neighbours: int) -> Tensor:
    """Euclidean distances to the nearest rows of the reference, rising, (m, neighbours), float64.

    A point that is itself a row of the reference has that row for its nearest, at distance 0.

    Args:
        points: Shape (m, d), float64, finite.
        reference: Shape (r, d), float64, finite, with r >= neighbours.
        neighbours: How many.

    Example:
        >>> line = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
        >>> nearest_row_distances(line, line, 2).tolist()
        [[0.0, 1.0], [0.0, 1.0], [0.0, 2.0]]
    """
    is_flat = points.shape[1] <= _FEW_DIMENSIONS and points.device.type == "cpu"
    if is_flat and len(points) * len(reference) >= _MANY_PAIRS:
        from scipy.spatial import KDTree

        distances, _ = KDTree(reference.numpy()).query(points.numpy(), k=range(1, neighbours + 1), workers=-1)
        return torch.from_numpy(distances)
    # Products lose the digits of what lies far from 0; distances do not depend on where that is.
    centre = reference.mean(dim=0)
    points, reference = points - centre, reference - centre
    blocks = blocks_of(len(points), reference, neighbours)
    return torch.cat([nearest_distances(points[rows], reference, neighbours) for rows in blocks])


@final
class NeighbourConfidence(nn.Module):
    """Features and a predicted class in, the logarithm of the trust score out, (n, d) and (n,) -> (n,).

    It holds the features of the training rows that it looks among, in the type they came in: 50,000 rows of 512 float32
    features are 100 MB.

    Args:
        reference: Features of training rows, (r, d), finite.
        classes: Classes of these samples, (r,), whole numbers.
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
            predictions: Predictions of the classifier.
            features: Features of the same samples, (n, d).

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
        """Keep the training samples with which later ones are compared.

        Args:
            features: Features of the training samples, (n, d), finite: the activations before the last layer, or the
                flattened inputs. Samples that are scored later need the same features.
            labels: Labels of the training samples, (n,), integers from 0.
            n_classes: Number of classes; one more than the largest label if None.

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
