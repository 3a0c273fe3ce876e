"""A head from a classifier's features to the log-odds of a correct prediction, alone and with its classifier."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from calibrant.checks import as_features, check_at_least
from calibrant.errors import InputError, one_line
from calibrant.inference import (
    HOW_TO_WRAP,
    SampleSource,
    StreamedSamples,
    check_batch_size,
    device_of,
    forward_errors,
    frozen,
    open_samples,
    read_checked,
    set_evaluating,
    to_device,
    with_features,
)
from calibrant.maps import FitSummary
from calibrant.numerics.softmax import sigmoid
from calibrant.predictions import Predictions, TopLabel

ChooseEpochBy: TypeAlias = Literal["aupr_error", "auroc", "mse"]

_ENOUGH_TO_WARN = 100  # held-out samples
_BLOCK = 1 << 14  # samples that the head takes at a time


def is_better(criterion: ChooseEpochBy, value: float, than: float) -> bool:
    """Return whether one value of the criterion beats another."""
    return value < than if criterion == "mse" else value > than


@final
@dataclass(frozen=True)
class ChosenEpoch:
    """The epoch that was kept, and why."""

    epoch: int  # from 1
    epochs: int  # that were run
    fine_tuned: int  # epochs of fine-tuning that were kept after it; 0 if none, or if they did not help
    criterion: ChooseEpochBy
    value: float  # on the held-out samples; as the best of all epochs it is optimistic
    softmax_value: float  # metric of the network's own confidence on the same samples
    held_out: int  # samples

    @property
    def beats_softmax(self) -> bool:
        return is_better(self.criterion, self.value, self.softmax_value)

    @property
    def warning(self) -> str | None:
        """Reason not to use the head, where enough held-out samples show that it does not help; otherwise None.

        Under ``mse`` they do not show it: for correct predictions the softmax confidence is the target itself.
        """
        if self.beats_softmax or self.criterion == "mse" or self.held_out < _ENOUGH_TO_WARN:
            return None
        return (
            f"the learned confidence separates errors no better than the softmax's ({self.criterion} {self.value:.3g} "
            f"against {self.softmax_value:.3g} on {self.held_out:,} held-out samples). Use the softmax, or give "
            "more samples that the network was not trained on."
        )

    def notes(self) -> tuple[str, ...]:
        against = f"{self.criterion} {self.value:.4g} against {self.softmax_value:.4g} of the softmax confidence"
        lines = [f"Epoch {self.epoch} of {self.epochs} is best on {self.held_out:,} held-out samples: {against}."]
        if self.fine_tuned:
            lines.append(f"{self.fine_tuned} epochs of fine-tuning followed.")
        if not self.beats_softmax:
            lines.append("It is no better than the softmax confidence there: the features add no information.")
        return tuple(lines)


@final
class ConfidenceHead(nn.Module):
    """Head from features to the log-odds of a correct prediction, (n, d) -> (n,): linear layers with ReLU between.

    It uses no logits and changes no prediction. :class:`LearnedConfidence` puts it behind the classifier.

    Args:
        n_features: Number of features, d.
        layers: Number of linear layers; the last has one output.
        units: Outputs of each layer but the last.
        seed: Random seed of the initial weights; the global generator is left alone.
    """

    def __init__(self, n_features: int, *, layers: int = 5, units: int = 400, seed: int = 0) -> None:
        super().__init__()
        self.n_features = check_at_least(n_features, 1, "n_features")
        self.units = check_at_least(units, 1, "units")
        check_at_least(layers, 1, "layers")
        sizes = [self.n_features, *[self.units] * (layers - 1), 1]
        # torch.manual_seed would also seed the GPUs, whose state fork_rng does not keep here.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.summary: FitSummary | None = None
        self.choice: ChosenEpoch | None = None

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor that are not weights."""
        return {"n_features": self.n_features, "layers": len(self.layers), "units": self.units}

    def forward(self, features: Tensor) -> Tensor:
        if features.shape[-1] != self.n_features:
            raise InputError(
                f"features must have {self.n_features} columns, as in the fit; got {features.shape[-1]}. Take them "
                "from the same layer of the same network."
            )
        values = features.to(next(self.parameters()).dtype)
        *hidden, last = self.layers
        for layer in hidden:
            values = layer(values).relu()
        return last(values).squeeze(-1)

    @torch.no_grad()
    def confidence(self, features: Tensor) -> Tensor:
        """Return the confidence, (n, d) -> (n,), float64: samples that float32 would round to 1.0 still differ."""
        return sigmoid(self(features).double())

    @torch.no_grad()
    def top_label(self, predictions: Predictions, features: object) -> TopLabel:
        """Return the classifier's predictions with this confidence; features are (n, d), from the layer of the fit."""
        checked = as_features(features, rows=len(predictions)).to(next(self.parameters()).device)
        log_odds = torch.cat([self(part) for part in checked.split(_BLOCK)]).double().to(predictions.logits.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds)


