"""ConfidNet: learn the true-class probability from the features of a frozen classifier."""

import copy
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from calibrant.checks import check_at_least, check_known, check_positive, check_seed
from calibrant.confidence.network_features import (
    Gathered,
    features_of,
    gathered_from_model,
    gathered_from_predictions,
    labelled_batches,
    running_on,
    sample_source,
)
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError, in_a_line
from calibrant.inference import SampleSource, device_of, frozen, to_device, with_features
from calibrant.maps import FitSummary
from calibrant.metrics import aupr_error, auroc
from calibrant.numerics.neighbours import as_features
from calibrant.numerics.softmax import sigmoid
from calibrant.paper import Paper
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "BatchedLogOdds",
    "BestEpoch",
    "ChooseEpochBy",
    "ChosenEpoch",
    "ConfidNet",
    "ConfidenceHead",
    "LearnedConfidence",
    "Parts",
    "Progress",
    "Stage",
    "check_head_sizes",
    "check_numbered",
    "chosen_epoch",
    "encoder_copy",
    "held_out_value",
    "is_better",
    "log_odds_of_inputs",
    "split_samples",
]

ChooseEpochBy: TypeAlias = Literal["aupr_error", "auroc", "mse"]


class Parts(NamedTuple):
    """Indices of the samples to fit on and of those held out, rising, on the CPU."""

    fitted: Tensor
    held_out: Tensor


def split_samples(correct: Tensor, share: float, *, criterion: ChooseEpochBy, seed: int) -> Parts:
    """Hold out a share of the correct and of the wrong predictions, at least one of each where there are two.

    Wrong predictions are rare on samples that a network was trained on: a tenth of all samples may have none.

    Args:
        correct: Whether each prediction is correct, (n,), bool.
        share: Share to hold out, above 0 and below 1.
        criterion: Criterion that the held-out samples will evaluate.
        seed: Random seed of the draw.

    Raises:
        InputError: If there are fewer than two samples.
        SeparableError: If the criterion ranks predictions, and fewer than two are correct or fewer than two wrong.

    Example:
        >>> parts = split_samples(torch.arange(100) % 10 > 0, 0.1, criterion="auroc", seed=0)
        >>> len(parts.fitted), len(parts.held_out), int((parts.held_out % 10 == 0).sum())
        (90, 10, 1)
    """
    correct = correct.cpu()
    if len(correct) < 2:
        raise InputError("at least two samples are needed, one to fit on and one to choose by; got 1.")
    wrong = int((~correct).sum())
    if criterion != "mse" and min(wrong, len(correct) - wrong) < 2:
        raise SeparableError(
            f"choose_by={criterion!r} needs two correct and two wrong predictions; of {len(correct):,} samples "
            f"{wrong:,} are wrong. Give samples that the network was not trained on, or choose_by='mse'."
        )
    generator = torch.Generator().manual_seed(seed)
    held_out = []
    for group in (correct, ~correct):
        samples = group.nonzero()[:, 0]
        # At least one sample of a kind stays to be fitted on.
        size = min(max(round(share * len(samples)), 1), len(samples) - 1) if len(samples) > 1 else 0
        held_out.append(samples[torch.randperm(len(samples), generator=generator)[:size]])
    is_held_out = torch.zeros(len(correct), dtype=torch.bool)
    is_held_out[torch.cat(held_out)] = True
    if not is_held_out.any():  # one correct and one wrong prediction
        is_held_out[-1] = True
    return Parts((~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0])


def held_out_value(criterion: ChooseEpochBy, log_odds: Tensor, target: Tensor, correct: Tensor) -> float:
    """Return the value of the criterion for a confidence on the held-out samples.

    Args:
        criterion: Criterion to compute.
        log_odds: Log-odds of the confidence, (n,), finite.
        target: True-class probability, (n,).
        correct: Whether each prediction is correct, (n,), bool.
    """
    log_odds = log_odds.double()
    confidence = log_odds.sigmoid()
    if criterion == "mse":
        return float((confidence - target).square().mean())
    return {"aupr_error": aupr_error, "auroc": auroc}[criterion](TopLabel(confidence, correct, log_odds))


def is_better(criterion: ChooseEpochBy, value: float, than: float) -> bool:
    """Whether one value of the criterion beats another."""
    return value < than if criterion == "mse" else value > than


