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
    rows_as_given,
    running_on,
)
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError, in_a_line
from calibrant.inference import SampleSource, device_of, frozen, to_device, with_features
from calibrant.maps import FitSummary
from calibrant.metrics import aupr_error, auroc
from calibrant.numerics.fast import sigmoid
from calibrant.numerics.neighbours import as_features
from calibrant.paper import Paper
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "Answers",
    "BestEpoch",
    "ChooseEpochBy",
    "ChosenEpoch",
    "ConfidNet",
    "ConfidenceHead",
    "LearnedConfidence",
    "Parts",
    "Progress",
    "Stage",
    "answers_of_inputs",
    "check_head_sizes",
    "check_numbered",
    "chosen_epoch",
    "encoder_copy",
    "held_out_value",
    "is_better",
    "split_rows",
]

ChooseEpochBy: TypeAlias = Literal["aupr_error", "auroc", "mse"]


class Parts(NamedTuple):
    """Numbers of rows, rising, on the CPU."""

    fitted: Tensor
    held_out: Tensor


def split_rows(correct: Tensor, share: float, *, criterion: ChooseEpochBy, seed: int) -> Parts:
    """Set a share of the right and of the wrong answers aside, of each at least one where there are two.

    Wrong answers are rare on rows that a network was trained on; drawn from all rows at once, a tenth may have none.

    Args:
        correct: Which answers are right, (n,), bool.
        share: Above 0 and below 1.
        criterion: What the held-out rows are for.
        seed: Random seed of the draw.

    Raises:
        InputError: If there are fewer than two rows.
        SeparableError: If answers must be ranked, and fewer than two are right or fewer than two wrong.

    Example:
        >>> parts = split_rows(torch.arange(100) % 10 > 0, 0.1, criterion="auroc", seed=0)
        >>> len(parts.fitted), len(parts.held_out), int((parts.held_out % 10 == 0).sum())
        (90, 10, 1)
    """
    correct = correct.cpu()
    if len(correct) < 2:
        raise InputError("at least two rows are needed, one to fit on and one to choose by; got 1.")
    wrong = int((~correct).sum())
    if criterion != "mse" and min(wrong, len(correct) - wrong) < 2:
        raise SeparableError(
            f"choose_by={criterion!r} needs two right and two wrong answers; of {len(correct):,} rows {wrong:,} are "
            "answered wrong. Give rows that the network was not trained on, or choose_by='mse'."
        )
    generator = torch.Generator().manual_seed(seed)
    held_out = []
    for group in (correct, ~correct):
        rows = group.nonzero()[:, 0]
        # One row of a kind stays with those that are fitted.
        size = min(max(round(share * len(rows)), 1), len(rows) - 1) if len(rows) > 1 else 0
        held_out.append(rows[torch.randperm(len(rows), generator=generator)[:size]])
    is_held_out = torch.zeros(len(correct), dtype=torch.bool)
    is_held_out[torch.cat(held_out)] = True
    if not is_held_out.any():  # one right and one wrong answer
        is_held_out[-1] = True
    return Parts((~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0])


def held_out_value(criterion: ChooseEpochBy, log_odds: Tensor, target: Tensor, correct: Tensor) -> float:
    """How good a confidence is on the held-out rows.

    Args:
        criterion: What it is judged by.
        log_odds: Log-odds of the confidence, (n,), finite.
        target: The true-class probability, (n,).
        correct: Shape (n,), bool.
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
    """Looks at every epoch, keeps a copy of the best one's weights, and puts them back at the end.

    Args:
        modules: Whose weights they are.
        criterion: What an epoch is judged by.
        target: The true-class probability of the held-out rows, (m,).
        correct: Which of them are answered right, (m,).
        value: To be beaten, where the weights of now are to be kept unless an epoch is better; None if they are not.
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

    def look(self, epoch: int, log_odds: Tensor) -> float:
        """Judge an epoch by the log-odds it gives the held-out rows, (m,); the first of equals stays.

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
        """Put the best epoch's weights back."""
        with torch.no_grad():
            for tensor, kept in zip(self._tensors(), self._kept, strict=True):
                tensor.copy_(kept)

    def _tensors(self) -> list[Tensor]:
        return [tensor for module in self._modules for tensor in (*module.parameters(), *module.buffers())]

    def _copies(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors()]


_ENOUGH_TO_TELL = 100


