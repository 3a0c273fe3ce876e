"""Meta-learned losses: training losses with parameters φ that a held-out objective tunes."""

import math
from abc import ABC, abstractmethod
from dataclasses import field
from typing import Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import NonNegative, Positive, check_known
from calibrant.errors import InputError
from calibrant.losses.base import Batch, NamedLoss, log_losses
from calibrant.losses.calibration_error import DECELoss, SECELoss
from calibrant.losses.focal import focal_weighted
from calibrant.numerics.softmax import full_precision

__all__ = [
    "L2Unit", "MetaFocalLoss", "MetaL2Loss", "MetaLoss", "MetaObjective", "MetaSmoothingLoss", "SmoothingUnit",
]  # fmt: skip

MetaObjective: TypeAlias = Literal["sece", "dece", "ce"]
MetaSchedule: TypeAlias = Literal["constant", "network"]
_CROSS_ENTROPY = 2.0  # default weight of the cross-entropy in the objective
_GAMMA_NET = SECELoss.paper.at("eq. 2-4")


class MetaLoss(NamedLoss, nn.Module, ABC):
    """Base class of meta-learned losses: a training loss with parameters φ, and the held-out objective that tunes φ.

    It takes features as well as logits, and so needs a network with a linear last layer; see
    :class:`~calibrant.models.Network`. Its parameters do not exist before :meth:`build`.

    Args:
        objective: Objective on held-out samples: ``sece`` or ``dece``, two differentiable calibration errors, or
            ``ce``, the cross-entropy. A ``SECELoss`` or ``DECELoss`` is one of the first two with options of its own
            (``sece(bandwidth=0.05)``, ``dece(n_bins=30)``); its weight and base are not used. ``dece`` is
            meta-calibration's.
        cross_entropy: Weight of the cross-entropy that is added to that error; meta-calibration's cross-entropy and
            half an error are 2 here. The error alone is also low for a network that has learned nothing and is not
            confident. Not with ``ce``.
        learning_rate: Learning rate of Adam for φ.
        schedule: ``constant``, or ``network``: φ's rate falls in the same proportion as the network's. Adam divides by
            the size of its gradients, so at a constant rate φ keeps moving after the training samples are learned.
    """

    objective: MetaObjective | SECELoss | DECELoss = "dece"
    cross_entropy: NonNegative = _CROSS_ENTROPY
    learning_rate: Positive = 1e-3
    schedule: MetaSchedule = "constant"

    def __post_init__(self) -> None:
        objective = self.objective
        self._error: SECELoss | DECELoss | None = None
        if isinstance(objective, SECELoss | DECELoss):
            self._error = objective
        elif isinstance(objective, nn.Module):
            raise InputError(f"objective must be sece, dece or ce, with options if any; got {objective}.")
        else:
            check_known(objective, get_args(MetaObjective), "objective")
            self._error = None if objective == "ce" else SECELoss() if objective == "sece" else DECELoss()
        super().__post_init__()
        if objective == "ce" and self.cross_entropy != _CROSS_ENTROPY:
            raise InputError(
                f"cross_entropy must be left out with objective ce, itself the cross-entropy; got {self.cross_entropy}."
            )
        self._n_features = 0
        self.is_initialised = False  # saved with φ

    def build(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Create the parameters for a last layer of this size, replacing earlier ones."""
        self._n_features, self.is_initialised = n_features, False
        self.make(n_features, n_classes, seed=seed)

    @abstractmethod
    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Create the parameters; :meth:`build` calls it."""

    @abstractmethod
    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each training sample, (n,), from checked features (n, d), logits (n, k) and labels (n,).

        Features have no gradient to the network, which could otherwise lower the loss by changing its regularisation.
        """

    @abstractmethod
    def describe(self, features: Tensor) -> dict[str, float]:
        """Return the numbers that summarise φ on the features (n, d) of some samples."""

    def warning(self, features: Tensor) -> str | None:
        """Return what is wrong with φ on the features (n, d) of some samples, and what to do; None if nothing is."""
        self.check_built(features)
        return None

    def initialise(self, features: Tensor) -> None:
        """Set φ to its initial values given the features (n, d) of the first samples; most losses need none."""
        self.check_built(features)

    def penalty(self, weight: Tensor) -> Tensor:
        """Return the penalty on the weights of the last layer, (k, d); 0 for most losses."""
        return weight.new_zeros(())

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of a batch of training samples, a single number.

        Args:
            features: Shape (n, d).
            logits: Shape (n, k), the output of the last layer.
            labels: Shape (n,), whole numbers; their range is checked on the CPU only.
            weight: Weights of the last layer, (k, d).
        """
        self.check_built(features)
        if features.shape[:1] != logits.shape[:1]:
            raise InputError(f"features and logits must be of the same samples; got {len(features)} and {len(logits)}.")
        batch = Batch.of(logits, labels, owner=self.name)
        with full_precision(logits):
            losses = self.rows(features.detach().to(batch.logits.dtype), batch.logits, batch.labels)
            return losses.mean() + self.penalty(weight)

    def held_out(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the objective on held-out samples, which φ is to lower, from logits (n, k) and labels (n,)."""
        batch = Batch.of(logits, labels, owner=self.name)
        with full_precision(logits):
            if self._error is None:
                return log_losses(batch.logits, batch.labels).mean()
            error = self._error.penalty(batch.logits, batch.labels)
            weight = self.cross_entropy
            return error if weight == 0 else error + weight * log_losses(batch.logits, batch.labels).mean()

    def check_built(self, features: Tensor, name: str = "features") -> None:
        """Check that the parameters exist and fit these features."""
        if not self._n_features:
            raise InputError(f"{self.name} must be built for a last layer before it is called: MetaRegulariser does.")
        if features.ndim != 2:
            raise InputError(f"{name} must have shape (n, d); got {tuple(features.shape)}. Pool or flatten them.")
        if features.shape[1] != self._n_features:
            raise InputError(f"{name} must have the last layer's {self._n_features} columns; got {features.shape[1]}.")

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.is_initialised)

    def set_extra_state(self, state: Tensor) -> None:
        self.is_initialised = bool(state)


GammaSign: TypeAlias = Literal["absolute", "relu", "softplus", "sigmoid", "min-max"]
_INITIAL_SPREAD = 0.1  # spread of the score where γ is not proportional to it


@final
class GammaNet(nn.Module):
    """A γ for each sample from its features, by attention over as many prototypes as classes; see MetaFocalLoss."""

    def __init__(
        self, n_features: int, n_classes: int, *, temperature: float, limit: float, sign: GammaSign, seed: int
    ) -> None:
        super().__init__()
        self.temperature, self.limit, self.sign = temperature, limit, sign
        generator = torch.Generator().manual_seed(seed)
        # The paper does not give the initial values. With these, features of unit size give scores around 1.
        spread = n_features**-0.5
        self.prototypes = nn.Parameter(spread * torch.randn(n_features, n_classes, generator=generator))
        self.weight = nn.Parameter(temperature * torch.randn(n_features, generator=generator))

    def forward(self, features: Tensor) -> Tensor:
        return self.unclipped(features).clamp(max=self.limit)

    def unclipped(self, features: Tensor) -> Tensor:
        """Return γ before clipping, (n,)."""
        score = self._score(features)
        if self.sign == "absolute":
            return score.abs()
        if self.sign == "relu":
            return score.relu()
        if self.sign == "softplus":
            return F.softplus(score + math.log(math.e - 1))
        if self.sign == "sigmoid":
            return self.limit * (score - math.log(self.limit - 1)).sigmoid()
        low, high = score.amin(), score.amax()
        # A single sample, or equal ones, are in the middle.
        return torch.where(high > low, 2 * (score - low) / (high - low).clamp(min=torch.finfo(score.dtype).tiny), 1.0)

    def _score(self, features: Tensor) -> Tensor:
        attention = (features @ self.prototypes).softmax(dim=1)
        return (attention @ (self.prototypes.T @ self.weight)) / self.temperature

    @torch.no_grad()
    def initialise(self, features: Tensor) -> None:
        """Scale w so that γ is 1 on average over these samples, (n, d): initially the focal loss of γ = 1.

        With ``softplus`` and ``sigmoid`` it is close to 1 for each of them; with ``min-max`` nothing is to be scaled.
        """
        # Differs from the paper, which says that γ begins at 1; by its formula and the usual initial parameters it
        # begins anywhere between 0.06 and 2.6.
        if self.sign == "relu" and not bool((self._score(features) > 0).any()):
            self.weight.neg_()
        is_proportional = self.sign in {"absolute", "relu"}
        size = float((self.unclipped(features) if is_proportional else self._score(features).square()).mean())
        size = size if is_proportional else math.sqrt(size) / _INITIAL_SPREAD
        if not 0 < size < float("inf"):
            raise InputError(f"features must be finite to initialise γ-Net; its mean γ on them is {size}.")
        self.weight.div_(size)


@final
class MetaFocalLoss(
    MetaLoss, name="meta_focal", title="Focal loss with a learned gamma per sample (gamma-Net)", paper=_GAMMA_NET
):
    """Focal loss whose γ a small network computes from each sample's features, tuned on held-out samples.

    γ-Net is used in training only; the network that is left is like any other. Look at how γ moved (it is recorded
    every epoch) before crediting it: where it ends depends on the seed. For ResNet-18 on CIFAR-100 it did no better
    than a γ fixed at 1, with 40 epochs or with the paper's 350, where its ECE was the higher one in each of 3 pairs of
    networks with SECE, with DECE and with the cross-entropy; the paper's is far lower. Those used ``schedule=network``;
    at a constant rate γ rose to its limit in two of three networks, and one was left with an ECE of 38 %. The rate and
    the 2 times the cross-entropy in the objective are this library's choice, as the paper gives neither.

    γ-Net attends over as many prototypes as there are classes, whose matrix A gives keys and values. τ only sets the
    scale of w, and with it how fast γ moves at a given learning rate. Nothing in the formula keeps γ small, so it is
    clipped; a γ at the limit has no slope and stays there until others move it.

    Formula: mean of -(1 - p_y)^γ(x) log p_y, γ(x) = |s|, s = x̃ w / τ, x̃ = softmax(x A) Aᵀ, of the features x

    Args:
        objective: See :class:`MetaLoss`; ``sece`` is the paper's, ``dece`` and ``ce`` its variants.
        cross_entropy: See :class:`MetaLoss`. 0 is the paper's eq. 2, by which γ can grow to its limit, as a network
            that learns nothing more becomes no more confident; its Section 4.3 speaks of both, and meta-calibration's 2
            is the default. Not with ``ce``.
        learning_rate: See :class:`MetaLoss`. The paper gives none; at meta-calibration's 1e-3, τ lets γ jump by whole
            numbers from step to step.
        temperature: τ of γ-Net.
        limit: The largest γ.
        sign: How γ is kept from being negative. ``absolute`` is the paper's eq. 4. It names the others and prints no
            formula; here they are such that s = 0 gives γ = 1: ``softplus`` log(1 + (e - 1) eˢ); ``sigmoid``
            limit / (1 + (limit - 1) e⁻ˢ), for a limit above 1; ``min-max`` 2 (s - min s) / (max s - min s) over the
            batch, with 1 in its middle. ``relu`` is max(s, 0).

    Example:
        >>> loss = MetaFocalLoss()
        >>> loss.build(8, 3, seed=0)
        >>> features, labels = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
        >>> bool(loss(features, torch.zeros(4, 3), labels, torch.zeros(3, 8)) > 0)
        True
    """

    objective: MetaObjective | SECELoss | DECELoss = "sece"
    learning_rate: Positive = 1e-4
    temperature: Positive = 0.01
    limit: Positive = 20.0
    sign: GammaSign = "absolute"
    gamma_net: GammaNet = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sign == "sigmoid" and self.limit <= 1:
            raise InputError(f"limit must be above 1 with sign='sigmoid', for γ to begin at 1; got {self.limit}.")

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        self.gamma_net = GammaNet(
            n_features, n_classes, temperature=self.temperature, limit=self.limit, sign=self.sign, seed=seed
        )

    @torch.no_grad()
    def gamma(self, features: Tensor) -> Tensor:
        """Return γ of each sample, (n,), from its features (n, d)."""
        return self._net(features)(features)

    def initialise(self, features: Tensor) -> None:
        """Scale γ-Net so that γ is 1 on average over these samples, (n, d)."""
        self._net(features).initialise(features)

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self._net(features)(features))

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Return mean and standard deviation of γ, and the share of samples at its limit."""
        gamma = self._net(features).unclipped(features).double()
        clipped = gamma.clamp(max=self.limit)
        return {
            "gamma_mean": float(clipped.mean()),
            "gamma_std": float(clipped.std(correction=0)),
            "gamma_clipped": float((gamma > self.limit).double().mean()),
        }

    @torch.no_grad()
    def warning(self, features: Tensor) -> str | None:
        """Return a warning where γ is above its limit."""
        above = float((self._net(features).unclipped(features) > self.limit).double().mean())
        if not above:
            return None
        advice = "" if self.objective == "ce" else ", or give it more cross_entropy"
        return (
            f"γ is above its limit for {above:.1%} of samples and clipped there, where it has no slope. Lower the "
            f"loss's learning_rate{advice}."
        )

    def _net(self, features: Tensor) -> GammaNet:
        self.check_built(features)
        return self.gamma_net


L2Unit: TypeAlias = Literal["class", "feature", "weight"]


@final
class MetaL2Loss(
    MetaLoss, name="meta_l2", title="Cross-entropy with a learned weight decay of the last layer", paper=DECELoss.paper
):
    """Cross-entropy and a weight decay of the last layer whose strength is tuned on held-out samples.

    Formula: mean of -log p_y, + Σ_u exp(φ_u) ‖w_u‖²

    Args:
        start: Initial value of every exp(φ). The logarithm is learned, so that none falls below 0.
        unit: What has a φ of its own: each ``class`` (a row of the weights), each ``feature`` (a column) or each
            ``weight``. The paper says unit-wise, which we read as the layer's units, its classes.

    Example:
        >>> loss = MetaL2Loss(start=0.5)
        >>> loss.build(8, 3, seed=0)
        >>> round(loss.penalty(torch.ones(3, 8)).item(), 4)
        12.0
    """

    start: Positive = 5e-4
    unit: L2Unit = "class"
    log_strength: nn.Parameter = field(init=False)

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        del seed
        shapes = {"class": (n_classes, 1), "feature": (1, n_features), "weight": (n_classes, n_features)}
        self.log_strength = nn.Parameter(torch.full(shapes[self.unit], math.log(self.start)))

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        del features
        return log_losses(logits, labels)

    def penalty(self, weight: Tensor) -> Tensor:
        return (self.log_strength.exp() * weight.square()).sum()

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Return mean, smallest and largest strength."""
        self.check_built(features)
        return _summary("l2", self.log_strength.double().exp())


def _summary(name: str, values: Tensor) -> dict[str, float]:
    numbers = {"mean": values.mean(), "least": values.min(), "most": values.max()}
    return {f"{name}_{which}": float(number) for which, number in numbers.items()}


SmoothingUnit: TypeAlias = Literal["all", "class"]
_MOST = 0.5


@final
class MetaSmoothingLoss(
    MetaLoss, name="meta_smoothing", title="Label smoothing of a learned amount", paper=DECELoss.paper
):
    """Label smoothing whose strength is tuned on held-out samples, the same for all samples or one for each class.

    Formula: mean of (1 - ε_y) · -log p_y + ε_y/k Σ_j -log p_j, ε = σ(φ)/2

    Args:
        start: Initial ε, between 0 and a half. The public code learns ε itself and clips it at 0 and a half, where it
            has no slope any more; here it cannot reach either end.
        unit: Whether ``all`` samples share one ε, or each ``class`` has its own.

    Example:
        >>> loss = MetaSmoothingLoss(start=0.1)
        >>> loss.build(8, 3, seed=0)
        >>> round(loss.describe(torch.zeros(1, 8))["smoothing_mean"], 4)
        0.1
    """

    start: float = 0.05
    unit: SmoothingUnit = "class"
    unbounded: nn.Parameter = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.start < _MOST:
            raise InputError(f"start must be between 0 and {_MOST}, which it could never leave; got {self.start}.")

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        del n_features, seed
        share, size = self.start / _MOST, n_classes if self.unit == "class" else 1
        self.unbounded = nn.Parameter(torch.full((size,), math.log(share / (1 - share))))

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        del features
        smoothing = self._smoothing()
        smoothing = smoothing[labels] if len(smoothing) > 1 else smoothing
        return (1 - smoothing) * log_losses(logits, labels) - smoothing * logits.log_softmax(dim=1).mean(dim=1)

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Return mean, smallest and largest ε."""
        self.check_built(features)
        return _summary("smoothing", self._smoothing().double())

    def _smoothing(self) -> Tensor:
        return _MOST * self.unbounded.sigmoid()
