"""The record of every epoch, its logits, and the epoch at which every training sample was learned."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.inference import evaluating, extract_logits, forward_errors, with_features
from calibrant.metrics import accuracy, ece, nll
from calibrant.numerics.binning import lowest_error
from calibrant.numerics.inverse_temperature import fit_inverse_temperature
from calibrant.predictions import Predictions
from calibrant.training.data import StoredSamples


def predict(model: nn.Module, inputs: Tensor, *, batch_size: int = 1024) -> Tensor:
    """Return the logits of all inputs, (n, k), on the inputs' device.

    Args:
        model: Runs in evaluation mode; afterwards each module is in its own mode again.
        inputs: Inputs of the network, (n, ...).
        batch_size: Samples at a time; memory grows with it.
    """
    batches = inputs.split(check_at_least(batch_size, 1, "batch_size"))
    with _evaluating(model), forward_errors(model, inputs):
        return torch.cat([extract_logits(model(batch)) for batch in batches])


def logits_of(model: nn.Module, samples: StoredSamples, *, exact: bool = True) -> Tensor:
    """Return the logits of stored samples, unaugmented, in float32 whatever the precision of the training.

    A logit of 16 in bfloat16 is off by up to 0.03, too much to evaluate a confidence. If they need not be ``exact``, a
    GPU may round the factors of convolutions to ten bits: a ResNet-32 on an H200 takes a fifth of the time.
    """
    return _outputs_of(model, model, samples, exact=exact)


def features_of(model: nn.Module, samples: StoredSamples) -> Tensor:
    """Return the features of stored samples, (n, d), unaugmented, in float32 as :func:`logits_of`."""
    return _outputs_of(model, with_features(model).features, samples)


def _outputs_of(
    model: nn.Module, call: Callable[[Tensor], Tensor], samples: StoredSamples, *, exact: bool = True
) -> Tensor:
    with _evaluating(model), _plain_convolutions(exact=exact):
        if not (exact and samples.labels.is_cuda):
            return torch.cat([call(inputs) for inputs in samples.batches()])
        with _contiguous_weights(model):
            return torch.cat([call(inputs.contiguous()) for inputs in samples.batches()])


@contextmanager
def _contiguous_weights(model: nn.Module) -> Iterator[None]:
    """Hold the weights of convolutions as they are indexed, not channels last.

    Full float32 on an H200 takes 0.37 of the time in a ResNet-32 or -110, and as long in a ResNet-18 or VGG-16.
    """
    held = [(weight, weight.data) for weight in model.parameters() if weight.dim() == 4]
    try:
        for weight, data in held:
            weight.data = data.contiguous()
        yield
    finally:
        for weight, data in held:  # the same memory: a recorded step writes to it
            weight.data = data


@contextmanager
def _plain_convolutions(*, exact: bool) -> Iterator[None]:
    """Multiply float32 in full if ``exact``, where convolutions on a GPU else use ten bits, and time no algorithms.

    Timing them is for steps that are repeated: it is done again in every thread, and for every size of a last batch.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = False, cudnn.allow_tf32 and not exact, False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = flags


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    # Not compiled again for evaluation: the compilation would take longer than it saves.
    with evaluating(model), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        yield