@final
@dataclass(frozen=True)
class ChosenEpoch:
    """The epoch that was kept, and why.

    Args:
        epoch: From 1.
        epochs: How many there were.
        fine_tuned: Epochs of fine-tuning that were kept after it; 0 if none, or if they did not help.
        criterion: What chose it: ``aupr_error``, ``auroc`` or ``mse``.
        value: Value of the criterion on the held-out samples. It is the best of all epochs and therefore optimistic.
        softmax_value: Value of the network's own confidence on the same samples.
        held_out: How many they were.
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
        """Whether it is better than the network's own confidence there."""
        return is_better(self.criterion, self.value, self.softmax_value)

    @property
    def doubt(self) -> str | None:
        """Why the head is not worth having, where enough rows tell that it is not.

        By ``mse`` they do not: for every right answer the softmax confidence is itself what is learned.
        """
        if self.beats_softmax or self.criterion == "mse" or self.held_out < _ENOUGH_TO_TELL:
            return None
        return (
            f"the learned confidence separates errors no better than the softmax's ({self.criterion} {self.value:.3g} "
            f"against {self.softmax_value:.3g} on {self.held_out:,} held-out rows). Take the softmax, or give more "
            "rows that the network was not trained on."
        )

    def notes(self) -> tuple[str, ...]:
        """The same in sentences."""
        against = f"{self.criterion} {self.value:.4g} against {self.softmax_value:.4g} of the softmax confidence"
        told = [f"Epoch {self.epoch} of {self.epochs} is best on {self.held_out:,} held-out rows: {against}."]
        if self.fine_tuned:
            told.append(f"{self.fine_tuned} epochs of fine-tuning are in it.")
        if not self.beats_softmax:
            told.append("It is no better than the softmax confidence there; the features or the rows tell no more.")
        return tuple(told)


def chosen_epoch(
    known: Gathered, parts: Parts, best: BestEpoch, tuned: BestEpoch | None, *, epochs: int
) -> ChosenEpoch:
    """What training found, beside the network's own confidence on the same held-out rows.

    Args:
        known: Features, true-class probabilities and correctness of all samples.
        parts: Which were held out.
        best: Best epoch of the head.
        tuned: Best epoch of the fine-tuning; None without one.
        epochs: Number of epochs that the head was trained for.
    """
    value = (best if tuned is None else tuned).value
    assert value is not None  # an epoch is always looked at
    rows = parts.held_out.to(known.target.device)
    softmax = held_out_value(best.criterion, known.softmax_log_odds[rows], known.target[rows], known.correct[rows])
    return ChosenEpoch(best.epoch, epochs, tuned.epoch if tuned else 0, best.criterion, value, softmax, len(rows))


_ROWS = 1 << 14  # looked at together where many are


@final
class ConfidenceHead(nn.Module):
    """Features in, the log-odds of a right answer out, (n, d) -> (n,): linear layers with ReLU between them.

    It knows nothing of logits, and no prediction changes. :class:`~calibrant.confidence.LearnedConfidence` puts it
    behind the classifier.

    Args:
        n_features: d.
        layers: Linear ones, the last of which gives the one number.
        units: In each layer but the last.
        seed: Random seed of the initial weights; the global generator is left alone.

    Raises:
        InputError: If a size is not a whole number from 1.

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
        """What the constructor needs beside the weights."""
        return {"n_features": self.n_features, "layers": len(self.layers), "units": self.units}

    def forward(self, features: Tensor) -> Tensor:
        """Log-odds, (n, d) -> (n,), in the type of the head's weights."""
        if features.shape[-1] != self.n_features:
            raise InputError(
                f"this head was fitted on {self.n_features} features a row; got {features.shape[-1]}. Take them from "
                "the same layer of the same network."
            )
        values = features.to(next(self.parameters()).dtype)
        *hidden, last = self.layers
        for layer in hidden:
            values = layer(values).relu()
        return last(values).squeeze(-1)

    @torch.no_grad()
    def confidence(self, features: Tensor) -> Tensor:
        """Between 0 and 1, (n, d) -> (n,), float64: where float32 would round to 1.0, most rows still differ."""
        return sigmoid(self(features).double())

    @torch.no_grad()
    def top_label(self, predictions: Predictions, features: object) -> TopLabel:
        """The network's answers with this confidence in the place of the softmax's.

        Args:
            predictions: Predictions of the classifier; only their correctness is used.
            features: Features of the same samples, (n, d), from the layer that the head was fitted on.

        Raises:
            InputError: If the features are not finite, or not of these rows.
        """
        rows = as_features(features, rows=len(predictions)).to(next(self.parameters()).device)
        log_odds = torch.cat([self(part) for part in rows.split(_ROWS)]).double().to(predictions.logits.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds)

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        return f"features={self.n_features}"


