"""The objective of Neural Clamping (eq. 9): focal loss after a fitted head, plus a penalty on the size of δ.

Both are per sample here: the mean loss plus strength · ‖δ‖². Eq. 9 sums the losses, so its λ is the strength times the
number of samples.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor
from torch.func import functional_call

from calibrant import calibrators
from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.errors import FitError, InputError, SeparableError
from calibrant.losses.base import log_losses
from calibrant.losses.focal import focal_weighted
from calibrant.maps import ChainMap, Map, Mixture, Scale
from calibrant.numerics.inverse_temperature import fit_inverse_temperature, focal_loss, log_loss
from calibrant.predictions import Predictions

__all__ = ["HeadFit", "Objective"]

Penalty: TypeAlias = Literal["squared", "norm"]


@final
@dataclass(frozen=True)
class Objective:
    """Mean loss of samples, and the penalty on δ's coefficients."""

    gamma: float = 0.0  # γ of the focal loss; 0 is the cross-entropy
    strength: float = 1.0  # factor of the penalty
    penalty: Penalty = "squared"  # ‖δ‖², as in eq. 9; "norm" is ‖δ‖, as in the authors' toolkit
    clip: float = 0.0  # distance of a label's probability from 0 and 1, beyond which it has no gradient; toolkit: 1e-7

    def sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (n,), for calibrated logits (n, k) and labels (n,)."""
        losses = log_losses(logits, labels)
        if self.clip > 0:
            losses = losses.clamp(-math.log1p(-self.clip), -math.log(self.clip))
        return focal_weighted(losses, self.gamma) if self.gamma > 0 else losses

    @torch.no_grad()
    def mean_loss(self, head: Map, logits: Tensor, labels: Tensor) -> float:
        """Return the mean loss of a head's output for logits (n, k)."""
        return float(self.sample_losses(head(logits).double(), labels).mean())

    def penalty_of(self, coefficients: Tensor) -> float:
        """Return the penalty on δ with these coefficients, (p,)."""
        square = float(coefficients.double().square().sum())
        return self.strength * (square if self.penalty == "squared" else square**0.5)

    def penalty_gradient(self, coefficients: Tensor) -> Tensor:
        """Return the penalty's gradient, (p,); at 0, where the norm has none, it is 0."""
        return self.penalty_curvature(coefficients) * coefficients

    def penalty_curvature(self, coefficients: Tensor) -> float:
        """Return the penalty's curvature across its gradient, which is also its gradient divided by δ."""
        if self.penalty == "squared":
            return 2 * self.strength
        norm = float(coefficients.norm())
        return self.strength / norm if norm > 0 else 0.0


# The head is the map of the network's logits, refitted for every δ. These methods cannot be one: they are fitted one
# class at a time, or to features of the logits that themselves depend on all samples.
_OTHER_LOSS = (
    calibrators.BetaCalibration,
    calibrators.DiagonalOrderPreserving,
    calibrators.OrderInvariant,
    calibrators.OrderPreserving,
    calibrators.PlattScaling,
    calibrators.QuadraticScaling,
)
# Heads that start with a temperature, and count half an unseen mistake where every prediction is right.
_TEMPERATURE_FIRST = (TemperatureScaling, calibrators.StructuredVectorScaling, calibrators.StructuredMatrixScaling)
# Heads that search for their own strengths unless these are given.
_SEARCHING = (calibrators.MatrixScalingODIR, calibrators.DirichletODIR)


@final
class HeadFit:
    """Fits the head to logits, warm-started from the last head where that saves time.

    The head's method must minimise the same loss as δ, at most with a penalty of its own, as svs and sms do: only then
    is the gradient with a fixed head that of the head following δ. A temperature minimises the focal loss, too.
    """

    def __init__(self, calibrator: Calibrator, gamma: float) -> None:
        self._calibrator, self._gamma = calibrator, gamma
        self.is_temperature = isinstance(calibrator, TemperatureScaling)
        _check_minimises_the_objective(calibrator)
        if isinstance(calibrator, TemperatureScaling) and calibrator.value is not None:
            raise InputError(f"the head's temperature must be left to the fit; got value={calibrator.value:g}.")
        if not self.is_temperature and gamma > 0:
            raise InputError(
                f"gamma must be 0 with the head {calibrator.name}, which minimises the log-loss; got {gamma}. "
                "Only a temperature can follow the focal loss."
            )

    def fit(self, logits: Tensor, labels: Tensor, *, last: Map | None = None, with_delta: bool = False) -> Map:
        """Fit the head to finite logits (n, k) and labels (n,).

        ``last`` is the head of nearly the same logits; ``with_delta``, whether δ was added to the inputs, decides the
        advice of an error. Without an optimum it is a SeparableError where (almost) every prediction is right, else a
        FitError.
        """
        if isinstance(last, Scale) and self.is_temperature and 0 < float(last.temperature) < float("inf"):
            loss = partial(focal_loss, gamma=self._gamma) if self._gamma > 0 else log_loss
            best = fit_inverse_temperature(logits, labels, loss=loss, near=1 / float(last.temperature))
            if best.end == "interior":
                temperature = torch.tensor(1 / best.beta, dtype=torch.float64, device=logits.device)
                return Scale(temperature, n_classes=logits.shape[1])
        calibrator = self._calibrator
        if self.is_temperature and self._gamma > 0:
            calibrator = TemperatureScaling(criterion="focal", gamma=self._gamma)
        problem = f"the head {calibrator.name} could not be fitted at x + δ"
        advice = " Or penalise δ, which caused this, with a larger strength." if with_delta else ""
        if isinstance(calibrator, _TEMPERATURE_FIRST) and bool((logits.argmax(dim=1) == labels).all()):
            # It would count half an unseen mistake, and no longer minimise the objective that δ follows.
            raise SeparableError(
                f"{problem}: temperature must have a smallest loss above 0; here a smaller one is always better, "
                "because the label has the largest logit for every sample. Fit on samples with some wrong predictions."
                f"{advice}"
            )
        try:
            return calibrator.fit_without_scores(Predictions.from_logits(logits, labels))
        except SeparableError as error:
            raise SeparableError(f"{problem}: {error}{advice}") from error
        except FitError as error:
            raise FitError(f"{problem}: {error}") from error


