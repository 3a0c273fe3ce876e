"""Intra-order-preserving functions: more flexible than a temperature, without changing a prediction."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from calibrant.calibrators.affine import TemperatureScaling
from calibrant.calibrators.base import Calibrator, Fitted, warn_of_missing_classes
from calibrant.checks import check_at_least, check_positive
from calibrant.errors import SeparableError
from calibrant.maps import MonotoneMap, OrderPreservingMap, Sees
from calibrant.numerics.newton import quasi_newton
from calibrant.numerics.order_loss import GapStretchLoss, SlopeLoss, knots_for
from calibrant.paper import Paper
from calibrant.predictions import Predictions

_RAHIMI = Paper(
    "Rahimi et al.", 2020, "Intra Order-preserving Functions for Calibration of Multi-Class Neural Networks",
    "arXiv:2003.06820",
)  # fmt: skip
# Log-probabilities of a class that hardly vary carry no information, and are not scaled up.
_LEAST_SPREAD = 0.1
# Least slope of the diagonal function; temperature scaling is 1 everywhere.
_LEAST_SLOPE = 0.01


@final
@dataclass(frozen=True)
class OrderPreserving(Calibrator):
    """Stretch each gap between neighbouring logits by a number that a small network computes from the sample (OP).

    The order of all classes in a sample is kept, so that neither accuracy nor top-5 accuracy can change. The network
    sees which class is which, and can lower the confidence in overrated classes, as vector scaling does. With few
    samples it has little to learn from and stays at temperature scaling, to which a strong ``weight_decay`` leads. It
    hurts where the calibration samples have another distribution than later ones: the network then extrapolates.

    Formula: q = softmax(S⁻¹(−Σ_{i<j} m_i(z) (z_(i) − z_(i+1)))), m = softplus(network(z)) > 0, S sorts z downwards
    Samples: about 50 per class to improve on temperature scaling; with fewer it is no better and, as regularised, no
        worse. The confidence in a class without samples falls, with a warning.

    Args:
        hidden: Size of the hidden layer.
        weight_decay: Penalty on the squared distance of the weights from their start, divided by the number of samples.
            Below 1 it overfits a hundred classes with 5,000 samples; infinitely large it is temperature scaling.
        seed: Random seed of the network's initial weights.

    Raises:
        FitError: If (almost) every prediction is right, so that no finite stretch is best; or no optimum is reached.
    """

    name = "order_preserving"
    title = "Order-preserving network"
    family = "scaling"
    paper = _RAHIMI
    preserves_accuracy = True
    preserves_ranking = False  # samples are stretched differently

    hidden: int = 32
    weight_decay: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.hidden, self.weight_decay)

    def _fit(self, predictions: Predictions) -> Fitted:
        warn_of_missing_classes(predictions, self.title)
        return _stretched(predictions, "given", self.hidden, self.weight_decay, self.seed)


@final
@dataclass(frozen=True)
class OrderInvariant(Calibrator):
    """Stretch each gap between neighbouring logits by a number that a network computes from the sorted sample (OI).

    As :class:`OrderPreserving`, with a network that sees the largest logit, the second largest and so on, and not which
    class is which: it learns from all classes at once, needs fewer samples, and can correct what depends on the shape
    of a sample (confident in one class, undecided between two, spread over many), but not a single class. The order of
    all classes in a sample is kept. It hurts where later samples have shapes that the calibration samples had not.

    Formula: q = softmax(S⁻¹(−Σ_{i<j} m_i(Sz) (z_(i) − z_(i+1)))), m = softplus(network(Sz)) > 0, S sorts z downwards
    Samples: about 1,000 to improve on temperature scaling; with fewer it is no better and, as regularised, no worse.

    Args:
        hidden: Size of the hidden layer.
        weight_decay: Penalty on the squared distance of the weights from their start, divided by the number of samples;
            infinitely large it is temperature scaling.
        seed: Random seed of the network's initial weights.

    Raises:
        FitError: If (almost) every prediction is right, so that no finite stretch is best; or no optimum is reached.
    """

    name = "order_invariant"
    title = "Order-invariant network"
    family = "scaling"
    paper = _RAHIMI
    preserves_accuracy = True
    preserves_ranking = False  # samples are stretched differently

    hidden: int = 32
    weight_decay: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.hidden, self.weight_decay)

    def _fit(self, predictions: Predictions) -> Fitted:
        return _stretched(predictions, "sorted", self.hidden, self.weight_decay, self.seed)


@final
@dataclass(frozen=True)
class DiagonalOrderPreserving(Calibrator):
    """One rising function applied to every log-probability (DIAG).

    Temperature scaling is a straight line; this one may bend, so that large and small probabilities are sharpened or
    softened to different degrees. It has a few numbers and a convex fit, with one optimum. The order of all classes in
    a sample is kept. It cannot correct a single class, and where a temperature suffices it only adds a little noise.

    Formula: q = softmax(f(ln p_1), …, f(ln p_k)), p = softmax(z / T), f rising and straight between knots
    Samples: about 500; with fewer the penalty keeps f close to a straight line.

    Args:
        pieces: Straight pieces of the function, between equal shares of each sample's ten largest log-probabilities.
        weight_decay: Penalty on squared changes of slope, divided by the number of samples; infinitely large it is
            temperature scaling.

    Raises:
        FitError: If (almost) every prediction is right, so that no finite slope is best; or no optimum is reached.
    """

    name = "diagonal"
    title = "Diagonal order-preserving function"
    family = "scaling"
    paper = _RAHIMI
    preserves_accuracy = True
    preserves_ranking = False  # the logits of the other classes change too

    pieces: int = 16
    weight_decay: float = 5.0

    def __post_init__(self) -> None:
        check_at_least(self.pieces, 2, "pieces")
        check_positive(self.weight_decay, "weight_decay")

    # Differs from the paper: a piecewise straight function in place of the numerical integral of a positive network,
    # which makes the fit convex and the function exact; of log-probabilities after temperature scaling, so that adding
    # a constant to the logits of a sample, or scaling all of them, changes nothing; fitted to its optimum.
    def _fit(self, predictions: Predictions) -> Fitted:
        beta = _fitted_beta(predictions)
        log_probs = (predictions.logits.double() * beta).log_softmax(dim=1)
        knots = knots_for(log_probs, self.pieces)
        objective = SlopeLoss(log_probs, predictions.labels, knots, weight_decay=self.weight_decay)
        slopes, certificate = quasi_newton(objective, knots.new_ones(len(knots) + 1), least=_LEAST_SLOPE)
        return Fitted(MonotoneMap(beta, knots, slopes, n_classes=predictions.n_classes), certificate)


# Differs from the paper: one hidden layer of tanh, whose start gives temperature scaling; it sees log-probabilities
# after temperature scaling, so that adding a constant to the logits of a sample, or scaling all of them, changes
# nothing; weights decay towards the start, not towards 0, where the hidden layer would be lost; all samples are fitted
# at once and to an optimum, where the paper takes some epochs of Adam.
def _stretched(predictions: Predictions, sees: Sees, hidden: int, weight_decay: float, seed: int) -> Fitted:
    beta = _fitted_beta(predictions)
    logits = predictions.logits.double() * beta
    ranked, order = logits.sort(dim=1, descending=True, stable=True)
    seen = (ranked if sees == "sorted" else logits).log_softmax(dim=1)
    centre, spread = seen.mean(dim=0), seen.std(dim=0, correction=0).clamp(min=_LEAST_SPREAD)
    objective = GapStretchLoss(
        ranked[:, :-1] - ranked[:, 1:],
        (seen - centre) / spread,
        (order == predictions.labels[:, None]).byte().argmax(dim=1),
        hidden=hidden,
        weight_decay=weight_decay,
        seed=seed,
    )
    weights, certificate = quasi_newton(objective, objective.start)
    network = objective.network(weights)
    fitted = OrderPreservingMap(
        beta,
        centre,
        network.hidden_weight / spread,
        network.hidden_bias,
        network.out_weight,
        network.out_bias,
        n_classes=predictions.n_classes,
        sees=sees,
    )
    return Fitted(fitted, certificate)


def _fitted_beta(predictions: Predictions) -> Tensor:
    """Return the inverse temperature that these methods start from."""
    if bool(predictions.correct.all()):
        raise SeparableError(
            f"order-preserving functions must have some wrong predictions to learn from; here all {len(predictions)} "
            "are right, so steeper functions are always better. Fit on more samples."
        )
    scale = TemperatureScaling().fit_without_scores(predictions)
    return scale.get_buffer("temperature").reciprocal()


def _check(hidden: int, weight_decay: float) -> None:
    check_at_least(hidden, 1, "hidden")
    check_positive(weight_decay, "weight_decay")
