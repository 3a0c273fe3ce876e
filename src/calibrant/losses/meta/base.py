"""What a loss that is learned on the way is: the loss of the training rows, and how held-out rows judge it."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from calibrant.checks import check_known, check_positive, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import options_in_words
from calibrant.losses.batch import Batch, full_precision
from calibrant.losses.dece import DECELoss
from calibrant.losses.log_loss import log_losses
from calibrant.losses.sece import SECELoss
from calibrant.paper import Paper

__all__ = ["MetaLoss", "MetaObjective", "MetaSchedule"]

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
        learning_rate: Of φ, by Adam.
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