@final
class BestEpoch:
    """Evaluate every epoch, keep a copy of the best weights, and restore them at the end.

    Args:
        modules: Modules that are trained.
        criterion: Criterion by which epochs are compared.
        target: True-class probability of the held-out samples, (m,).
        correct: Whether they are predicted correctly, (m,).
        value: Value of the current weights, which are kept unless an epoch is better; None to keep any epoch.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        *,
        criterion: ChooseEpochBy,
        target: Tensor,
        correct: Tensor,
        value: float | None = None,
    ) -> None:
        self._modules = modules
        self.criterion, self._target, self._correct = criterion, target, correct
        self.epoch, self.value = 0, value
        self._kept = [] if value is None else self._copies()

    def record(self, epoch: int, log_odds: Tensor) -> float:
        """Evaluate an epoch by its log-odds on the held-out samples, (m,); the first of equals is kept.

        Raises:
            FitError: If they are not finite.
        """
        if not log_odds.isfinite().all():
            raise FitError(
                f"training must give finite confidences; in epoch {epoch} some were not. Take a lower learning rate, "
                "or bring the features to a size of about one."
            )
        value = held_out_value(self.criterion, log_odds, self._target, self._correct)
        if self.value is None or is_better(self.criterion, value, self.value):
            self.epoch, self.value, self._kept = epoch, value, self._copies()
        return value

    def restore(self) -> None:
        """Restore the weights of the best epoch."""
        with torch.no_grad():
            for tensor, kept in zip(self._tensors(), self._kept, strict=True):
                tensor.copy_(kept)

    def _tensors(self) -> list[Tensor]:
        return [tensor for module in self._modules for tensor in (*module.parameters(), *module.buffers())]

    def _copies(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors()]


_ENOUGH_TO_WARN = 100


@final
@dataclass(frozen=True)
class ChosenEpoch:
    """The epoch that was kept, and why.

    Args:
        epoch: Number of the epoch, from 1.
        epochs: Number of epochs that were run.
        fine_tuned: Epochs of fine-tuning that were kept after it; 0 if none, or if they did not help.
        criterion: Criterion of the choice: ``aupr_error``, ``auroc`` or ``mse``.
        value: Value of the criterion on the held-out samples. It is the best of all epochs and therefore optimistic.
        softmax_value: Value of the network's own confidence on the same samples.
        held_out: Number of held-out samples.
    """

    epoch: int
    epochs: int
    fine_tuned: int
    criterion: ChooseEpochBy
    value: float
    softmax_value: float
    held_out: int

    @property
    def beats_softmax(self) -> bool:
        """Whether it is better than the network's own confidence on the held-out samples."""
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
        """Return the choice as sentences."""
        against = f"{self.criterion} {self.value:.4g} against {self.softmax_value:.4g} of the softmax confidence"
        lines = [f"Epoch {self.epoch} of {self.epochs} is best on {self.held_out:,} held-out samples: {against}."]
        if self.fine_tuned:
            lines.append(f"{self.fine_tuned} epochs of fine-tuning followed.")
        if not self.beats_softmax:
            lines.append("It is no better than the softmax confidence there: the features add no information.")
        return tuple(lines)


def chosen_epoch(
    known: Gathered, parts: Parts, best: BestEpoch, tuned: BestEpoch | None, *, epochs: int
) -> ChosenEpoch:
    """Return the epoch that was kept, with the network's own confidence on the same held-out samples.

    Args:
        known: Features, true-class probabilities and correctness of all samples.
        parts: Indices of the fitted and held-out samples.
        best: Best epoch of the head.
        tuned: Best epoch of the fine-tuning; None without one.
        epochs: Number of epochs that the head was trained for.
    """
    value = (best if tuned is None else tuned).value
    assert value is not None  # at least one epoch is recorded
    held_out = parts.held_out.to(known.target.device)
    softmax = held_out_value(
        best.criterion, known.softmax_log_odds[held_out], known.target[held_out], known.correct[held_out]
    )
    return ChosenEpoch(best.epoch, epochs, tuned.epoch if tuned else 0, best.criterion, value, softmax, len(held_out))


_BLOCK = 1 << 14  # samples that the head takes at a time


