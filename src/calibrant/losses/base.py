"""What a loss is: rows judged one by one, or a base loss of rows with a penalty on the batch as a whole."""

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast, get_args

from torch import Tensor, nn

from calibrant.checks import check_at_least, check_known, check_real_number
from calibrant.errors import InputError
from calibrant.losses.batch import Batch, Reduction, full_precision
from calibrant.paper import Paper

__all__ = ["Loss", "PenalisedLoss", "Reduction", "RowLoss", "loss_settings", "options_in_words"]


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
        from calibrant.losses.cross_entropy import CrossEntropyLoss

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
