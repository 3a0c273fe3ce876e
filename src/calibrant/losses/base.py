"""Base classes of the losses: their options, checked batches, reductions, and the cross-entropy."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    dataclass_transform,
    final,
    runtime_checkable,
)

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant import checks
from calibrant.errors import InputError
from calibrant.numerics.softmax import full_precision
from calibrant.paper import Paper

__all__ = [
    "ChangesWithEpoch", "CrossEntropyLoss", "Loss", "NeedsSamples", "PenalisedLoss", "Reduction", "RowLoss",
    "default_settings", "loss_settings",
]  # fmt: skip

_GOOD = Paper("Good", 1952, "Rational Decisions", "doi:10.1111/j.2517-6161.1952.tb00104.x")

Reduction: TypeAlias = Literal["mean", "sum", "none"]
_Index: TypeAlias = Annotated[int, partial(checks.check_at_least, least=-(2**63))]
_TORCH_IGNORES = -100


@final
class Batch:
    """Checked samples of a batch, (n, k), in float32 or better, and the shape that the labels came in."""

    def __init__(self, logits: Tensor, labels: Tensor, kept: Tensor | None, shape: torch.Size) -> None:
        self.logits, self.labels, self._kept, self._shape = logits, labels, kept, shape
        self.is_empty = len(labels) == 0

    @classmethod
    def of(
        cls, logits: Tensor, labels: Tensor, *, owner: str, ignore_index: int | None = None, soft: bool = False
    ) -> Self:
        """Check a batch, and flatten it to samples; see :meth:`RowLoss.forward`."""
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
        # Reading labels on a GPU would wait for it, and break a captured graph.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            labels = _checked_labels(labels, k)
        return cls(logits, labels.long(), kept, shape)

    def reduced(self, losses: Tensor, reduction: Reduction) -> Tensor:
        """Reduce the losses of the samples; ``none`` gives them the shape of the labels."""
        if reduction == "none":
            if self._kept is not None:
                losses = losses.new_zeros(self._kept.shape).masked_scatter(self._kept, losses)
            return losses.reshape(self._shape)
        # The sum over no sample is 0, and so is the loss; the mean would be NaN.
        return losses.sum() if reduction == "sum" or self.is_empty else losses.mean()


def _checked_labels(labels: Tensor, k: int) -> Tensor:
    try:
        return checks.check_labels(labels, k)
    except InputError as error:
        if not (labels.long() == _TORCH_IGNORES).any():
            raise
        raise InputError(
            f"{error} If {_TORCH_IGNORES} marks samples to leave out, as in torch, give the loss "
            f"ignore_index={_TORCH_IGNORES}."
        ) from error


def _check_shapes(logits: Tensor, labels: Tensor, *, owner: str, soft: bool, ignore_index: int | None) -> None:
    if not isinstance(logits, Tensor) or not isinstance(labels, Tensor):
        got = f"{type(logits).__name__} and {type(labels).__name__}"
        raise InputError(f"logits and labels must be tensors; got {got}. Of a larger output give its logits alone.")
    if logits.ndim < 2 or logits.numel() == 0 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise InputError(
            f"logits must be floating numbers of shape (n, k), with at least one sample and two classes; "
            f"got {logits.dtype} of shape {tuple(logits.shape)}."
        )
    if labels.is_floating_point():
        if not soft:
            raise InputError(
                f"{owner} must have whole-numbered labels, (n,); got {labels.dtype} of shape {tuple(labels.shape)}. "
                "For labels mixed by mixup, take the weighted sum of two losses, as Mixup does."
            )
        if ignore_index is not None:
            raise InputError("ignore_index must be None with soft labels, which cannot equal it; drop samples instead.")
    expected = logits.shape if labels.is_floating_point() else (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        raise InputError(
            f"labels must have shape {tuple(expected)} for logits of {tuple(logits.shape)}; got {tuple(labels.shape)}."
        )


# A label that no sample has. Torch's own functions ignore -100 by default: where labels are not checked, on a GPU or in
# a compiled loss, such samples would count with a loss of 0.
NO_LABEL = -(2**62)


def log_losses(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Return ``-log p_y`` of each sample, (n,): torch's cross-entropy to the bit, except that no label is ignored.

    Example:
        >>> log_losses(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0])).exp()
        tensor([4.])
    """
    return F.cross_entropy(logits, labels, reduction="none", ignore_index=NO_LABEL, label_smoothing=smoothing)


def entropies(log_probs: Tensor) -> Tensor:
    """Return the entropy of each sample in nats, (n,), from ``log_probs`` (n, k), -inf where a class is masked."""
    # e^-1000 is 0 in every type, so the bound changes no term but that of -inf, where 0 times infinity is NaN.
    return -(log_probs.exp() * log_probs.clamp(min=-1000.0)).sum(1)