def check_head_sizes(weights: Mapping[str, Tensor], *, n_features: int, layers: int, units: int) -> None:
    """Stored weights are those of a head of these sizes; seen before a head is made, which could be of any size.

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
    if len(weights) != 2 * layers or {name: tuple(each.shape) for name, each in weights.items()} != wanted:
        raise InputError(
            f"the weights must be those of {layers} layers of {units} units on {n_features} features; got others."
        )


Progress: TypeAlias = Callable[[str, float], None]

Answers: TypeAlias = Callable[[Tensor], Iterator[Tensor]]
"""From numbers of rows to their log-odds, a batch at a time, in that order."""


class Stage(NamedTuple):
    """What is trained, and how: the head on features that stay, or then a copy of the encoder with it."""

    name: str
    modules: tuple[nn.Module, ...]
    epochs: int
    learning_rate: float
    batch_size: int
    choose_by: ChooseEpochBy
    seed: int
    epochs_before: int = 0

    def run(
        self, answers: Answers, known: Gathered, parts: Parts, *, progress: Progress, value: float | None = None
    ) -> BestEpoch:
        """Train, and leave the weights as they were after the epoch that is best on the held-out rows.

        Args:
            answers: Batches of ``batch_size`` rows; each is asked for after the step of the one before.
            known: Features, true-class probabilities and correctness of all samples.
            parts: Which are fitted, and which choose.
            progress: Told of every epoch.
            value: To be beaten, else the weights stay what they are; None if any epoch will do.

        Raises:
            FitError: If it diverges.
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
            for some, log_odds in zip(shuffled.split(self.batch_size), answers(shuffled), strict=True):
                loss = mse_loss(log_odds.sigmoid(), target[some])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(some)
            with torch.no_grad():
                now = best.look(epoch, torch.cat(list(answers(held_out))))
            told = f"squared error {float(total) / len(shuffled):.3g}, held out {self.choose_by} {now:.3g}"
            progress(f"{self.name}, epoch {epoch} of {self.epochs}: {told}", self.epochs_before + epoch)
        best.restore()
        return best


def check_numbered(rows: SampleSource) -> None:
    """Rows that are read several times, in another order each time, are known by their numbers.

    Raises:
        InputError: If they come as they come, from a loader.
    """
    if rows.n_samples is None:
        raise InputError(
            "fine-tuning reads the rows several times, and needs them by number; got a DataLoader. Pass its data set, "
            "or (inputs, labels)."
        )


def encoder_copy(model: nn.Module, *, trained: bool) -> nn.Module:
    """A copy of the network without its last layer, in evaluation mode, so that batch statistics and dropout rest.

    Args:
        model: With ``features`` and ``head``; it is left alone.
        trained: Whether the copy's weights take gradients.

    Raises:
        InputError: If it cannot be copied.
    """
    try:
        # What torch.compile made holds the network itself under this name.
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


def answers_of_inputs(encoder: nn.Module, head: ConfidenceHead, rows: SampleSource, *, batch_size: int) -> Answers:
    """Log-odds of rows by their numbers, whose inputs go through the encoder each time."""

    def answers(chosen: Tensor) -> Iterator[Tensor]:
        device = device_of(head)
        for inputs, _, _ in rows.read(chosen.cpu(), batch_size):
            yield head(features_of(encoder, to_device(inputs, device)))

    return answers