def own_penalty(head: Map, logits: Tensor, labels: Tensor) -> float:
    """Return the penalty of a head on its own parameters: the objective of its fit minus the mean log-loss; or 0."""
    if head.summary is None or head.summary.certificate is None:
        return 0.0
    return head.summary.certificate.objective - Objective().mean_loss(head, logits.double(), labels)


def _check_minimises_the_objective(calibrator: Calibrator) -> None:
    name = calibrator.name
    if isinstance(calibrator, TemperatureScaling) and calibrator.criterion != "nll":
        raise InputError(
            f"a temperature head minimises Neural Clamping's own objective; got criterion "
            f"{calibrator.criterion!r}. Leave it out, and give gamma to NeuralClamping."
        )
    if calibrator.family not in {"scaling", "baseline"}:
        raise InputError(
            f"the head must change smoothly with the logits and minimise a loss, for δ to be learned before it; "
            f"{name} is of the family {calibrator.family}. Take one of the family scaling."
        )
    is_brier = isinstance(calibrator, calibrators.EnsembleTemperatureScaling) and calibrator.criterion != "nll"
    if isinstance(calibrator, _OTHER_LOSS) or is_brier:
        raise InputError(
            f"the head must minimise the log-loss of all classes at once, and a penalty at most, for δ to be learned "
            f"before it; {name} minimises something else. Take temperature, vector, svs, sms or ets."
        )
    if isinstance(calibrator, _SEARCHING) and None in {calibrator.strength, calibrator.bias_strength}:
        raise InputError(
            f"the head {name} must be given its strength and bias_strength: a search for every δ would make them jump. "
            "Fit it on its own to find them, or take sms."
        )


# Heads in two steps, a temperature first and the rest for it (SVS, SMS, ETS). The temperature minimises the log-loss by
# itself, not the sum that the rest of the head and δ minimise, so its change with δ changes that sum to first order. It
# moves by its own optimality condition, Σ_i h_i(β) = 0 with h_i the derivative of a sample's log-loss in β = 1/T, and
# its part of the gradient is that of one more term per sample, sensitivity · h_i.

# A temperature further from its optimum than this, relative to it, is at a bound, and stays there.
_AT_BOUND = 1e-2


@final
class FirstTemperature(NamedTuple):
    """Contribution of a two-step head's temperature to the gradient in δ."""

    beta: float  # inverse temperature
    sensitivity: float  # -(dF/dβ) / Σ h_i'(β), F being the mean loss after the whole head

    def sample_terms(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return a term per sample, (n,), for logits (n, k); only its gradient is meaningful."""
        return self.sensitivity * _beta_gradients(logits, labels, self.beta)


def temperature_sensitivity(head: Map, logits: Tensor, labels: Tensor, objective: Objective) -> FirstTemperature | None:
    """Return how the first temperature of a head follows δ; None for a one-step head, or if that step is at a bound."""
    if not isinstance(head, ChainMap | Mixture) or not isinstance(head.maps[0], Scale):
        return None
    beta, precise = 1 / float(head.maps[0].temperature), logits.double()
    gradient = float(_beta_gradients(precise, labels, beta).mean())
    # The second derivative of a log-loss in β is the variance of the logit.
    probs = (beta * precise).softmax(dim=1)
    deviation = precise - (probs * precise).sum(dim=1, keepdim=True)
    curvature = float((probs * deviation.square()).sum(dim=1).mean())
    if abs(gradient) > _AT_BOUND * beta * curvature:
        return None
    with torch.enable_grad():  # the derivative of the mean loss after the whole head, its other parameters fixed
        leaf = torch.tensor(beta, dtype=torch.float64, device=logits.device, requires_grad=True)
        calibrated = functional_call(head, {"maps.0.temperature": 1 / leaf}, (precise,))
        (slope,) = torch.autograd.grad(objective.sample_losses(calibrated, labels).mean(), leaf)
    return FirstTemperature(beta, -float(slope) / curvature)


def _beta_gradients(logits: Tensor, labels: Tensor, beta: float) -> Tensor:
    """Return the derivative of each sample's log-loss in β, (n,): the expected logit less the label's."""
    expected = ((beta * logits).softmax(dim=1) * logits).sum(dim=1)
    return expected - logits.gather(1, labels[:, None])[:, 0]
