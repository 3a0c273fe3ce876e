"""The record of every epoch, the logits behind it, and the epoch at which every training sample was learned."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.inference import evaluating, with_features
from calibrant.metrics import accuracy, ece, nll
from calibrant.numerics.binning import lowest_error
from calibrant.numerics.inverse_temperature import fit_inverse_temperature
from calibrant.predictions import Predictions
from calibrant.training.data import StoredExamples

__all__ = [
    "EpochRecord",
    "HeldOutRecord",
    "LearningTrace",
    "features_of",
    "judge",
    "learned_epochs",
    "logits_of",
    "predict",
]

_ROWS = 2048  # in a batch


def predict(model: nn.Module, inputs: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Logits of all inputs, (n, k), on the inputs' device.

    Args:
        model: Is put into evaluation mode; then each module is back in its own.
        inputs: As the network takes them, (n, ...).
        batch_size: Rows at a time; memory grows with it.
    """
    with _looking(model):
        return torch.cat([model(batch) for batch in inputs.split(batch_size)])


def logits_of(model: nn.Module, examples: StoredExamples) -> Tensor:
    """Logits of stored rows, unaugmented, in float32 whatever the training multiplies in.

    A logit of 16 in bfloat16 is off by up to 0.03, which is no way to judge a confidence.

    Args:
        model: Is put into evaluation mode; then each module is back in its own.
        examples: On the network's device.
    """
    with _looking(model), _without_tf32():
        rows = torch.arange(len(examples), device=examples.labels.device).split(_ROWS)
        return torch.cat([model(examples.inputs.plain(some)) for some in rows])


def features_of(model: nn.Module, examples: StoredExamples) -> Tensor:
    """What the last layer sees of stored rows, (n, d), unaugmented, in float32 as :func:`logits_of`.

    Args:
        model: With ``features``; is put into evaluation mode; then each module is back in its own.
        examples: On the network's device.

    Raises:
        InputError: If the network has no features.
    """
    network = with_features(model)
    with _looking(model), _without_tf32():
        rows = torch.arange(len(examples), device=examples.labels.device).split(_ROWS)
        return torch.cat([network.features(examples.inputs.plain(some)) for some in rows])


@contextmanager
def _without_tf32() -> Iterator[None]:
    """On a GPU torch multiplies float32 in convolutions with ten bits, unless told not to."""
    flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


@contextmanager
def _looking(model: nn.Module) -> Iterator[None]:
    # Not compiled again for evaluation: the time that takes is not won back.
    with evaluating(model), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        yield


@final
class LearningTrace:
    """Which training rows were answered right after each epoch, unaugmented, and how high their top logit is now.

    Args:
        n: Training rows.
    """

    def __init__(self, n: int) -> None:
        check_at_least(n, 1, "n")
        self._n = n
        self._packed: list[np.ndarray] = []  # an epoch each, eight rows a byte
        self.max_logit = torch.zeros(n)

    def add(self, logits: Tensor, labels: Tensor) -> float:
        """Evaluate all training samples after an epoch, and return their accuracy.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,).
        """
        highest, predicted = logits.max(dim=1)
        correct = (predicted == labels).cpu().numpy()
        self._packed.append(np.packbits(correct))
        self.max_logit = highest.float().cpu()
        return float(correct.mean())

    @property
    def correct(self) -> Tensor:
        """Which rows were right after each epoch, (epochs, n), bool."""
        rows = [np.unpackbits(epoch, count=self._n) for epoch in self._packed]
        return torch.from_numpy(np.stack(rows)).bool() if rows else torch.zeros(0, self._n, dtype=torch.bool)

    def state(self) -> dict[str, Tensor]:
        """As a file can hold it."""
        empty = np.zeros((0, (self._n + 7) // 8), dtype=np.uint8)
        packed = torch.from_numpy(np.stack(self._packed) if self._packed else empty)
        return {"packed": packed, "max_logit": self.max_logit}

    def restore(self, state: dict[str, Tensor]) -> None:
        """As it was when :meth:`state` was called."""
        self._packed = list(state["packed"].numpy())
        self.max_logit = state["max_logit"].clone()


def learned_epochs(correct: Tensor) -> Tensor:
    """The first epoch from which each row is right at every one to the end; one more than there are if it is not.

    Args:
        correct: Whether each row was right after each epoch, (epochs, n).

    Returns:
        Epochs counted from 1, (n,), int64.

    Example:
        >>> learned_epochs(torch.tensor([[1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)).tolist()
        [3, 1, 4]
    """
    epochs = len(correct)
    right_to_the_end = correct.flip(0).long().cumprod(0).sum(0)
    return epochs + 1 - right_to_the_end


@final
@dataclass(frozen=True)
class HeldOutRecord:
    """How a network does on rows it was not trained on."""

    accuracy: float
    nll: float
    ece: float
    temperature: float | None  # the one with the lowest log-loss on these same rows; None where all logits are alike
    optimal_ece: float  # the lowest of any temperature, searched on these same rows: an oracle's answer
    max_logit: float  # mean over the rows


@final
@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run."""

    epoch: int  # counted from 1
    seconds: float
    learning_rate: float  # at the last step
    loss: float  # mean over the steps, of augmented and mixed rows
    accuracy: float  # of the same, in training mode
    held_out: Mapping[str, HeldOutRecord]  # empty after epochs in which nobody looked
    learned: Mapping[str, float] = field(default_factory=dict)  # of a loss that is learned, such as its mean γ
    training_accuracy: float | None = None  # unaugmented and in evaluation mode; only where a run is traced

    def as_dict(self) -> dict[str, Any]:
        """As a file can hold it."""
        values = asdict(self)
        if self.training_accuracy is None:
            del values["training_accuracy"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EpochRecord":
        """As read from a file.

        Raises:
            InputError: If what must be a number is none.
        """
        held_out = {name: HeldOutRecord(**part) for name, part in values["held_out"].items()}
        read = cls(**{**values, "held_out": held_out})
        check_at_least(read.epoch, 1, "epoch")
        plain = [value for name, value in values.items() if name not in {"held_out", "learned"}]
        parts = [value for part in held_out.values() for value in vars(part).values() if value is not None]
        for value in (*plain, *parts, *dict(read.learned).values()):
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InputError(f"what a record of an epoch holds must be numbers; got {value!r}.")
        return read


def judge(logits: Tensor, labels: Tensor) -> HeldOutRecord:
    """The numbers of one held-out part.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,).

    Raises:
        FitError: If the logits are not finite: the training has come apart.

    Example:
        >>> judge(4 * torch.eye(3), torch.arange(3)).accuracy
        1.0
    """
    if not bool(torch.isfinite(logits).all()):
        raise FitError(
            "the network's logits must stay finite; they are not. Lower the learning rate, or clip the gradient."
        )
    predictions = Predictions.from_logits(logits, labels)
    try:
        temperature = 1 / fit_inverse_temperature(logits, labels).beta
    except FitError:  # logits that are all alike, as of a network that has died
        temperature = None
    return HeldOutRecord(
        accuracy=float(accuracy(predictions)),
        nll=float(nll(predictions)),
        ece=float(ece(predictions)),
        temperature=temperature,
        optimal_ece=lowest_error(logits, labels, n_bins=15).error,
        max_logit=float(logits.amax(dim=1).double().mean()),
    )
