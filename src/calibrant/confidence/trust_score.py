"""TrustScore: the distance to the predicted class against that to the nearest other class."""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from calibrant import checks
from calibrant.confidence.learned import FeatureConfidence, LearnedConfidence, feature_batches
from calibrant.errors import InputError, Row, warn
from calibrant.inference import sample_source
from calibrant.maps import FitSummary
from calibrant.numerics.neighbours import blocks_of, nearest_distances
from calibrant.paper import Paper
from calibrant.text import listed


def dense_samples(points: Tensor, *, neighbours: int, alpha: float) -> Tensor:
    """Mark all but the share ``alpha`` of one class's points, (n, d), that are farthest from their neighbours.

    An exact duplicate counts as a neighbour. Ties with the last sample kept are kept too, so that the order of samples
    does not matter, and at least one sample always stays. (Jiang et al., Algorithm 1.)
    """
    n = len(points)
    dropped = int(alpha * n + 1e-9)  # 0.3 times 10 is less than 3 in binary
    if dropped == 0:
        return torch.ones(n, dtype=torch.bool, device=points.device)
    # Differs from the public code: it counts a sample as the first of its own neighbours.
    radius = nearest_sample_distances(points, points, min(neighbours, n - 1) + 1)[:, -1]
    return radius <= radius.sort().values[n - dropped - 1]


_FEW_DIMENSIONS = 8
_MANY_PAIRS = 1 << 20  # with fewer, building a tree takes longer than it saves


def nearest_sample_distances(points: Tensor, reference: Tensor, neighbours: int) -> Tensor:
    """Return the Euclidean distances to the nearest reference samples, rising, (m, neighbours), float64.

    A point that is itself a reference sample has that sample as its nearest, at distance 0.
    """
    is_flat = points.shape[1] <= _FEW_DIMENSIONS and points.device.type == "cpu"
    if is_flat and len(points) * len(reference) >= _MANY_PAIRS:
        from scipy.spatial import KDTree

        distances, _ = KDTree(reference.numpy()).query(points.numpy(), k=range(1, neighbours + 1), workers=-1)
        return torch.from_numpy(distances)
    # Products of large coordinates lose digits; distances do not change when all points are shifted.
    centre = reference.mean(dim=0)
    points, reference = points - centre, reference - centre
    blocks = blocks_of(len(points), reference, neighbours)
    return torch.cat([nearest_distances(points[block], reference, neighbours) for block in blocks])