def check_head_sizes(weights: Mapping[str, Tensor], *, n_features: int, layers: int, units: int) -> None:
    """Check that stored weights are those of a head of these sizes, before a head of any size is created."""
    for name, size in {"n_features": n_features, "layers": layers, "units": units}.items():
        check_at_least(size, 1, name)
    wanted: dict[str, tuple[int, ...]] = {}
    for place, (a, b) in enumerate(pairwise([n_features, *[units] * min(layers - 1, len(weights)), 1])):
        wanted |= {f"layers.{place}.weight": (b, a), f"layers.{place}.bias": (b,)}
    if len(weights) != 2 * layers or {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise InputError(
            f"the weights must be those of {layers} layers of {units} units on {n_features} features; got others."
        )


@final
class LearnedConfidence(nn.Module):
    """Module from inputs to the classifier's own logits, (n, k), and the log-odds that it predicts correctly, (n,).

    The classifier is the module given, not a copy, and stays in its mode. In training mode dropout and batch statistics
    change the predictions: call ``eval()`` before use. :meth:`top_label` does so by itself.

    Args:
        model: The classifier, with ``features`` and ``head``.
        head: Head from features to log-odds.
        encoder: Fine-tuned copy whose features the head uses; None for those of the classifier.
    """

    def __init__(self, model: nn.Module, head: ConfidenceHead, *, encoder: nn.Module | None = None) -> None:
        super().__init__()
        with_features(model)
        if not isinstance(head, ConfidenceHead):
            raise InputError(f"head must be a ConfidenceHead, as ConfidNet fits it; got {type(head).__name__}.")
        if encoder is not None:
            with_features(encoder)
        self.model, self.head, self.encoder = model, head, encoder
        self.training = model.training

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if self.encoder is not None:
            return self.model(inputs), self.head(features_of(self.encoder, inputs))
        features = features_of(self.model, inputs)
        return with_features(self.model).head(features), self.head(features)

    @torch.no_grad()
    def confidence(self, inputs: Tensor) -> Tensor:
        """Return the confidence, (n, ...) -> (n,), float64."""
        with forward_errors(self.model, inputs):
            return sigmoid(self(inputs)[1].double())

    def top_label(self, data: object, *, batch_size: int = 512) -> TopLabel:
        """Return the classifier's predictions for labelled inputs with the learned confidence, in evaluation mode.

        Args:
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
            batch_size: Samples at a time; a loader has its own.
        """
        log_odds, correct = [], []
        source, device = sample_source(data), device_of(self.model)
        with frozen(self), torch.no_grad():
            for inputs, labels, _ in labelled_batches(source, device=device, batch_size=batch_size):
                with forward_errors(self.model, inputs):
                    logits, batch = self(inputs)
                log_odds.append(batch.double())
                correct.append(Predictions.from_logits(logits, labels).correct)
        joined = torch.cat(log_odds)
        return TopLabel(sigmoid(joined), torch.cat(correct), joined)


def encoder_copy(model: nn.Module, *, trained: bool) -> nn.Module:
    """Copy the network without its last layer, in evaluation mode; its weights take gradients if ``trained``."""
    try:
        # torch.compile keeps the network itself under this name.
        encoder = copy.deepcopy(getattr(model, "_orig_mod", model))
    except Exception as error:
        raise InputError(
            f"a network that is fine-tuned must let itself be copied; copying raised {one_line(error)}. Give "
            "fine_tune_epochs=0, or a network without what cannot be copied."
        ) from error
    encoder.head = nn.Identity()
    set_evaluating(encoder)
    for weights in encoder.parameters():
        weights.requires_grad_(trained and weights.is_floating_point())
    return encoder


def features_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the activations before the last layer, (n, d), checked for their shape."""
    features: object = with_features(model).features(inputs)
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"features must be real numbers of shape (n, d), a row an input; got {got}. {HOW_TO_WRAP}")
    if len(features) != len(inputs):
        raise InputError(
            f"features must have a row for each of {len(inputs)} inputs; got {len(features)}. {HOW_TO_WRAP}"
        )
    return features


def sample_source(data: object) -> SampleSource:
    """Open ``(inputs, labels)`` or a map-style ``Dataset``, read by number, or a ``DataLoader``, read in its order."""
    return StreamedSamples(data) if isinstance(data, DataLoader) else open_samples(data)


def labelled_batches(
    source: SampleSource, *, device: torch.device, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Read all samples: inputs and checked labels on the device, positions on the CPU; a loader has its own batches."""
    size = check_batch_size(batch_size)
    for inputs, labels, positions in read_checked(source, None if source.n_samples is None else size):
        yield to_device(inputs, device), labels.to(device), positions
