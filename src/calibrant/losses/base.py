"""Base classes of the losses, their checked batches, and the cross-entropy."""

import inspect
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, cast, final, get_args, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_known, check_labels, check_real_number
from calibrant.errors import InputError
from calibrant.paper import Paper

__all__ = [
    "NO_LABEL",
    "Batch",
    "ChangesWithEpoch",
    "CrossEntropyLoss",
    "Loss",
    "NeedsSamples",
    "PenalisedLoss",
    "Reduction",
    "RowLoss",
    "full_precision",
    "log_losses",
    "loss_settings",
    "options_in_words",
]

Reduction: TypeAlias = Literal["mean", "sum", "none"]
_TORCH_IGNORES = -100


@final
class Batch:
    """Checked rows of a batch, in working precision, and the way back to the shape the labels came in."""

    def __init__(self, logits: Tensor, labels: Tensor, kept: Tensor | None, shape: torch.Size) -> None:
        self.logits, self.labels, self._kept, self._shape = logits, labels, kept, shape
        self.is_empty = len(labels) == 0

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, *, owner: str, ignore_index: int | None, soft: bool) -> Self:
        """Check and flatten.

        Args:
            logits: Shape (n, k) or (n, k, ...).
            labels: Shape (n,) or (n, ...), or the logits'.
            owner: The name of the loss, for messages.
            ignore_index: The label of rows that do not count.
            soft: Whether the loss takes soft labels.
        """
        _check_shapes(logits, labels, owner=owner, soft=soft, ignore_index=ignore_index)
        logits = logits.float() if logits.dtype in {torch.float16, torch.bfloat16} else logits
        k, shape, soft = logits.shape[1], labels.shape, labels.is_floating_point()
        if logits.ndim > 2:
            logits = logits.movedim(1, -1).reshape(-1, k)
            labels = labels.movedim(1, -1).reshape(-1, k) if soft else labels.reshape(-1)
        if soft:
            return cls(logits, labels.to(logits.dtype), None, torch.Size([shape[0], *shape[2:]]))
        kept = None
        if ignore_index is not None:
            # As int64: a narrower type would take -100 for another number, 156 where it has no negative ones.
            kept = labels.long() != ignore_index
            logits, labels = logits[kept], labels[kept]
        # A look at the labels of a GPU would wait for it, and break a captured graph.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            labels = _checked_labels(labels, k)
        return cls(logits, labels.long(), kept, shape)

    def reduced(self, losses: Tensor, reduction: Reduction) -> Tensor:
        """The rows' losses as one number, or as one each in the shape of the labels."""
        if reduction == "none":
            if self._kept is not None:
                losses = losses.new_zeros(self._kept.shape).masked_scatter(self._kept, losses)
            return losses.reshape(self._shape)
        # Of a batch whose rows are all ignored the sum is 0, and so is the loss; its mean would be NaN.
        return losses.sum() if reduction == "sum" or self.is_empty else losses.mean()


def full_precision(logits: Tensor) -> AbstractContextManager[object]:
    """Keeps autocast out of a loss: it would multiply matrices of probabilities in half precision."""
    device = logits.device.type
    # Tensors without numbers know no autocast.
    is_on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def _checked_labels(labels: Tensor, k: int) -> Tensor:
    try:
        return check_labels(labels, k)
    except InputError as error:
        if not (labels.long() == _TORCH_IGNORES).any():
            raise
        raise InputError(
            f"{error} If {_TORCH_IGNORES} marks rows that do not count, as in torch, give the loss "
            f"ignore_index={_TORCH_IGNORES}."
        ) from error