@final
class LearnedConfidence(nn.Module):
    """Inputs in, the classifier's own logits and the log-odds that its answer is right out.

    The classifier is the very module given, not copied, and stays in its mode. In training mode dropout and batch
    statistics make the answers another model's: call ``eval()`` before use. :meth:`top_label` does so by itself.

    Args:
        model: The classifier, with ``features`` and ``head``.
        head: From features to log-odds.
        encoder: A fine-tuned copy whose features the head looks at; None: the classifier's.

    Raises:
        InputError: If the classifier shows no features.

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
        """Logits, (n, k), and log-odds, (n,)."""
        if self.encoder is not None:
            return self.model(inputs), self.head(features_of(self.encoder, inputs))
        features = features_of(self.model, inputs)
        return with_features(self.model).head(features), self.head(features)

    @torch.no_grad()
    def confidence(self, inputs: Tensor) -> Tensor:
        """Between 0 and 1, (n, ...) -> (n,), float64."""
        with running_on(inputs):
            return sigmoid(self(inputs)[1].double())

    def top_label(self, data: object, *, batch_size: int = 512) -> TopLabel:
        """The classifier's answers to labelled inputs, with the learned confidence, in evaluation mode.

        Args:
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
            batch_size: Rows at a time; a loader has its own.

        Raises:
            InputError: If the data are not labelled inputs of this classifier.
        """
        log_odds, correct = [], []
        rows, device = rows_as_given(data), device_of(self.model)
        with frozen(self), torch.no_grad():
            for inputs, labels, _ in labelled_batches(rows, device=device, batch_size=batch_size):
                with running_on(inputs):
                    logits, sure = self(inputs)
                log_odds.append(sure.double())
                correct.append(Predictions.from_logits(logits, labels).correct)
        joined = torch.cat(log_odds)
        return TopLabel(sigmoid(joined), torch.cat(correct), joined)


_NO_MISTAKE = "No row is answered wrong, so no mistake was seen. Give rows that the network was not trained on."


@final
@dataclass(frozen=True)
class ConfidNet:
    """Learn from a frozen classifier's features how probable it holds the true class, and call that its confidence.

    The largest probability of a softmax is high for many wrong answers, being a maximum; the probability of the true
    class is low for nearly all of them. At test nobody knows the true class, so a small network learns that number from
    the features. Predictions do not change. It can only know what the features know, and what it is shown: on the rows
    that a network was trained on nearly every answer is right, and there is little to learn from; rows that it was not
    trained on teach it more. It is learned to separate right from wrong, and not a calibrated probability of being
    right: judge it by AUROC and AUPR, or fit a map on it.

    Features are computed once, in evaluation mode, and kept; an epoch is then a pass of the small network. (The paper
    trains on augmented images, with new features at each step.)

    Formula: ĉ(x) = σ(head(features(x))), the head minimising Σ (ĉ(x_i) − p_{y_i}(x_i))²
    Rows: some hundreds of wrong answers.

    Args:
        layers: Number of linear layers of the head; the last has one output.
        units: In each of the others.
        epochs: All are run, and the best one's weights are kept.
        learning_rate: Adam's.
        batch_size: Rows of a step. (Inputs are run through the classifier in the same batches.)
        held_out: Share of the rows that is not fitted on, and chooses the epoch.
        choose_by: By what: ``aupr_error`` (finding wrong answers by low confidence), ``auroc``, or ``mse``, the loss
            itself, which needs no wrong answers.
        fine_tune_epochs: Afterwards, for so many epochs, a copy of the encoder learns with the head. Each costs as much
            as an epoch of training the classifier, and in use inputs go through both. 0 for none.
        fine_tune_learning_rate: Adam's.
        seed: Random seed of the initial weights, the held-out samples and their order.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> features = torch.randn(2000, 4, generator=torch.manual_seed(0))
        >>> logits = torch.stack([torch.zeros(2000), 9 * features[:, 0].sign()], dim=1)  # as sure of every row, but
        >>> flipped = (features[:, 1] > 1) & (features[:, 2] > 0)  # wrong of some, which features 1 and 2 tell
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
        # Kept as Python's own numbers, which a file can hold, where NumPy's were given.
        for name, least in {"layers": 1, "units": 1, "epochs": 1, "batch_size": 1, "fine_tune_epochs": 0}.items():
            object.__setattr__(self, name, check_at_least(getattr(self, name), least, name))
        for name in ("learning_rate", "fine_tune_learning_rate", "held_out"):
            object.__setattr__(self, name, check_positive(getattr(self, name), name))
        if self.held_out >= 1:
            raise InputError(f"held_out must be below 1, a share of the rows; got {self.held_out}.")
        check_known(self.choose_by, get_args(ChooseEpochBy), "choose_by")
        object.__setattr__(self, "seed", check_seed(self.seed))

    def fit(self, model: nn.Module, data: object, *, progress: Progress | None = None) -> LearnedConfidence:
        """The classifier with a learned confidence beside its logits.

        The classifier comes back as it was, also after an error: its weights, modes and gradients.

        Args:
            model: Any module with ``features(x)``, (n, ...) -> (n, d), and ``head``, such that ``forward(x)`` is
                ``head(features(x))``.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them. A
                loader is read once, as it comes; to fine-tune, rows are needed by number, and a loader is refused.
            progress: Called after every epoch with what is done and how many epochs so far.

        Raises:
            InputError: If the network shows no features, or they are not finite; or labels are out of range.
            SeparableError: If answers are to be ranked, and (almost) all are right or all wrong.
            FitError: If training diverges.

        Warns:
            CalibrantWarning: If no answer is wrong, or the softmax separates held-out rows as well.
        """
        begun = time.perf_counter()
        told = _checked(progress)
        rows = rows_as_given(data)
        if self.fine_tune_epochs:
            check_numbered(rows)
        # Whoever calls this may have switched gradients off.
        with torch.inference_mode(mode=False), torch.enable_grad():
            known = gathered_from_model(model, rows, batch_size=self.batch_size)
            head, parts, best = self._head(known, told)
            tuned, encoder = None, None
            if self.fine_tune_epochs:
                encoder = encoder_copy(model, trained=True)
                answers = answers_of_inputs(encoder, head, rows, batch_size=self.batch_size)
                tuned = self._stage(head, encoder).run(answers, known, parts, progress=told, value=best.value)
                encoder.requires_grad_(requires_grad=False).zero_grad()
                encoder = encoder if tuned.epoch else None
        choice = chosen_epoch(known, parts, best, tuned, epochs=self.epochs)
        self._describe(head, known, choice, seconds=time.perf_counter() - begun)
        return LearnedConfidence(model, head, encoder=encoder)

    def fit_features(
        self, predictions: Predictions, features: object, *, progress: Progress | None = None
    ) -> ConfidenceHead:
        """The head alone, from predictions and features that are there already.

        Args:
            predictions: Predictions of the classifier.
            features: Features of the same samples, (n, d): the activations before the last layer. Training is on their
                device.
            progress: As of :meth:`fit`.

        Raises:
            InputError: If the features are not finite, or not of these rows; or if this is to be fine-tuned.
            SeparableError: As of :meth:`fit`.
            FitError: If training diverges.

        Warns:
            CalibrantWarning: As :meth:`fit`.
        """
        if self.fine_tune_epochs:
            raise InputError("fine_tune_epochs must be 0 where there is no network; use fit(model, data).")
        begun = time.perf_counter()
        told = _checked(progress)
        with torch.inference_mode(mode=False), torch.enable_grad():
            known = gathered_from_predictions(predictions, features)
            head, parts, best = self._head(known, told)
        choice = chosen_epoch(known, parts, best, None, epochs=self.epochs)
        self._describe(head, known, choice, seconds=time.perf_counter() - begun)
        return head

    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        return dataclasses.asdict(self)

    def _head(self, known: Gathered, progress: Progress) -> tuple[ConfidenceHead, Parts, BestEpoch]:
        parts = split_rows(known.correct, self.held_out, criterion=self.choose_by, seed=self.seed)
        head = ConfidenceHead(known.features.shape[1], layers=self.layers, units=self.units, seed=self.seed)
        head.to(known.features.device)

        def answers(rows: Tensor) -> Iterator[Tensor]:
            return (head(known.features[some]) for some in rows.split(self.batch_size))

        return head, parts, self._stage(head).run(answers, known, parts, progress=progress)

    def _stage(self, head: ConfidenceHead, encoder: nn.Module | None = None) -> Stage:
        """The head alone, or fine-tuning."""
        name, modules, epochs, rate, before = (
            ("head", (head,), self.epochs, self.learning_rate, 0)
            if encoder is None
            else ("fine-tuning", (head, encoder), self.fine_tune_epochs, self.fine_tune_learning_rate, self.epochs)
        )
        return Stage(name, modules, epochs, rate, self.batch_size, self.choose_by, self.seed, before)

    def _describe(self, head: ConfidenceHead, known: Gathered, choice: ChosenEpoch, *, seconds: float) -> None:
        """Tell the head how it came about."""
        notes = choice.notes()
        if known.correct.all():
            notes = (*notes, _NO_MISTAKE)
            warnings.warn(_NO_MISTAKE, CalibrantWarning, stacklevel=3)
        elif choice.doubt is not None:
            warnings.warn(choice.doubt, CalibrantWarning, stacklevel=3)
        head.choice = choice
        head.summary = FitSummary(self.name, self.settings(), len(known.correct), seconds, notes=notes)
        head.eval().requires_grad_(requires_grad=False).zero_grad()


def _checked(progress: Progress | None) -> Progress:
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
    return progress or (lambda _what, _epochs: None)