@final
class ConfidenceHead(nn.Module):
    """Head from features to the log-odds of a correct prediction, (n, d) -> (n,): linear layers with ReLU between.

    It does not use logits and changes no prediction. :class:`~calibrant.confidence.LearnedConfidence` puts it
    behind the classifier.

    Args:
        n_features: Number of features, d.
        layers: Number of linear layers; the last has one output.
        units: Outputs of each layer but the last.
        seed: Random seed of the initial weights; the global generator is left alone.

    Raises:
        InputError: If a size is not an integer of at least 1.

    Example:
        >>> head = ConfidenceHead(3, layers=2, units=8)
        >>> tuple(head(torch.zeros(5, 3)).shape)
        (5,)
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
        """Return log-odds, (n, d) -> (n,), in the dtype of the head's weights."""
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
        """Return the network's predictions with this confidence instead of the softmax's.

        Args:
            predictions: Predictions of the classifier; only their correctness is used.
            features: Features of the same samples, (n, d), from the layer that the head was fitted on.

        Raises:
            InputError: If the features are not finite, or not of these samples.
        """
        checked = as_features(features, rows=len(predictions)).to(next(self.parameters()).device)
        log_odds = torch.cat([self(part) for part in checked.split(_BLOCK)]).double().to(predictions.logits.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds)

    def extra_repr(self) -> str:
        """Return what is shown inside the brackets of the module's name."""
        return f"features={self.n_features}"