def _check_shapes(logits: Tensor, labels: Tensor, *, owner: str, soft: bool, ignore_index: int | None) -> None:
    if logits.ndim < 2 or logits.numel() == 0 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise InputError(
            f"logits must be floating numbers of shape (n, k), with at least one row and two classes; "
            f"got {logits.dtype} of shape {tuple(logits.shape)}."
        )
    if labels.is_floating_point():
        if not soft:
            raise InputError(
                f"{owner} must have whole-numbered labels, (n,); got {labels.dtype} of shape {tuple(labels.shape)}. "
                "Of two labels mixed by mixup, take the mixed sum of two losses: Mixup does."
            )
        if ignore_index is not None:
            raise InputError("ignore_index must be None with soft labels, which no row has; drop those rows instead.")
    expected = logits.shape if labels.is_floating_point() else (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        raise InputError(
            f"labels must have shape {tuple(expected)} for logits of shape {tuple(logits.shape)}; "
            f"got {tuple(labels.shape)}."
        )


# No row's label. Torch's own functions ignore -100 unless told otherwise: where labels are not looked at, on a GPU or
# in a compiled loss, such rows would count as rows with a loss of 0.
NO_LABEL = -(2**62)


def log_losses(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """``-log p_y`` of each row, (n,); torch's to the bit, but that no label is ignored.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,), int64; or (n, k), soft.
        smoothing: The share of the uniform distribution that is mixed into the labels.

    Example:
        >>> import torch
        >>> log_losses(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0])).exp()
        tensor([4.])
    """
    return F.cross_entropy(logits, labels, reduction="none", ignore_index=NO_LABEL, label_smoothing=smoothing)


@runtime_checkable
class NeedsSamples(Protocol):
    """A loss that keeps something for each training sample, and so must know which ones a batch holds."""

    def remember(self, n_samples: int) -> None:
        """Make room for the samples 0..n_samples-1; called once, before the first batch and before loading a state."""

    def look_at(self, samples: Tensor) -> None:
        """Say which samples the next batches hold, (n,), int64.

        The tensor itself is kept, so that a loop that replays a captured graph can fill it anew for each batch.
        """


@runtime_checkable
class ChangesWithEpoch(Protocol):
    """A loss that is not the same in every epoch."""

    def begin_epoch(self, epoch: int) -> None:
        """Say that an epoch begins, counted from 0; what changes is a buffer, so that a captured graph sees it."""


class RowLoss(nn.Module, ABC):
    """A loss that each row has by itself, so that a batch's is their mean.

    Concrete ones keep each option of ``__init__`` in an attribute of the same name.

    Args:
        reduction: As in torch: ``mean`` or ``sum`` over the rows, or ``none`` for a number each.
        ignore_index: Rows with this label count for nothing; their number under ``none`` is 0. None means that every
            row counts.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]
    takes_soft_labels: ClassVar[bool] = False

    def __init__(self, *, reduction: Reduction = "mean", ignore_index: int | None = None) -> None:
        super().__init__()
        check_known(reduction, get_args(Reduction), "reduction")
        self.reduction = reduction
        self.ignore_index = _checked_index(ignore_index)

    @abstractmethod
    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row, (n,); called with checked rows, in float32 or better.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,), int64; or (n, k) where the loss takes soft labels.
        """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            logits: Shape (n, k), or (n, k, ...) as in torch.
            labels: Shape (n,) or (n, ...), whole numbers; or soft ones of the logits' shape, where the loss takes them.

        Raises:
            InputError: If the shapes do not fit, a label is out of range (seen on the CPU only), or soft labels are
                given to a loss that has no meaning for them.
        """
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=self.ignore_index, soft=self.takes_soft_labels)
        with full_precision(logits):
            return batch.reduced(self.rows(batch.logits, batch.labels), self.reduction)

    def extra_repr(self) -> str:
        return options_in_words(self)


class PenalisedLoss(nn.Module, ABC):
    """A base loss plus a penalty that belongs to the batch as a whole, such as an estimate of its calibration error.

    Args:
        weight: What the penalty is multiplied by; 0 leaves the base loss.
        base: The loss of each row; the cross-entropy if None.
        reduction: ``mean``, or ``sum``: the mean times the number of rows. There is no loss of each row.
        ignore_index: Rows with this label count for nothing. None means that every row counts.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]
    takes_soft_labels: ClassVar[bool] = False

    def __init__(
        self,
        *,
        weight: float,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:

        super().__init__()
        check_real_number(weight, "weight", least=0)
        check_known(reduction, ("mean", "sum"), f"the reduction of {self.name}, whose penalty no row has by itself,")
        if base is not None and not isinstance(base, RowLoss):
            raise InputError(f"base must be a loss of single rows, such as FocalLoss(); got {base!r}.")
        if base is not None and (base.reduction, base.ignore_index) != ("mean", None):
            raise InputError(
                f"the base of {self.name} must leave reduction and ignore_index to the loss around it; got "
                f"{base.reduction!r} and {base.ignore_index}. Give them to {self.name} instead."
            )
        self.weight = weight
        self.base = CrossEntropyLoss() if base is None else base
        self.reduction = reduction
        self.ignore_index = _checked_index(ignore_index)

    @abstractmethod
    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The penalty on a batch, a single number; called with checked rows, in float32 or better.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,), int64; or (n, k) where the loss takes soft labels.
        """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch; see :meth:`RowLoss.forward`."""
        soft = self.takes_soft_labels and self.base.takes_soft_labels
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=self.ignore_index, soft=soft)
        with full_precision(logits):
            loss = batch.reduced(self.base.rows(batch.logits, batch.labels), self.reduction)
            if self.weight == 0 or batch.is_empty:
                return loss
            size = len(batch.labels) if self.reduction == "sum" else 1
            return loss + self.weight * size * self.penalty(batch.logits, batch.labels)

    def extra_repr(self) -> str:
        return options_in_words(self)


Loss: TypeAlias = RowLoss | PenalisedLoss


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def loss_settings(loss: _Named) -> dict[str, Any]:
    """The name and options of a loss, as a file can hold them.

    Example:
        >>> from calibrant.losses import CrossEntropyLoss
        >>> loss_settings(CrossEntropyLoss())
        {'loss': 'ce', 'reduction': 'mean', 'ignore_index': None}
    """
    return {"loss": loss.name} | {name: _plain(getattr(loss, name)) for name in _options(loss)}


def _checked_index(ignore_index: int | None) -> int | None:
    if ignore_index is not None:
        check_at_least(ignore_index, -(2**63), "ignore_index")
    return ignore_index


def _options(loss: object) -> list[str]:
    return list(inspect.signature(type(loss)).parameters)


def _plain(value: object) -> Any:
    if isinstance(value, RowLoss | PenalisedLoss):
        return loss_settings(value)
    return [_plain(each) for each in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def options_in_words(loss: object) -> str:
    """The options of a loss, for its repr."""
    told = [name for name in _options(loss) if name not in {"base", "reduction", "ignore_index"}]
    return ", ".join(f"{name}={getattr(loss, name)!r}" for name in told)


@final
class CrossEntropyLoss(RowLoss):
    """Minus the logarithm of the probability given to the true class.

    Proper: its minimum is the true probability. On a network that can learn its training set by heart the minimum is
    certainty, so networks trained to the end are overconfident; a temperature removes most of that afterwards.

    Formula: -log p_y

    Example:
        >>> import torch
        >>> CrossEntropyLoss()(torch.zeros(3, 4), torch.tensor([0, 1, 3])).item() == torch.tensor(4.0).log().item()
        True
    """

    name: ClassVar[str] = "ce"
    title: ClassVar[str] = "Cross-entropy"
    paper: ClassVar[Paper] = Paper("Good", 1952, "Rational Decisions", "doi:10.1111/j.2517-6161.1952.tb00104.x")
    takes_soft_labels: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return log_losses(logits, labels)