@final
class NeighbourConfidence(FeatureConfidence):
    """Module from features (n, d) and predicted classes (n,) to the logarithm of the trust score (n,).

    It holds the features of the training samples it searches, in their own dtype: 50,000 samples of 512 float32
    features take 100 MB.

    Args:
        reference: Features of training samples, (r, d), finite.
        classes: Classes of these samples, (r,), whole numbers.
        n_classes: Number of classes; larger than every class number.
    """

    reference: Tensor
    classes: Tensor

    def __init__(self, reference: Tensor, classes: Tensor, *, n_classes: int) -> None:
        super().__init__()
        features, classes = _checked(reference, classes, "classes")
        self.n_classes = checks.check_at_least(n_classes, 2, "n_classes")
        _check_classes(classes, self.n_classes, "labels")
        if bool((classes == classes[0]).all()):
            raise InputError(
                f"reference samples must be of at least two classes; got only class {int(classes[0])}. Fit on samples "
                "of all classes."
            )
        order = classes.argsort(stable=True)
        self.register_buffer("reference", features[order])
        self.register_buffer("classes", classes[order])
        self.summary = None

    def settings(self) -> dict[str, Any]:
        return {"n_classes": self.n_classes}

    @torch.no_grad()
    def class_distances(self, features: object) -> Tensor:
        """Return distances to the nearest sample of each class, (n, d) -> (n, k), float64; infinite without one."""
        given = checks.as_features(features).to(self.reference.device)
        if given.shape[1] != self.reference.shape[1]:
            raise InputError(
                f"features must have {self.reference.shape[1]} columns, from the layer of the fit; got "
                f"{given.shape[1]}."
            )
        points = given.double()
        distances = points.new_full((len(points), self.n_classes), torch.inf)
        counts = torch.bincount(self.classes, minlength=self.n_classes).tolist()
        for number, members in enumerate(self.reference.split(counts)):
            if len(members):
                distances[:, number] = nearest_sample_distances(points, members.double(), 1)[:, 0]
        return distances

    def forward(self, features: Tensor, predicted: Tensor) -> Tensor:
        """Return the logarithm of the trust score, (n,), float64: infinite where a distance is 0, and 0 where both are.

        A predicted class without reference samples gets a score of 0, with a warning.
        """
        own, other = self._nearest(features, predicted)
        # At distance 0 from both, neither is nearer.
        return torch.where((own == 0) & (other == 0), 0.0, other.log() - own.log())

    def log_odds(self, features: Tensor, predicted: Tensor) -> Tensor:
        """Return :meth:`forward`: it has the order of log-odds, and is above 0 where the predicted class is nearest."""
        log_score: Tensor = self(features, predicted)
        return log_score

    @torch.no_grad()
    def scores(self, features: Tensor, predicted: Tensor) -> Tensor:
        """Return the trust score: distance to the nearest other class over that to the predicted one, at least 0."""
        own, other = self._nearest(features, predicted)
        return torch.where((own == 0) & (other == 0), 1.0, other / own)

    def _nearest(self, features: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distances to the predicted class and to the nearest other one, (n,) each."""
        distances = self.class_distances(features)
        predicted = checks.check_class_numbers(checks.as_tensor(predicted, "predicted")).to(distances.device)
        checks.check_same_length(distances, "features", predicted, "predicted")
        _check_classes(predicted, self.n_classes, "predicted")
        own = distances.gather(1, predicted[:, None])[:, 0]
        without_samples = predicted[own.isinf()]
        if len(without_samples):
            named = listed(without_samples.unique().tolist(), 5)
            warn(
                f"{len(without_samples)} samples are predicted to be of a class without reference samples ({named}); "
                "their trust score is 0. Fit on samples of all classes."
            )
        return own, distances.scatter(1, predicted[:, None], torch.inf).amin(dim=1)

    def extra_repr(self) -> str:
        samples, d = self.reference.shape
        return f"classes={self.n_classes}, samples={samples}, features={d}"


def _checked(features: object, labels: object, name: str) -> tuple[Tensor, Tensor]:
    points = checks.as_features(features)
    classes = checks.check_class_numbers(checks.as_tensor(labels, name)).to(points.device)
    checks.check_same_length(points, "features", classes, "labels")
    return points, classes


def _check_classes(classes: Tensor, n_classes: int, name: str) -> None:
    outside = ((classes < 0) | (classes >= n_classes)).nonzero()
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{name} must lie in 0..{n_classes - 1}; got {int(classes[row])} at {Row(row)}. If some classes "
            "have no samples, pass n_classes."
        )


@final
@dataclass(frozen=True)
class TrustScore:
    """Rate how much nearer an input lies to training samples of the predicted class than to those of any other.

    It depends on the data, not on the network, and so can be low where the network is confident and wrong. It works
    where distances mean something: in few dimensions, or in features of a network that was trained to separate the
    classes; in the pixels of images, nearest neighbours mean little. Scores are unbounded and no probabilities: they
    rank predictions. Each use searches all training samples.

    Formula: score = d(x, nearest class that is not ŷ) / d(x, class ŷ), d the distance to the nearest sample of a class
    Samples: the training samples, some tens of each class.

    Args:
        alpha: Share of each class that is left out, the samples farthest from their neighbours; for labels that may be
            wrong and classes with outliers.
        neighbours: Density is measured by the distance to the neighbour of this rank; used if ``alpha`` is above 0.

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

    alpha: checks.NonNegative = 0.0
    neighbours: checks.AtLeastOne = 10

    def __post_init__(self) -> None:
        checks.check_options(self)
        if self.alpha >= 1:
            raise InputError(f"alpha must be below 1, so that samples are left; got {self.alpha}.")

    @torch.no_grad()
    def fit(self, features: object, labels: object, *, n_classes: int | None = None) -> NeighbourConfidence:
        """Keep the training samples with which later ones are compared.

        Args:
            features: Features of the training samples, (n, d), finite: the activations before the last layer, or the
                flattened inputs. Samples that are scored later need the same features.
            labels: Labels of the training samples, (n,), integers from 0.
            n_classes: Number of classes; one more than the largest label if None.

        Warns:
            CalibrantWarning: If a class has no more samples than ``neighbours``.
        """
        begun = time.perf_counter()
        points, classes = _checked(features, labels, "labels")
        kept = self._kept(points, classes)
        n_classes = max(int(classes.max()) + 1, 2) if n_classes is None else n_classes
        fitted = NeighbourConfidence(points[kept], classes[kept], n_classes=n_classes)
        note = f"{int(kept.sum()):,} of {len(points):,} samples are kept."
        seconds = time.perf_counter() - begun
        fitted.summary = FitSummary(self.name, self.settings(), len(points), seconds, notes=(note,))
        return fitted

    def fit_network(
        self, model: nn.Module, data: object, *, layer: str | None = None, batch_size: int = 512
    ) -> LearnedConfidence:
        """Run a network over its training samples, and return it with a trust score beside its logits.

        Args:
            model: Any module with a layer to name, or one with ``features`` and ``head``; it is left unchanged.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them.
            layer: Name of the layer whose inputs are the features, mostly the last: ``"fc"``, ``"classifier.6"``. None
                for a model with ``features`` and ``head``.
            batch_size: Samples at a time; a loader has its own.

        Example:
            >>> inputs, labels = torch.randn(90, 4), torch.arange(90) % 3
            >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
            >>> trusted = TrustScore().fit_network(network, (inputs, labels), layer="2")
            >>> trusted.confidence(inputs[:5]).shape
            torch.Size([5])
        """
        batches = feature_batches(model, sample_source(data), batch_size=batch_size, layer=layer)
        parts = [(features, part.labels.to(features.device), part.n_classes) for part, features in batches]
        features, labels = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        fitted = self.fit(features, labels, n_classes=parts[0][2])
        return LearnedConfidence(model, fitted, layer=layer)

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def _kept(self, points: Tensor, classes: Tensor) -> Tensor:
        kept = torch.ones_like(classes, dtype=torch.bool)
        if not self.alpha:
            return kept
        small: list[int] = []
        for number in classes.unique().tolist():
            members = (classes == number).nonzero()[:, 0]
            small += [number] if len(members) <= self.neighbours else []
            kept[members] = dense_samples(points[members].double(), neighbours=self.neighbours, alpha=self.alpha)
        if small:
            warn(
                f"each class should have more samples than the {self.neighbours} neighbours that measure its density; "
                f"{len(small)} have not ({listed(small, 5)}), and all their samples count as neighbours. "
                "Take fewer neighbours, or alpha=0."
            )
        return kept