class TopPredictions(NamedTuple):
    """Probabilities of a batch, and confidence and correctness of its predictions."""

    probs: Tensor  # (n, k)
    confidence: Tensor  # (n,)
    correct: Tensor  # (n,) of 0 and 1, in the type of the logits

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Self:
        probs = logits.softmax(1)
        # By the logits: two large probabilities can be equal in floating point where their logits are not.
        predicted = logits.argmax(1)
        confidence = probs.gather(1, predicted[:, None])[:, 0]
        return cls(probs, confidence, (predicted == labels).to(logits.dtype))


@runtime_checkable
class NeedsSamples(Protocol):
    """A loss that keeps a value for each training sample, and needs to know which samples a batch holds."""

    def remember(self, n_samples: int) -> None:
        """Allocate for the samples 0..n_samples-1; called once, before the first batch and before loading a state."""

    def look_at(self, samples: Tensor) -> None:
        """Set the samples of the next batches, (n,), int64; kept uncopied, for a captured graph's loop to refill it."""


@runtime_checkable
class ChangesWithEpoch(Protocol):
    """A loss that is not the same in every epoch."""

    def begin_epoch(self, epoch: int) -> None:
        """Begin an epoch, counted from 0. What changes is a buffer, so that a captured graph sees the change."""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class NamedLoss:
    """What all losses share: a name, a title, a paper, and options that are declared as dataclass fields.

    Facts are keywords of the class, ``class Mine(RowLoss, name="mine", ...)``, or attributes in its body.
    Each annotated field of a subclass is an option: a keyword of ``__init__`` and an attribute of the same name, which
    is checked against its type (:func:`~calibrant.checks.check_options`). ``__post_init__`` checks everything else and
    registers buffers; annotate a buffer as ``field(init=False)``. A subclass with an ``__init__`` of its own works too.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[Paper]

    if not TYPE_CHECKING:  # type checkers and editors are to show the options, which __init__ has

        def __new__(cls, *given: object, **_: object) -> Self:
            if given and all(one.kind is one.KEYWORD_ONLY for one in inspect.signature(cls).parameters.values()):
                call = f"{cls.__name__}({next(iter(_options(cls)))}={given[0]!r})"
                raise InputError(f"options of {cls.__name__} must be given by name; got {given[0]!r}. Write {call}.")
            loss = super().__new__(cls)
            nn.Module.__init__(loss)  # first: an option may be a module
            return loss

    def __init_subclass__(cls, **facts: object) -> None:
        super().__init_subclass__()
        checks.set_facts(cls, facts)
        if "__init__" in vars(cls):
            return
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        # A default that stays on the class would hide a module of that name in the instance.
        for option in set(inspect.signature(cls).parameters) & set(vars(cls)):
            delattr(cls, option)

    def __post_init__(self) -> None:
        checks.check_options(self)

    def extra_repr(self) -> str:
        options = (name for name in _options(type(self)) if name not in _SHARED)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in options)


class RowLoss(NamedLoss, nn.Module, ABC):
    """Base class of the losses that are defined for each sample by itself; the loss of a batch is their mean.

    Args:
        reduction: As in torch: ``mean`` or ``sum`` over the samples, or ``none`` for a loss per sample.
        ignore_index: Samples with this label are left out; under ``none`` their loss is 0. None keeps all samples.
        class_weights: A weight for each class, by which the losses of its samples are multiplied; the mean is then a
            weighted one, as in torch. A soft label has the mean of its classes' weights. None weighs all alike.

    Example:
        >>> logits, labels = torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> ours = CrossEntropyLoss(class_weights=(1.0, 5.0))(logits, labels)
        >>> torch.equal(ours, F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 5.0])))
        True
    """

    takes_soft_labels: ClassVar[bool] = False

    reduction: Reduction = "mean"
    ignore_index: _Index | None = None
    class_weights: tuple[checks.NonNegative, ...] | None = None

    def __post_init__(self) -> None:
        weights = self.class_weights
        # Torch's and NumPy's numbers become Python's own, which a file can hold.
        self.class_weights = getattr(weights, "tolist", lambda: weights)()
        super().__post_init__()
        if weights is not None and not any(self.class_weights or ()):
            raise InputError(f"class_weights must have one above 0; got {self.class_weights}.")
        buffer = None if weights is None else torch.tensor(self.class_weights, dtype=torch.float64)
        self.register_buffer("_weights", buffer, persistent=False)

    @final
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return super()._apply(checks.or_in_float32(fn), recurse)  # type: ignore[no-untyped-call]

    @abstractmethod
    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, (n,), from checked logits (n, k), in float32 or better, and labels.

        Labels are (n,), int64; or (n, k) where the loss takes soft labels.
        """

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: Shape (n, k), or (n, k, ...) as in torch.
            labels: Shape (n,) or (n, ...), whole numbers, whose range is checked on the CPU only; or soft ones of the
                logits' shape, where the loss takes them.
        """
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=self.ignore_index, soft=self.takes_soft_labels)
        with full_precision(logits):
            return self.reduced(batch, self.reduction)

    @final
    def reduced(self, batch: Batch, reduction: Reduction) -> Tensor:
        """Return the loss of a batch from those of its samples, weighted by their classes if there are weights."""
        losses = self.rows(batch.logits, batch.labels)
        if self.class_weights is None:
            return batch.reduced(losses, reduction)
        if len(self.class_weights) != batch.logits.shape[1]:
            raise InputError(
                f"class_weights must have {batch.logits.shape[1]} numbers, one a class; got {len(self.class_weights)}."
            )
        of_classes = torch.as_tensor(self._weights).to(losses)
        weights = batch.labels @ of_classes if batch.labels.is_floating_point() else of_classes[batch.labels]
        total = batch.reduced(weights * losses, "sum" if reduction == "mean" else reduction)
        return total if reduction != "mean" or batch.is_empty else total / weights.sum()


@final
class CrossEntropyLoss(RowLoss, name="ce", title="Cross-entropy", paper=_GOOD, takes_soft_labels=True):
    """Minus the logarithm of the probability of the true class.

    Proper: its minimum is the true probability. For a network that can memorise its training set the minimum is
    certainty, so networks trained to the end are overconfident; a temperature removes most of that afterwards.

    Formula: -log p_y

    Example:
        >>> CrossEntropyLoss()(torch.zeros(3, 4), torch.tensor([0, 1, 3])).item() == torch.tensor(4.0).log().item()
        True
    """

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return log_losses(logits, labels)


class PenalisedLoss(NamedLoss, nn.Module, ABC):
    """Base class of a loss of samples plus a penalty on the batch, such as an estimate of its calibration error.

    Args:
        weight: Weight of the penalty; 0 leaves the base loss.
        base: Loss of the samples; the cross-entropy if None.
        reduction: ``mean``, or ``sum``: the mean times the number of samples. There is no loss per sample.
        ignore_index: Samples with this label are left out. None keeps all samples.
    """

    takes_soft_labels: ClassVar[bool] = False

    weight: checks.NonNegative
    base: RowLoss | None = None
    reduction: Literal["mean", "sum"] = "mean"
    ignore_index: _Index | None = None

    def __post_init__(self) -> None:
        words = f"the reduction of {self.name}, whose penalty is not defined per sample,"
        checks.check_known(self.reduction, ("mean", "sum"), words)
        super().__post_init__()
        self.base = self.base or CrossEntropyLoss()
        if not isinstance(self.base, RowLoss):
            raise InputError(f"base must be a loss of single samples, such as FocalLoss(); got {self.base!r}.")
        if (self.base.reduction, self.base.ignore_index) != ("mean", None):
            raise InputError(
                f"the base of {self.name} must leave reduction and ignore_index to the loss around it; got "
                f"{self.base.reduction!r} and {self.base.ignore_index}. Give them to {self.name} instead."
            )

    @abstractmethod
    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the penalty on a batch, a single number; called as :meth:`RowLoss.rows`."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a batch; see :meth:`RowLoss.forward`."""
        assert self.base is not None, "__post_init__ sets it"
        soft = self.takes_soft_labels and self.base.takes_soft_labels
        batch = Batch.of(logits, labels, owner=self.name, ignore_index=self.ignore_index, soft=soft)
        with full_precision(logits):
            loss = self.base.reduced(batch, self.reduction)
            if self.weight == 0 or batch.is_empty:
                return loss
            size = len(batch.labels) if self.reduction == "sum" else 1
            return loss + self.weight * size * self.penalty(batch.logits, batch.labels)


