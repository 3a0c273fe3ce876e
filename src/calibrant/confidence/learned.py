"""Confidence from the features of a frozen classifier: heads, the classifier with one, and the softmax beside it.

A head gives the log-odds of a correct prediction from features; with its classifier it does so from inputs.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.checks import as_features, check_at_least, check_labels, where_float64_is
from calibrant.errors import InputError, Row, check_kind, one_line
from calibrant.evidence import Difference, Estimate, PairedBootstrap, corrected_differences, estimate
from calibrant.inference import (
    HOW_TO_WRAP,
    NAME_LAYER,
    SampleSource,
    check_float64,
    device_of,
    extract_logits,
    features_of,
    find_layer,
    forward_errors,
    frozen,
    labelled_batches,
    logits_and_features,
    sample_source,
    set_evaluating,
    with_features,
)
from calibrant.maps import FitSummary
from calibrant.metrics import AURC, AUROC, FPR95, AUPRError
from calibrant.numerics.softmax import sigmoid
from calibrant.predictions import Predictions, TopLabel, check_predictions

ChooseEpochBy: TypeAlias = Literal["aupr_error", "auroc", "mse"]

SOFTMAX = "softmax"
METRICS = (AUROC(), AUPRError(), FPR95(), AURC())
_ENOUGH_TO_WARN = 100  # held-out samples
_BLOCK = 1 << 14  # samples that the head takes at a time
_TRIED = 8  # samples on which the network is checked


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


class FeatureConfidence(nn.Module, ABC):
    """Base class of what is fitted on features: a confidence in each prediction, as log-odds."""

    summary: FitSummary | None

    @abstractmethod
    def log_odds(self, features: Tensor, predicted: Tensor) -> Tensor:
        """Return the log-odds, (n,), that the predicted classes (n,) of samples with features (n, d) are correct."""

    @final
    @torch.no_grad()
    def top_label(self, predictions: Predictions, features: object) -> TopLabel:
        """Return the classifier's predictions with this confidence; features are (n, d), from the layer of the fit.

        That of a trust score is score / (1 + score), the distance to the nearest other class over the sum of both. It
        orders samples as the score does and is above one half where the predicted class is nearest, but it is **no
        probability**: its calibration errors mean nothing unless a map is fitted on it; refinement (AUROC, AUPR, AURC)
        is meaningful.
        """
        check_predictions(predictions, "top_label")
        checked = as_features(features, rows=len(predictions)).to(device_of(self))
        log_odds = where_float64_is(self.log_odds(checked, predictions.predicted)).double().to(predictions.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds, predictions.weights)


@final
class ConfidenceHead(FeatureConfidence):
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
        self.summary = None
        self.choice: ChosenEpoch | None = None

    def settings(self) -> dict[str, Any]:
        return {"n_features": self.n_features, "layers": len(self.layers), "units": self.units}

    def forward(self, features: Tensor) -> Tensor:
        check_kind(features, Tensor, "features", "Pass torch.as_tensor(features); confidence(features) takes arrays.")
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

    def log_odds(self, features: Tensor, predicted: Tensor) -> Tensor:
        """Return :meth:`forward` of the features, in blocks; the prediction is not used."""
        del predicted
        return torch.cat([self(part) for part in features.split(_BLOCK)])

    @torch.no_grad()
    def confidence(self, features: object) -> Tensor:
        """Return the confidence, (n, d) -> (n,), float64: samples that float32 would round to 1.0 still differ."""
        return sigmoid(where_float64_is(self(as_features(features).to(next(self.parameters()).device))).double())


def check_head_sizes(weights: Mapping[str, Tensor], *, n_features: int, layers: int, units: int) -> None:
    """Check that stored weights are those of a head of these sizes, before a head of any size is created."""
    for name, size in {"n_features": n_features, "layers": layers, "units": units}.items():
        check_at_least(size, 1, name)
    wanted: dict[str, tuple[int, ...]] = {}
    for place, (a, b) in enumerate(pairwise([n_features, *[units] * min(layers - 1, len(weights)), 1])):
        wanted |= {f"layers.{place}.weight": (b, a), f"layers.{place}.bias": (b,)}
    if len(weights) != 2 * layers or {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise InputError(f"weights must be of {layers} layers of {units} units on {n_features} features; got others.")


@final
class LearnedConfidence(nn.Module):
    """Module from inputs to the classifier's own logits, (n, k), and the log-odds that it predicts correctly, (n,).

    The classifier is the module given, not a copy, and stays in its mode. In training mode dropout and batch statistics
    change the predictions: call ``eval()`` before use. :meth:`top_label` does so by itself.

    Args:
        model: The classifier, with ``features`` and ``head`` unless a layer is named.
        head: What ConfidNet or TrustScore fitted on the features; log-odds of a trust score are its logarithm.
        encoder: Fine-tuned copy whose features the head uses; None for those of the classifier.
        layer: Name of the layer of the classifier whose inputs are the features; None for ``features``.
    """

    def __init__(
        self, model: nn.Module, head: FeatureConfidence, *, encoder: nn.Module | None = None, layer: str | None = None
    ) -> None:
        super().__init__()
        if not isinstance(head, FeatureConfidence):
            raise InputError(f"head must be what ConfidNet or TrustScore fitted; got {type(head).__name__}.")
        for network in (model,) if encoder is None else (model, encoder):
            _check_has_features(network, layer)
        self.model, self.head, self.encoder, self.layer = model, head, encoder, layer
        self.training = model.training

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if self.encoder is not None:
            logits, features = extract_logits(self.model(inputs)), features_of(self.encoder, inputs, self.layer)
        else:
            logits, features = logits_and_features(self.model, inputs, self.layer)
        return logits, self.head.log_odds(features, logits.argmax(dim=1))

    @torch.no_grad()
    def confidence(self, inputs: Tensor) -> Tensor:
        with forward_errors(self.model, inputs):
            return sigmoid(where_float64_is(self(inputs)[1]).double())

    def top_label(self, data: object, *, batch_size: int = 512) -> TopLabel:
        """Return the classifier's predictions for labelled inputs with the learned confidence, in evaluation mode.

        Args:
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
            batch_size: Samples at a time; a loader has its own.
        """
        batches = _outputs(self, self.model, data, batch_size)
        parts = [(batch, Predictions.from_logits(logits, labels).correct) for (logits, batch), labels in batches]
        log_odds, correct = (where_float64_is(torch.cat(column)) for column in zip(*parts, strict=True))
        return TopLabel(sigmoid(log_odds.double()), correct, log_odds.double())


def _outputs(network: nn.Module, model: nn.Module, data: object, batch_size: int = 512) -> Iterator[tuple[Any, Tensor]]:
    """Yield the output of the frozen network and the labels for every batch of labelled inputs."""
    with frozen(network), torch.no_grad():
        for inputs, labels, _ in labelled_batches(sample_source(data), device=device_of(model), batch_size=batch_size):
            with forward_errors(model, inputs):
                outputs = network(inputs)
            yield outputs, labels


def encoder_copy(model: nn.Module, *, trained: bool, layer: str | None = None) -> nn.Module:
    """Copy the network without its last layer, in evaluation mode; its weights take gradients if ``trained``.

    The last layer is ``head``, or the ``layer`` whose inputs are the features; layers behind it are not needed.
    """
    try:
        encoder = copy.deepcopy(getattr(model, "_orig_mod", model))  # where torch.compile keeps the network itself
    except Exception as error:
        raise InputError(
            f"a network that is fine-tuned must let itself be copied; copying raised {one_line(error)}. Give "
            "fine_tune_epochs=0, or a network without what cannot be copied."
        ) from error
    above, _, name = (layer or "head").rpartition(".")
    setattr(encoder.get_submodule(above), name, nn.Identity())
    set_evaluating(encoder)
    for weights in encoder.parameters():
        weights.requires_grad_(trained and weights.is_floating_point())
    return encoder


def feature_batches(
    model: nn.Module, source: SampleSource, *, batch_size: int, layer: str | None = None
) -> Iterator[tuple[Predictions, Tensor]]:
    """Run the frozen network over all samples: yield predictions and features (m, d), checked, of every batch."""
    _check_has_features(model, layer)
    check_float64(model)
    is_first = True
    with frozen(model), torch.no_grad():
        for inputs, labels, positions in labelled_batches(source, device=device_of(model), batch_size=batch_size):
            try:
                if is_first:
                    _check_features_lead_to_logits(model, inputs[:_TRIED], layer)
                is_first = False
                logits, features = logits_and_features(model, inputs, layer)
                features = as_features(features)
                predictions = Predictions.from_logits(logits, check_labels(labels, logits.shape[1]))
            except InputError as error:
                if error.argument is not None:  # it is about the network or its layer
                    raise
                args = (Row(int(positions[one.number])) if isinstance(one, Row) else one for one in error.args)
                raise InputError(*args) from error
            yield predictions, features


def _check_has_features(model: nn.Module, layer: str | None) -> None:
    with_features(model, *NAME_LAYER) if layer is None else find_layer(model, layer)


def _check_features_lead_to_logits(model: nn.Module, inputs: Tensor, layer: str | None) -> None:
    """Check on a few inputs that a network has features, and logits that follow from them where it has a ``head``."""
    with forward_errors(model, inputs):
        through, features = logits_and_features(model, inputs, layer)
        as_features(features)
        whole = through if layer is not None else model(inputs)
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2:
        got = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else type(whole).__name__
        raise InputError(f"a network must return logits of shape (n, k), at least two classes; got {got}.")
    near = torch.finfo(whole.dtype).eps ** 0.5 * (1 + float(whole.abs().max()))
    if through.shape != whole.shape or not (through - whole).abs().max() <= near:
        raise InputError(f"the logits must be head(features(x)); {type(model).__name__} gives others. {HOW_TO_WRAP}")


@final
@dataclass(frozen=True)
class ConfidenceComparison:
    """How well confidences separate correct from wrong predictions of one network, beside its softmax."""

    n_samples: int
    n_wrong: int
    metrics: Mapping[str, Mapping[str, Estimate]]  # by confidence, the softmax first, then by metric
    differences: Mapping[str, Mapping[str, Difference]]  # from the softmax; corrected for the number of confidences

    @property
    def best(self) -> str:
        """The confidence to use: that with the largest clear gain over the softmax, or the softmax without one."""
        better = {name: by["auroc"].value for name, by in self.differences.items() if by["auroc"].side == "better"}
        return max(better, key=lambda name: better[name]) if better else SOFTMAX

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**vars(self), "best": self.best}


def compare_confidences(
    model: nn.Module,
    confidences: Mapping[str, LearnedConfidence],
    data: object,
    *,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ConfidenceComparison, dict[str, TopLabel]]:
    """Evaluate confidences of a network on samples that were used for nothing else, and return their top labels too.

    Args:
        model: The network.
        confidences: What ``ConfidNet.fit`` or ``TrustScore.fit_network`` made of it, by name.
        data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
        resamples: Bootstrap draws, the same for all confidences.
        seed: Random seed of the draws.
        progress: Called with the name of each stage as it begins.

    Example:
        >>> from calibrant.confidence import TrustScore
        >>> inputs, labels = torch.randn(200, 4, generator=torch.manual_seed(0)), torch.arange(200) % 2
        >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
        >>> trust = TrustScore().fit_network(network, (inputs, labels), layer="2")
        >>> compared, _ = compare_confidences(network, {"trust": trust}, (inputs, labels), resamples=100)
        >>> list(compared.metrics), list(compared.metrics["trust"])
        (['softmax', 'trust'], ['auroc', 'aupr_error', 'fpr95', 'aurc'])
    """
    for given in confidences.values() if isinstance(confidences, Mapping) else [confidences]:
        if not isinstance(given, LearnedConfidence):
            raise InputError(
                "confidences must be a dictionary, by name, of what ConfidNet.fit or TrustScore.fit_network made; got "
                f"{type(given).__name__}. A head on features needs its network: LearnedConfidence(model, head)."
            )
    if SOFTMAX in confidences:
        raise InputError(f"the name of a confidence must not be {SOFTMAX!r}, which is the network's own.")
    progress("running the network on the test samples")
    batches = [Predictions.from_logits(extract_logits(out), labels).top for out, labels in _outputs(model, model, data)]
    parts = ((top.confidence, top.correct, top.log_odds) for top in batches)
    tops = {SOFTMAX: TopLabel(*(torch.cat(column) for column in zip(*parts, strict=True)))}
    for name, confidence in confidences.items():
        progress(f"evaluating {name}")
        tops[name] = confidence.top_label(data)
    bootstrap = PairedBootstrap(tops[SOFTMAX], METRICS, resamples=resamples, seed=seed)
    values = {name: bootstrap.values(top) for name, top in tops.items()}
    differences = corrected_differences(SOFTMAX, values, METRICS, bootstrap.difference)
    metrics = {name: estimate(top, METRICS, resamples=resamples, seed=seed) for name, top in tops.items()}
    correct = tops[SOFTMAX].correct
    return ConfidenceComparison(len(correct), int((~correct).sum()), metrics, differences), tops
