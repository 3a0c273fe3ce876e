"""What a loss that is learned on the way is: the loss of the training rows, and how held-out rows judge it."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias, get_args

from torch import Tensor, nn

from calibrant.checks import check_known, check_positive, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import options_in_words
from calibrant.losses.batch import Batch, full_precision
from calibrant.losses.dece import DECELoss
from calibrant.losses.log_loss import log_losses
from calibrant.losses.sece import SECELoss
from calibrant.paper import Paper

__all__ = ["MetaLoss", "MetaObjective"]

MetaObjective: TypeAlias = Literal["sece", "dece", "ce"]
_PENALTIES = {"sece": SECELoss, "dece": DECELoss}


class MetaLoss(nn.Module, ABC):
    """A loss of training rows with parameters φ that are tuned so that held-out rows come out better calibrated.

    It looks at features as well as logits, and so needs a network with a last layer of its own; see
    :class:`~calibrant.models.Network`. Its parameters do not exist before :meth:`build`.

    Args:
        objective: What held-out rows judge φ by: ``sece`` or ``dece``, two differentiable calibration errors, or
            ``ce``, the cross-entropy.
        cross_entropy: How much of the cross-entropy is added to that error. The error alone is also low for a network
            that knows nothing and says so.
        learning_rate: Of φ, by Adam.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]

    def __init__(self, *, objective: MetaObjective, cross_entropy: float, learning_rate: float) -> None:
        super().__init__()
        check_known(objective, get_args(MetaObjective), "objective")
        check_real_number(cross_entropy, "cross_entropy", least=0)
        check_positive(learning_rate, "learning_rate")
        self.objective = objective
        self.cross_entropy = cross_entropy
        self.learning_rate = learning_rate
        self._error = _PENALTIES[objective]() if objective in _PENALTIES else None

    @abstractmethod
    def build(self, n_features: int, n_classes: int, *, seed: int) -> None:
        """Make the parameters for a last layer of this size, replacing any there are."""

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
    def told(self, features: Tensor) -> dict[str, float]:
        """What is worth writing down of φ, as seen on some rows' features (n, d)."""

    def settle(self, features: Tensor) -> None:  # most have nothing to do
        """Bring φ to where training should begin, as seen on the first rows' features (n, d)."""

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

    def check_built(self, features: Tensor) -> None:
        """The parameters are there, and for features of this size.

        Raises:
            InputError: If not.
        """
        if not any(True for _ in self.parameters()):
            raise InputError(f"{self.name} must be built for a last layer before it is called: MetaRegulariser does.")
        if features.ndim != 2:
            raise InputError(f"features must have shape (n, d); got {tuple(features.shape)}. Pool or flatten them.")

    def extra_repr(self) -> str:
        return options_in_words(self)