Loss: TypeAlias = RowLoss | PenalisedLoss
_SHARED = ("base", "reduction", "ignore_index", "class_weights")


def loss_settings(loss: NamedLoss) -> dict[str, Any]:
    """Return the name and the options of a loss, as a file can hold them.

    Example:
        >>> loss_settings(CrossEntropyLoss())
        {'loss': 'ce', 'reduction': 'mean', 'ignore_index': None}
    """
    return {"loss": loss.name} | _given({name: _plain(getattr(loss, name)) for name in _options(type(loss))})


def default_settings(kind: type[NamedLoss]) -> dict[str, Any]:
    """Return :func:`loss_settings` of a loss with its default options, without building one."""
    settings = {"loss": kind.name} | _given({name: _plain(default) for name, default in _options(kind).items()})
    return settings | ({"base": default_settings(CrossEntropyLoss)} if settings.get("base", ...) is None else {})


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out class weights of None, so that settings without them stay the same."""
    return {name: value for name, value in settings.items() if name != "class_weights" or value is not None}


def _options(kind: type[NamedLoss]) -> dict[str, Any]:
    """Return the options of a loss and their defaults, its own first."""
    parameters = inspect.signature(kind).parameters.values()
    return {option.name: option.default for option in sorted(parameters, key=lambda option: option.name in _SHARED)}


def _plain(value: object) -> Any:
    if isinstance(value, NamedLoss):
        return loss_settings(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