def check_head_sizes(weights: Mapping[str, Tensor], *, n_features: int, layers: int, units: int) -> None:
    """Check that stored weights are those of a head of these sizes, before a head of any size is created.

    Raises:
        InputError: If they are not.
    """
    check_at_least(layers, 1, "layers")
    sizes = [
        check_at_least(n_features, 1, "n_features"),
        *[check_at_least(units, 1, "units")] * min(layers - 1, len(weights)),
        1,
    ]
    wanted: dict[str, tuple[int, ...]] = {}
    for place, (a, b) in enumerate(pairwise(sizes)):
        wanted |= {f"layers.{place}.weight": (b, a), f"layers.{place}.bias": (b,)}
    if len(weights) != 2 * layers or {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise InputError(
            f"the weights must be those of {layers} layers of {units} units on {n_features} features; got others."
        )


Progress: TypeAlias = Callable[[str, float], None]

BatchedLogOdds: TypeAlias = Callable[[Tensor], Iterator[Tensor]]
"""Function from indices of samples to their log-odds, a batch at a time, in that order."""


class Stage(NamedTuple):
    """One stage of training: the head on fixed features, or the head with a copy of the encoder."""

    name: str
    modules: tuple[nn.Module, ...]
    epochs: int
    learning_rate: float
    batch_size: int
    choose_by: ChooseEpochBy
    seed: int
    epochs_before: int = 0

    def run(
        self,
        log_odds_of: BatchedLogOdds,
        known: Gathered,
        parts: Parts,
        *,
        progress: Progress,
        value: float | None = None,
    ) -> BestEpoch:
        """Train, and leave the weights of the epoch that is best on the held-out samples.

        Args:
            log_odds_of: Log-odds in batches of ``batch_size`` samples; each follows the step of the one before.
            known: Features, true-class probabilities and correctness of all samples.
            parts: Indices of the fitted and held-out samples.
            progress: Called after every epoch.
            value: Value of the current weights, which are kept unless an epoch is better; None to keep any epoch.

        Raises:
            FitError: If training diverges.
        """
        device, first = known.target.device, next(self.modules[0].parameters())
        target, held_out = known.target.to(first.dtype), parts.held_out.to(device)
        best = BestEpoch(
            self.modules,
            criterion=self.choose_by,
            target=known.target[held_out],
            correct=known.correct[held_out],
            value=value,
        )
        weights = [parameter for module in self.modules for parameter in module.parameters()]
        optimiser = torch.optim.Adam(weights, lr=self.learning_rate)
        order = torch.Generator().manual_seed(self.seed)
        for epoch in range(1, self.epochs + 1):
            shuffled = parts.fitted[torch.randperm(len(parts.fitted), generator=order)].to(device)
            total = torch.zeros((), device=device)
            for some, log_odds in zip(shuffled.split(self.batch_size), log_odds_of(shuffled), strict=True):
                loss = mse_loss(log_odds.sigmoid(), target[some])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(some)
            with torch.no_grad():
                now = best.record(epoch, torch.cat(list(log_odds_of(held_out))))
            detail = f"squared error {float(total) / len(shuffled):.3g}, held out {self.choose_by} {now:.3g}"
            progress(f"{self.name}, epoch {epoch} of {self.epochs}: {detail}", self.epochs_before + epoch)
        best.restore()
        return best


def check_numbered(source: SampleSource) -> None:
    """Check that samples can be read several times, in another order each time.

    Raises:
        InputError: If they come from a loader.
    """
    if source.n_samples is None:
        raise InputError(
            "fine-tuning reads the samples several times, and needs them by number; got a DataLoader. Pass its data "
            "set, or (inputs, labels)."
        )


def encoder_copy(model: nn.Module, *, trained: bool) -> nn.Module:
    """Copy the network without its last layer, in evaluation mode: no batch statistics, no dropout.

    Args:
        model: Network with ``features`` and ``head``; it is not changed.
        trained: Whether the copy's weights take gradients.

    Raises:
        InputError: If it cannot be copied.
    """
    try:
        # torch.compile keeps the network itself under this name.
        encoder = copy.deepcopy(getattr(model, "_orig_mod", model))
    except Exception as error:
        raise InputError(
            f"a network that is fine-tuned must let itself be copied; copying raised {in_a_line(error)}. Give "
            "fine_tune_epochs=0, or a network without what cannot be copied."
        ) from error
    encoder.head = nn.Identity()
    for module in encoder.modules():
        module.training = False
    for weights in encoder.parameters():
        weights.requires_grad_(trained and weights.is_floating_point())
    return encoder


def log_odds_of_inputs(
    encoder: nn.Module, head: ConfidenceHead, source: SampleSource, *, batch_size: int
) -> BatchedLogOdds:
    """Return a function from indices of samples to their log-odds, which runs the encoder on the inputs each time."""

    def log_odds_of(chosen: Tensor) -> Iterator[Tensor]:
        device = device_of(head)
        for inputs, _, _ in source.read(chosen.cpu(), batch_size):
            yield head(features_of(encoder, to_device(inputs, device)))

    return log_odds_of


@final
class LearnedConfidence(nn.Module):
    """Module from inputs to the classifier's own logits and the log-odds that its prediction is correct.

    The classifier is the module given, not a copy, and stays in its mode. In training mode dropout and batch statistics
    change the predictions: call ``eval()`` before use. :meth:`top_label` does so by itself.

    Args:
        model: The classifier, with ``features`` and ``head``.
        head: Head from features to log-odds.
        encoder: Fine-tuned copy whose features the head uses; None for those of the classifier.

    Raises:
        InputError: If the classifier exposes no features.

    Example:
        >>> from calibrant.models import build_model
        >>> classifier = build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8).eval()
        >>> learned = LearnedConfidence(classifier, ConfidenceHead(110, units=8))
        >>> logits, log_odds = learned(torch.zeros(5, 1, 8, 8))
        >>> tuple(logits.shape), tuple(log_odds.shape)
        ((5, 10), (5,))
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
        """Return logits, (n, k), and log-odds, (n,)."""
        if self.encoder is not None:
            return self.model(inputs), self.head(features_of(self.encoder, inputs))
        features = features_of(self.model, inputs)
        return with_features(self.model).head(features), self.head(features)

    @torch.no_grad()
    def confidence(self, inputs: Tensor) -> Tensor:
        """Return the confidence, (n, ...) -> (n,), float64."""
        with running_on(inputs):
            return sigmoid(self(inputs)[1].double())

    def top_label(self, data: object, *, batch_size: int = 512) -> TopLabel:
        """Return the classifier's predictions for labelled inputs with the learned confidence, in evaluation mode.

        Args:
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
            batch_size: Samples at a time; a loader has its own.

        Raises:
            InputError: If the data are not labelled inputs of this classifier.
        """
        log_odds, correct = [], []
        source, device = sample_source(data), device_of(self.model)
        with frozen(self), torch.no_grad():
            for inputs, labels, _ in labelled_batches(source, device=device, batch_size=batch_size):
                with running_on(inputs):
                    logits, batch = self(inputs)
                log_odds.append(batch.double())
                correct.append(Predictions.from_logits(logits, labels).correct)
        joined = torch.cat(log_odds)
        return TopLabel(sigmoid(joined), torch.cat(correct), joined)


_NO_MISTAKE = "No prediction is wrong: there is no error to learn from. Give samples the network was not trained on."


@final
@dataclass(frozen=True)
class ConfidNet:
    """Learn the probability of the true class from a frozen classifier's features, and use it as confidence.

    The largest probability of a softmax is high for many wrong predictions, being a maximum; the probability of the
    true class is low for nearly all of them. At test the true class is unknown, so a small network learns that number
    from the features. Predictions do not change. It depends on the information in the features and on the samples: on
    those that a network was trained on nearly every prediction is correct, and there is little to learn from; held-out
    samples are better. It is trained to separate correct from wrong, and is not a calibrated probability of being
    correct: evaluate it by AUROC and AUPR, or fit a map on it.

    Features are computed once, in evaluation mode, and kept; an epoch is then a pass of the small network. (The paper
    trains on augmented images, with new features at each step.)

    Formula: ĉ(x) = σ(head(features(x))), the head minimising Σ (ĉ(x_i) − p_{y_i}(x_i))²
    Samples: some hundreds of wrong predictions.

    Args:
        layers: Number of linear layers of the head; the last has one output.
        units: Outputs of each of the other layers.
        epochs: Number of epochs; all are run, and the weights of the best are kept.
        learning_rate: Learning rate of Adam.
        batch_size: Samples of a step. (Inputs are run through the classifier in the same batches.)
        held_out: Share of the samples that is held out to choose the epoch.
        choose_by: Criterion of the choice: ``aupr_error`` (finding wrong predictions by low confidence), ``auroc``, or
            ``mse``, the loss itself, which needs no wrong predictions.
        fine_tune_epochs: Number of further epochs in which a copy of the encoder is trained with the head; 0 for none.
            Each costs as much as an epoch of training the classifier, and in use inputs go through both networks.
        fine_tune_learning_rate: Learning rate of Adam in these epochs.
        seed: Random seed of the initial weights, the held-out samples and their order.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> features = torch.randn(2000, 4, generator=torch.manual_seed(0))
        >>> logits = torch.stack([torch.zeros(2000), 9 * features[:, 0].sign()], dim=1)  # equally confident everywhere,
        >>> flipped = (features[:, 1] > 1) & (features[:, 2] > 0)  # but wrong where these two are high
        >>> labels = ((features[:, 0] > 0) ^ flipped).long()
        >>> predictions = Predictions.from_logits(logits, labels)
        >>> head = ConfidNet(units=32, epochs=20, learning_rate=0.01).fit_features(predictions, features)
        >>> from calibrant import auroc
        >>> auroc(predictions), auroc(head.top_label(predictions, features)) > 0.95
        (0.5, True)
    """

    name: ClassVar[str] = "confidnet"
    title: ClassVar[str] = "ConfidNet"
    paper: ClassVar[Paper] = Paper(
        "Corbière et al.",
        2019,
        "Addressing Failure Prediction by Learning Model Confidence",
        "arXiv:1910.04851",
        "Section 2",
    )

    layers: int = 5
    units: int = 400
    epochs: int = 500
    learning_rate: float = 1e-4
    batch_size: int = 128
    held_out: float = 0.1
    choose_by: ChooseEpochBy = "aupr_error"
    fine_tune_epochs: int = 0
    fine_tune_learning_rate: float = 1e-7
    seed: int = 0

    def __post_init__(self) -> None:
        # NumPy numbers become Python numbers, which a file can hold.
        for name, least in {"layers": 1, "units": 1, "epochs": 1, "batch_size": 1, "fine_tune_epochs": 0}.items():
            object.__setattr__(self, name, check_at_least(getattr(self, name), least, name))
        for name in ("learning_rate", "fine_tune_learning_rate", "held_out"):
            object.__setattr__(self, name, check_positive(getattr(self, name), name))
        if self.held_out >= 1:
            raise InputError(f"held_out must be below 1, a share of the samples; got {self.held_out}.")
        check_known(self.choose_by, get_args(ChooseEpochBy), "choose_by")
        object.__setattr__(self, "seed", check_seed(self.seed))

    def fit(self, model: nn.Module, data: object, *, progress: Progress | None = None) -> LearnedConfidence:
        """Fit the head, and return the classifier with a learned confidence beside its logits.

        The weights, modes and gradients of the classifier are unchanged, also after an error.

        Args:
            model: Any module with ``features(x)``, (n, ...) -> (n, d), and ``head``, such that ``forward(x)`` is
                ``head(features(x))``.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them. A
                loader is read once, in its order; fine-tuning needs samples by number and refuses a loader.
            progress: Called after every epoch with a text and the number of epochs so far.

        Raises:
            InputError: If the network exposes no features, they are not finite, or labels are out of range.
            SeparableError: If the criterion ranks predictions, and (almost) all are correct or all wrong.
            FitError: If training diverges.

        Warns:
            CalibrantWarning: If no prediction is wrong, or the softmax separates held-out samples as well.
        """
        begun = time.perf_counter()
        report = _checked(progress)
        source = sample_source(data)
        if self.fine_tune_epochs:
            check_numbered(source)
        # The caller may have switched gradients off.
        with torch.inference_mode(mode=False), torch.enable_grad():
            known = gathered_from_model(model, source, batch_size=self.batch_size)
            head, parts, best = self._head(known, report)
            tuned, encoder = None, None
            if self.fine_tune_epochs:
                encoder = encoder_copy(model, trained=True)
                log_odds_of = log_odds_of_inputs(encoder, head, source, batch_size=self.batch_size)
                tuned = self._stage(head, encoder).run(log_odds_of, known, parts, progress=report, value=best.value)
                encoder.requires_grad_(requires_grad=False).zero_grad()
                encoder = encoder if tuned.epoch else None
        choice = chosen_epoch(known, parts, best, tuned, epochs=self.epochs)
        self._describe(head, known, choice, seconds=time.perf_counter() - begun)
        return LearnedConfidence(model, head, encoder=encoder)

    def fit_features(
        self, predictions: Predictions, features: object, *, progress: Progress | None = None
    ) -> ConfidenceHead:
        """Fit the head alone, from predictions and features.

        Args:
            predictions: Predictions of the classifier.
            features: Features of the same samples, (n, d): the activations before the last layer. Training is on their
                device.
            progress: Called after every epoch, as by :meth:`fit`.

        Raises:
            InputError: If the features are not finite, or not of these samples; or if fine_tune_epochs is not 0.
            SeparableError: As for :meth:`fit`.
            FitError: If training diverges.

        Warns:
            CalibrantWarning: As for :meth:`fit`.
        """
        if self.fine_tune_epochs:
            raise InputError("fine_tune_epochs must be 0 where there is no network; use fit(model, data).")
        begun = time.perf_counter()
        report = _checked(progress)
        with torch.inference_mode(mode=False), torch.enable_grad():
            known = gathered_from_predictions(predictions, features)
            head, parts, best = self._head(known, report)
        choice = chosen_epoch(known, parts, best, None, epochs=self.epochs)
        self._describe(head, known, choice, seconds=time.perf_counter() - begun)
        return head

    def settings(self) -> dict[str, Any]:
        """Return the options, as a file can hold them."""
        return dataclasses.asdict(self)

    def _head(self, known: Gathered, progress: Progress) -> tuple[ConfidenceHead, Parts, BestEpoch]:
        parts = split_samples(known.correct, self.held_out, criterion=self.choose_by, seed=self.seed)
        head = ConfidenceHead(known.features.shape[1], layers=self.layers, units=self.units, seed=self.seed)
        head.to(known.features.device)

        def log_odds_of(samples: Tensor) -> Iterator[Tensor]:
            return (head(known.features[batch]) for batch in samples.split(self.batch_size))

        return head, parts, self._stage(head).run(log_odds_of, known, parts, progress=progress)

    def _stage(self, head: ConfidenceHead, encoder: nn.Module | None = None) -> Stage:
        """Return the stage of the head alone, or of fine-tuning."""
        name, modules, epochs, rate, before = (
            ("head", (head,), self.epochs, self.learning_rate, 0)
            if encoder is None
            else ("fine-tuning", (head, encoder), self.fine_tune_epochs, self.fine_tune_learning_rate, self.epochs)
        )
        return Stage(name, modules, epochs, rate, self.batch_size, self.choose_by, self.seed, before)

    def _describe(self, head: ConfidenceHead, known: Gathered, choice: ChosenEpoch, *, seconds: float) -> None:
        """Record how the head was fitted, and warn where it does not help."""
        notes = choice.notes()
        if known.correct.all():
            notes = (*notes, _NO_MISTAKE)
            warnings.warn(_NO_MISTAKE, CalibrantWarning, stacklevel=3)
        elif choice.warning is not None:
            warnings.warn(choice.warning, CalibrantWarning, stacklevel=3)
        head.choice = choice
        head.summary = FitSummary(self.name, self.settings(), len(known.correct), seconds, notes=notes)
        head.eval().requires_grad_(requires_grad=False).zero_grad()


def _checked(progress: Progress | None) -> Progress:
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
    return progress or (lambda _what, _epochs: None)