@final
class LearningTrace:
    """Which of ``n`` training samples were correct after each epoch, unaugmented, and their last largest logit."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._packed: list[np.ndarray] = []  # one per epoch, eight samples a byte
        self.max_logit = torch.zeros(n)

    def add(self, logits: Tensor, labels: Tensor) -> float:
        """Add an epoch, and return the accuracy; from the logits (n, k) and labels (n,) of all training samples."""
        highest, predicted = logits.max(dim=1)
        correct = (predicted == labels).cpu().numpy()
        self._packed.append(np.packbits(correct))
        self.max_logit = highest.float().cpu()
        return float(correct.mean())

    @property
    def correct(self) -> Tensor:
        """Which samples were correct after each epoch, (epochs, n), bool."""
        epochs = [np.unpackbits(epoch, count=self._n) for epoch in self._packed]
        return torch.from_numpy(np.stack(epochs)).bool() if epochs else torch.zeros(0, self._n, dtype=torch.bool)

    def state(self) -> dict[str, Tensor]:
        """Return the trace as tensors to save."""
        empty = np.zeros((0, (self._n + 7) // 8), dtype=np.uint8)
        packed = torch.from_numpy(np.stack(self._packed) if self._packed else empty)
        return {"packed": packed, "max_logit": self.max_logit}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore a :meth:`state`."""
        self._packed = list(state["packed"].numpy())
        self.max_logit = state["max_logit"].clone()


def learned_epochs(correct: Tensor) -> Tensor:
    """Return the first epoch from which each sample is correct to the end; one more than there are if it never is.

    Args:
        correct: Whether each sample was correct after each epoch, (epochs, n). The result counts epochs from 1.

    Example:
        >>> learned_epochs(torch.tensor([[1, 1, 0], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)).tolist()
        [3, 1, 4]
    """
    return len(correct) + 1 - correct.flip(0).long().cumprod(0).sum(0)


@final
@dataclass(frozen=True)
class HeldOutRecord:
    """Metrics of a network on samples that it was not trained on; the ECE is that of the predicted class."""

    accuracy: float
    nll: float
    ece: float
    temperature: float | None  # with the lowest log-loss on these same samples; None where all logits are equal
    optimal_ece: float  # the lowest of any temperature on these same samples: that of an oracle
    max_logit: float  # mean over the samples


@final
@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a run."""

    epoch: int  # counted from 1
    seconds: float
    learning_rate: float  # at the last step
    loss: float  # mean over the steps, on augmented and mixed samples
    accuracy: float  # on the same, in training mode
    held_out: Mapping[str, HeldOutRecord]  # empty after epochs without an evaluation
    learned: Mapping[str, float] = field(default_factory=dict)  # numbers of a meta-learned loss, such as its mean γ
    training_accuracy: float | None = None  # unaugmented and in evaluation mode; only if a run is traced

    def as_dict(self) -> dict[str, Any]:
        """Return plain data to write to a file."""
        values = asdict(self)
        if self.training_accuracy is None:
            del values["training_accuracy"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "EpochRecord":
        """Read :meth:`as_dict`; an InputError if a value is not a number."""
        held_out = {name: HeldOutRecord(**part) for name, part in values["held_out"].items()}
        record = cls(**{**values, "held_out": held_out})
        check_at_least(record.epoch, 1, "epoch")
        plain = [value for name, value in values.items() if name not in {"held_out", "learned"}]
        parts = [value for part in held_out.values() for value in vars(part).values() if value is not None]
        for value in (*plain, *parts, *dict(record.learned).values()):
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InputError(f"the values of an epoch's record must be numbers; got {value!r}.")
        return record


def evaluate_held_out(logits: Tensor, labels: Tensor) -> HeldOutRecord:
    """Evaluate held-out samples from their logits (n, k) and labels (n,); a FitError if the training has diverged."""
    if not bool(torch.isfinite(logits).all()):
        raise FitError("the logits must stay finite; they are not. Lower the learning rate, or clip the gradient.")
    predictions = Predictions.from_logits(logits, labels)
    logits, labels = predictions.logits, predictions.labels  # where float64 is
    try:
        temperature = 1 / fit_inverse_temperature(logits, labels).beta
    except FitError:  # all logits are equal, as of a network that has collapsed
        temperature = None
    return HeldOutRecord(
        accuracy=accuracy(predictions),
        nll=nll(predictions),
        ece=ece(predictions),
        temperature=temperature,
        optimal_ece=lowest_error(logits, labels, n_bins=15).error,
        max_logit=float(logits.amax(dim=1).double().mean()),
    )
