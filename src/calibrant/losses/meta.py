"""Meta-learned losses: training losses with parameters φ that a held-out objective tunes, and γ-Net."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_known, check_positive, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import Batch, full_precision, log_losses, options_in_words
from calibrant.losses.calibration_error import DECELoss, SECELoss
from calibrant.losses.focal import focal_weighted
from calibrant.paper import Paper

__all__ = ["GammaNet", "GammaSign", "MetaFocalLoss", "MetaLoss", "MetaObjective", "MetaSchedule", "check_sign"]

MetaObjective: TypeAlias = Literal["sece", "dece", "ce"]
MetaSchedule: TypeAlias = Literal["constant", "network"]
_CROSS_ENTROPY = 2.0  # what every one of them has, unless told otherwise
_PENALTIES: dict[str, type[SECELoss | DECELoss]] = {"sece": SECELoss, "dece": DECELoss}


class MetaLoss(nn.Module, ABC):
    """A loss of training rows with parameters φ that are tuned so that held-out rows come out better calibrated.

    It looks at features as well as logits, and so needs a network with a last layer of its own; see
    :class:`~calibrant.models.Network`. Its parameters do not exist before :meth:`build`.

    Args:
        objective: What held-out rows judge φ by: ``sece`` or ``dece``, two differentiable calibration errors, or
            ``ce``, the cross-entropy. A ``SECELoss`` or ``DECELoss`` is one of the first two with options of its own
            (``sece(bandwidth=0.05)``, ``dece(n_bins=30)``); its weight and base are not used.
        cross_entropy: How much of the cross-entropy is added to that error. The error alone is also low for a network
            that knows nothing and says so. Not with ``ce``, to which there is none to add.
        learning_rate: Learning rate of Adam for φ.
        schedule: ``constant``, or ``network``: φ's rate falls in the same proportion as the network's. Adam divides by
            the size of its gradients, so at a constant rate φ keeps moving after the training samples are learned.

    Raises:
        InputError: If an option is out of range, or ``cross_entropy`` is given with ``ce``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]

    def __init__(
        self,
        *,
        objective: MetaObjective | SECELoss | DECELoss,
        cross_entropy: float,
        learning_rate: float,
        schedule: MetaSchedule,
    ) -> None:
        super().__init__()
        if not isinstance(objective, tuple(_PENALTIES.values())):
            if isinstance(objective, nn.Module):
                raise InputError(f"objective must be sece, dece or ce, with options if any; got {objective}.")
            check_known(objective, get_args(MetaObjective), "objective")
        check_known(schedule, get_args(MetaSchedule), "schedule")
        check_real_number(cross_entropy, "cross_entropy", least=0)
        check_positive(learning_rate, "learning_rate")
        if objective == "ce" and cross_entropy != _CROSS_ENTROPY:
            raise InputError(
                f"cross_entropy must be left out with objective ce, which is nothing else; got {cross_entropy}."
            )
        self.objective = objective
        self.cross_entropy = cross_entropy
        self.learning_rate = learning_rate
        self.schedule = schedule
        self._error = (
            None if objective == "ce" else objective if isinstance(objective, nn.Module) else _PENALTIES[objective]()
        )
        self._n_features = 0
        self.is_initialised = False  # saved with φ

    def build(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Make the parameters for a last layer of this size, replacing any there are."""
        self._n_features, self.is_initialised = n_features, False
        self.make(n_features, n_classes, seed=seed)

    @abstractmethod
    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Make the parameters; :meth:`build` calls it."""

    @abstractmethod
    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each training row, (n,).

        Args:
            features: Shape (n, d), without a gradient to the network: a loss that the network could lower by moving its
                own regularisation would be no regularisation.
            logits: Shape (n, k), in float32 or better.
            labels: Shape (n,), int64.
        """

    @abstractmethod
    def describe(self, features: Tensor) -> dict[str, float]:
        """The numbers worth writing down of φ, as seen on some rows' features (n, d)."""

    def doubt(self, features: Tensor) -> str | None:
        """What is wrong with φ, as seen on some rows' features (n, d), and what to do about it; None if nothing is."""
        self.check_built(features)
        return None

    def initialise(self, features: Tensor) -> None:
        """Bring φ to where training should begin, as seen on the first rows' features (n, d); most have it there."""
        self.check_built(features)

    def penalty(self, weight: Tensor) -> Tensor:
        """What is added for the last layer's weights, (k, d); nothing unless a loss says so."""
        return weight.new_zeros(())

    def forward(self, features: Tensor, logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """The loss of a batch of training rows, a single number.

        Args:
            features: Shape (n, d).
            logits: Shape (n, k), the last layer's answer to them.
            labels: Shape (n,), whole numbers.
            weight: The last layer's weights, (k, d).

        Raises:
            InputError: If the shapes do not fit, a label is out of range (seen on the CPU only), or :meth:`build` was
                not called.
        """
        self.check_built(features)
        if features.shape[:1] != logits.shape[:1]:
            raise InputError(
                f"features and logits must be of the same rows; got {len(features)} and {len(logits)}. Take both from "
                "one batch."
            )
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=None, soft=False)
        with full_precision(logits):
            losses = self.rows(features.detach().to(batch.logits.dtype), batch.logits, batch.labels)
            return losses.mean() + self.penalty(weight)

    def held_out(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What φ is to lower: the objective on held-out rows, a single number.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,), whole numbers.
        """
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=None, soft=False)
        with full_precision(logits):
            if self._error is None:
                return log_losses(batch.logits, batch.labels).mean()
            error = self._error.penalty(batch.logits, batch.labels)
            if self.cross_entropy == 0:
                return error
            return error + self.cross_entropy * log_losses(batch.logits, batch.labels).mean()

    def check_built(self, features: Tensor, name: str = "features") -> None:
        """The parameters are there, and for features of this size.

        Raises:
            InputError: If not.
        """
        if not self._n_features:
            raise InputError(f"{self.name} must be built for a last layer before it is called: MetaRegulariser does.")
        if features.ndim != 2:
            raise InputError(f"{name} must have shape (n, d); got {tuple(features.shape)}. Pool or flatten them.")
        if features.shape[1] != self._n_features:
            raise InputError(
                f"{name} must be what the last layer takes, {self._n_features} numbers a row; got {features.shape[1]}."
            )

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.is_initialised)

    def set_extra_state(self, state: Tensor) -> None:
        self.is_initialised = bool(state)

    def extra_repr(self) -> str:
        return options_in_words(self)


GammaSign: TypeAlias = Literal["absolute", "relu", "softplus", "sigmoid", "min-max"]
_FIRST_SPREAD = 0.1  # of the score where γ does not grow in proportion to it


@final
class GammaNet(nn.Module):
    """A γ for each row from its features, by attention over as many prototypes as there are classes.

    Formula: γ = |s|, s = x̃ w / τ, x̃ = softmax(x A) Aᵀ

    The same A gives keys and values. τ only sets the scale of w, and with it how fast γ moves at a given learning rate.
    Nothing in the formula keeps γ small, so it is clipped; a γ at the limit has no slope and stays there until others
    move it.

    Args:
        n_features: d.
        n_classes: k, how many prototypes there are.
        temperature: τ.
        limit: The largest γ.
        sign: How γ is kept from being negative. ``absolute`` is the paper's eq. 4. It names the others and prints no
            formula; here they are such that s = 0 gives γ = 1: ``softplus`` log(1 + (e - 1) eˢ); ``sigmoid``
            limit / (1 + (limit - 1) e⁻ˢ), for a limit above 1; ``min-max`` 2 (s - min s) / (max s - min s) over the
            batch, with 1 in its middle. ``relu`` is max(s, 0).
        seed: Random seed of the initial parameters.

    Raises:
        InputError: If a number is out of range, or ``sign`` is unknown or does not go with the limit.

    Example:
        >>> net = GammaNet(8, 3)
        >>> net.initialise(torch.randn(32, 8))
        >>> tuple(net(torch.randn(5, 8)).shape)
        (5,)
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        temperature: float = 0.01,
        limit: float = 20.0,
        sign: GammaSign = "absolute",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_at_least(n_features, 1, "n_features")
        check_at_least(n_classes, 2, "n_classes")
        check_positive(temperature, "temperature")
        check_positive(limit, "limit")
        check_sign(sign, limit)
        self.temperature, self.limit, self.sign = temperature, limit, sign
        chance = torch.Generator().manual_seed(seed)
        # The paper does not say how they begin. Of this size a feature vector of unit entries gives scores around 1.
        spread = n_features**-0.5
        self.prototypes = nn.Parameter(spread * torch.randn(n_features, n_classes, generator=chance))
        self.weight = nn.Parameter(temperature * torch.randn(n_features, generator=chance))

    def forward(self, features: Tensor) -> Tensor:
        """γ of each row, (n,), from features (n, d)."""
        return self.unclipped(features).clamp(max=self.limit)

    def unclipped(self, features: Tensor) -> Tensor:
        """γ as the formula has it, (n,)."""
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
        # One row, or rows that are all alike, are in the middle.
        return torch.where(high > low, 2 * (score - low) / (high - low).clamp(min=torch.finfo(score.dtype).tiny), 1.0)

    def _score(self, features: Tensor) -> Tensor:
        attention = (features @ self.prototypes).softmax(dim=1)
        return (attention @ (self.prototypes.T @ self.weight)) / self.temperature

    @torch.no_grad()
    def initialise(self, features: Tensor) -> None:
        """Scale w so that γ is 1 on average over these rows, (n, d): the focal loss of γ = 1, to begin with.

        With ``softplus`` and ``sigmoid`` it is close to 1 for each of them; with ``min-max`` nothing is to be scaled.

        Raises:
            InputError: If the features are not finite, or give no γ at all.
        """
        # Differs from the paper, which says that γ begins at 1; by its formula and the usual first parameters it begins
        # anywhere between 0.06 and 2.6.
        if self.sign == "relu" and not bool((self._score(features) > 0).any()):
            self.weight.neg_()
        grows = self.sign in {"absolute", "relu"}
        size = float((self.unclipped(features) if grows else self._score(features).square()).mean())
        size = size if grows else math.sqrt(size) / _FIRST_SPREAD
        if not 0 < size < float("inf"):
            raise InputError(f"features must be finite for γ-Net to start from; its mean γ on them is {size}.")
        self.weight.div_(size)


def check_sign(sign: GammaSign, limit: float) -> None:
    """Refuse a way to keep γ from being negative that is unknown, or does not go with the limit.

    Raises:
        InputError: If so.
    """
    check_known(sign, get_args(GammaSign), "sign")
    if sign == "sigmoid" and limit <= 1:
        raise InputError(f"limit must be above 1 with sign='sigmoid', for γ to begin at 1; got {limit}.")


@final
class MetaFocalLoss(MetaLoss):
    """Focal loss whose γ a small network reads off each row's features, tuned on held-out rows.

    γ-Net is asked in training only; the network that is left is like any other. Look at how γ moved (it is written down
    every epoch) before crediting it: where it ends depends on the seed. For ResNet-18 on CIFAR-100 it did no better
    than a γ fixed at 1. That was tried with 40 of the paper's 350 epochs, 3 seeds, the last epoch's network, and this
    library's own choice of learning rate and of 2 times the cross-entropy beside the objective, none of which the paper
    gives; it does not speak against the paper's own result.

    Formula: mean of -(1 - p_y)^γ(x) log p_y, γ(x) by :class:`GammaNet`

    Args:
        objective: See :class:`MetaLoss`; ``sece`` is the paper's, ``dece`` and ``ce`` its variants.
        cross_entropy: See :class:`MetaLoss`. 0 is the paper's eq. 2, by which γ can run away to its limit, as a network
            that learns nothing more becomes no more sure; its Section 4.3 speaks of both, and meta-calibration's 2 is
            the default. Not with ``ce``.
        learning_rate: See :class:`MetaLoss`. The paper does not say; at meta-calibration's 1e-3, τ lets γ jump by whole
            numbers from step to step.
        schedule: See :class:`MetaLoss`.
        temperature: τ of γ-Net.
        limit: The largest γ.
        sign: How γ is kept from being negative; see :class:`GammaNet`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> loss = MetaFocalLoss()
        >>> loss.build(8, 3, seed=0)
        >>> features, labels = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
        >>> bool(loss(features, torch.zeros(4, 3), labels, torch.zeros(3, 8)) > 0)
        True
    """

    name: ClassVar[str] = "meta_focal"
    title: ClassVar[str] = "Focal loss with a learned gamma a row (gamma-Net)"
    paper: ClassVar[Paper] = Paper(
        "Wang & Golebiowski",
        2024,
        "Towards Unbiased Calibration using Meta-Regularization",
        "arXiv:2303.15057",
        "eq. 2-4",
    )

    def __init__(
        self,
        *,
        objective: MetaObjective | SECELoss | DECELoss = "sece",
        cross_entropy: float = 2.0,
        learning_rate: float = 1e-4,
        schedule: MetaSchedule = "constant",
        temperature: float = 0.01,
        limit: float = 20.0,
        sign: GammaSign = "absolute",
    ) -> None:
        super().__init__(
            objective=objective, cross_entropy=cross_entropy, learning_rate=learning_rate, schedule=schedule
        )
        self.temperature = check_positive(temperature, "temperature")
        self.limit = check_positive(limit, "limit")
        check_sign(sign, limit)
        self.sign = sign
        self.gamma_net: GammaNet | None = None

    def make(self, n_features: int, n_classes: int, *, seed: int) -> None:
        self.gamma_net = GammaNet(
            n_features, n_classes, temperature=self.temperature, limit=self.limit, sign=self.sign, seed=seed
        )

    @torch.no_grad()
    def gamma(self, features: Tensor) -> Tensor:
        """Return γ of each sample, (n,), from its features (n, d)."""
        return self._net(features)(features)

    def initialise(self, features: Tensor) -> None:
        """Scale γ-Net so that γ is 1 on average over these rows, (n, d)."""
        self._net(features).initialise(features)

    def rows(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return focal_weighted(log_losses(logits, labels), self._net(features)(features))

    @torch.no_grad()
    def describe(self, features: Tensor) -> dict[str, float]:
        """Mean and standard deviation of γ, and the share of rows at its limit."""
        gamma = self._net(features).unclipped(features).double()
        clipped = gamma.clamp(max=self.limit)
        return {
            "gamma_mean": float(clipped.mean()),
            "gamma_std": float(clipped.std(correction=0)),
            "gamma_clipped": float((gamma > self.limit).double().mean()),
        }

    @torch.no_grad()
    def doubt(self, features: Tensor) -> str | None:
        """That γ has run away to its limit."""
        above = float((self._net(features).unclipped(features) > self.limit).double().mean())
        if not above:
            return None
        advice = "" if self.objective == "ce" else ", or give it more cross_entropy"
        return (
            f"γ is above its limit for {above:.1%} of rows and cut off there, where it has no slope. Lower the loss's "
            f"learning_rate{advice}."
        )

    def _net(self, features: Tensor) -> GammaNet:
        self.check_built(features)
        assert self.gamma_net is not None
        return self.gamma_net
