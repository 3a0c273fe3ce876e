"""ConfidNet: learn the true-class probability from the features of a frozen classifier."""

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from calibrant.checks import as_features, check_at_least, check_known, check_labels, check_positive, check_seed
from calibrant.confidence.learned_confidence import (
    ChooseEpochBy,
    ChosenEpoch,
    ConfidenceHead,
    LearnedConfidence,
    encoder_copy,
    features_of,
    is_better,
    labelled_batches,
    sample_source,
)
from calibrant.errors import CalibrantWarning, FitError, InputError, SeparableError
from calibrant.inference import HOW_TO_WRAP, SampleSource, device_of, forward_errors, frozen, to_device, with_features
from calibrant.maps import FitSummary
from calibrant.metrics import aupr_error, auroc
from calibrant.numerics.softmax import to_working_precision
from calibrant.paper import Paper
from calibrant.predictions import Predictions, TopLabel

Progress: TypeAlias = Callable[[str, float], None]
# From indices of samples to their log-odds, a batch at a time, in that order.
_BatchedLogOdds: TypeAlias = Callable[[Tensor], Iterator[Tensor]]

_TRIED = 8  # samples on which the network is checked
_NO_MISTAKE = "No prediction is wrong: there is no error to learn from. Give samples the network was not trained on."


class _Gathered(NamedTuple):
    """Numbers kept per sample; logits are not kept, as there may be a thousand classes."""

    features: Tensor  # (n, d), in the dtype of the network
    target: Tensor  # true-class probability, (n,), float32 or float64
    correct: Tensor  # (n,), bool
    softmax_log_odds: Tensor  # log-odds of the network's own confidence, (n,)


def _gathered_from_predictions(predictions: Predictions, features: object) -> _Gathered:
    checked = as_features(features, rows=len(predictions))
    # Block by block: probabilities of all classes at once may not fit into memory.
    target = torch.cat(
        [
            to_working_precision(block.logits).softmax(dim=1).gather(1, block.labels[:, None])[:, 0]
            for block in predictions.blocks()
        ]
    )
    known = (target, predictions.correct, predictions.top.log_odds)
    return _Gathered(checked, *(part.to(checked.device) for part in known))


def _gathered_from_model(model: nn.Module, source: SampleSource, *, batch_size: int) -> _Gathered:
    network = with_features(model)
    parts: list[_Gathered] = []
    with frozen(model), torch.no_grad():
        for inputs, labels, positions in labelled_batches(source, device=device_of(model), batch_size=batch_size):
            try:
                if not parts:
                    _check_features_lead_to_logits(model, inputs[:_TRIED])
                features = as_features(features_of(model, inputs))
                logits = network.head(features)
                predictions = Predictions.from_logits(logits, check_labels(labels, logits.shape[1]))
            except InputError as error:
                first, last = int(positions[0]), int(positions[-1])
                raise InputError(f"rows {first:,} to {last:,} of the data: {error}") from error
            parts.append(_gathered_from_predictions(predictions, features))
    return _Gathered(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _check_features_lead_to_logits(model: nn.Module, inputs: Tensor) -> None:
    with forward_errors(model, inputs):
        features = as_features(features_of(model, inputs))
        through, whole = with_features(model).head(features), model(inputs)
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2:
        got = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else type(whole).__name__
        raise InputError(f"a network must return logits of shape (n, k), at least two classes; got {got}.")
    near = torch.finfo(whole.dtype).eps ** 0.5 * (1 + float(whole.abs().max()))
    if through.shape != whole.shape or not (through - whole).abs().max() <= near:
        raise InputError(f"the logits must be head(features(x)); {type(model).__name__} gives others. {HOW_TO_WRAP}")


def split_samples(correct: Tensor, share: float, *, criterion: ChooseEpochBy, seed: int) -> tuple[Tensor, Tensor]:
    """Return indices of the samples to fit on and of those held out, rising, on the CPU.

    The share is that of the correct and of the wrong predictions, at least one of each where there are two, because
    wrong ones are rare on samples that a network was trained on.
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
    is_held_out = torch.zeros(len(correct), dtype=torch.bool)
    for group in (correct, ~correct):
        samples = group.nonzero()[:, 0]
        # At least one sample of a kind stays to be fitted on.
        size = min(max(round(share * len(samples)), 1), len(samples) - 1) if len(samples) > 1 else 0
        is_held_out[samples[torch.randperm(len(samples), generator=generator)[:size]]] = True
    if not is_held_out.any():  # one correct and one wrong prediction
        is_held_out[-1] = True
    return (~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0]


def held_out_value(criterion: ChooseEpochBy, log_odds: Tensor, target: Tensor, correct: Tensor) -> float:
    """Return the criterion's value for log-odds (n,), true-class probabilities (n,) and correctness (n,)."""
    log_odds = log_odds.double()
    confidence = log_odds.sigmoid()
    if criterion == "mse":
        return float((confidence - target).square().mean())
    return {"aupr_error": aupr_error, "auroc": auroc}[criterion](TopLabel(confidence, correct, log_odds))


@final
class BestEpoch:
    """Keeps a copy of the best weights of some modules, the first of equals; the current ones have ``value``."""

    def __init__(self, modules: Sequence[nn.Module], criterion: ChooseEpochBy, value: float | None = None) -> None:
        self._tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        self._criterion = criterion
        self.epoch, self.value = 0, value
        self._kept = self._copies()

    def record(self, epoch: int, value: float) -> None:
        """Keep the current weights if their value is better than the best so far."""
        if self.value is None or is_better(self._criterion, value, self.value):
            self.epoch, self.value, self._kept = epoch, value, self._copies()

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, kept in zip(self._tensors, self._kept, strict=True):
            tensor.copy_(kept)

    def _copies(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors]


@final
@dataclass(frozen=True)
class ConfidNet:
    """Learn the probability of the true class from a frozen classifier's features, and use it as confidence.

    The largest probability of a softmax is high for many wrong predictions; the probability of the true class is low
    for nearly all of them. At test the true class is unknown, so a small network learns that number from the features.
    Predictions do not change. On samples that a network was trained on nearly every prediction is correct, and there is
    little to learn from; held-out samples are better. It is trained to separate correct from wrong, and is not a
    calibrated probability of being correct: evaluate it by AUROC and AUPR, or fit a map on it.

    Features are computed once, in evaluation mode; the paper trains on augmented images, with new features each step.

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
            SeparableError: If the criterion ranks predictions, and (almost) all are correct or all wrong.
            FitError: If training diverges.

        Warns:
            CalibrantWarning: If no prediction is wrong, or the softmax separates held-out samples as well.
        """
        source = sample_source(data)
        if self.fine_tune_epochs and source.n_samples is None:
            raise InputError(
                "fine-tuning reads the samples several times, and needs them by number; got a DataLoader. Pass its "
                "data set, or (inputs, labels)."
            )
        head, encoder = self._fit(
            lambda: _gathered_from_model(model, source, batch_size=self.batch_size), progress, model, source
        )
        return LearnedConfidence(model, head, encoder=encoder)

    def fit_features(
        self, predictions: Predictions, features: object, *, progress: Progress | None = None
    ) -> ConfidenceHead:
        """Fit the head alone, on the device of the features; without a network nothing can be fine-tuned.

        Args:
            predictions: Predictions of the classifier.
            features: Features of the same samples, (n, d): the activations before the last layer.
            progress: Called after every epoch, as by :meth:`fit`.
        """
        if self.fine_tune_epochs:
            raise InputError("fine_tune_epochs must be 0 where there is no network; use fit(model, data).")
        return self._fit(lambda: _gathered_from_predictions(predictions, features), progress)[0]

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def _fit(
        self,
        gather: Callable[[], _Gathered],
        progress: Progress | None,
        model: nn.Module | None = None,
        source: SampleSource | None = None,
    ) -> tuple[ConfidenceHead, nn.Module | None]:
        """Return the fitted head, and the fine-tuned encoder where there is a better one than the classifier's."""
        begun = time.perf_counter()
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
        encoder, fine_tuned = None, 0
        # The caller may have switched gradients off.
        with torch.inference_mode(mode=False), torch.enable_grad():
            known = gather()
            parts = split_samples(known.correct, self.held_out, criterion=self.choose_by, seed=self.seed)
            head = ConfidenceHead(known.features.shape[1], layers=self.layers, units=self.units, seed=self.seed)
            head.to(known.features.device)

            def log_odds_of_features(chosen: Tensor) -> Iterator[Tensor]:
                return (head(known.features[batch]) for batch in chosen.split(self.batch_size))

            best = self._train([head], log_odds_of_features, known, parts, progress)
            epoch, value = best.epoch, best.value
            if self.fine_tune_epochs and model is not None and source is not None:
                tuned = encoder_copy(model, trained=True)

                def log_odds_of_inputs(chosen: Tensor) -> Iterator[Tensor]:
                    for inputs, _, _ in source.read(chosen.cpu(), self.batch_size):
                        yield head(features_of(tuned, to_device(inputs, device_of(head))))

                best = self._train([head, tuned], log_odds_of_inputs, known, parts, progress, value=value)
                tuned.requires_grad_(requires_grad=False).zero_grad()
                fine_tuned, value = best.epoch, best.value
                encoder = tuned if fine_tuned else None
        assert value is not None  # at least one epoch is recorded
        held_out = parts[1].to(known.target.device)
        softmax = held_out_value(
            self.choose_by, known.softmax_log_odds[held_out], known.target[held_out], known.correct[held_out]
        )
        choice = ChosenEpoch(epoch, self.epochs, fine_tuned, self.choose_by, value, softmax, len(held_out))
        no_mistake = _NO_MISTAKE if known.correct.all() else None
        notes = choice.notes() if no_mistake is None else (*choice.notes(), no_mistake)
        if (reason := no_mistake or choice.warning) is not None:
            warnings.warn(reason, CalibrantWarning, stacklevel=3)
        head.choice, seconds = choice, time.perf_counter() - begun
        head.summary = FitSummary(self.name, self.settings(), len(known.correct), seconds, notes=notes)
        head.eval().requires_grad_(requires_grad=False).zero_grad()
        return head, encoder

    def _train(
        self,
        modules: Sequence[nn.Module],
        log_odds_of: _BatchedLogOdds,
        known: _Gathered,
        parts: tuple[Tensor, Tensor],
        progress: Progress | None,
        *,
        value: float | None = None,
    ) -> BestEpoch:
        """Train the head, or the head and an encoder; leave the weights of the epoch that is best on held-out samples.

        Each batch of ``log_odds_of`` follows the step of the one before. ``value`` is that of the current weights,
        which are kept unless an epoch is better; None to keep any epoch.
        """
        name, epochs, rate, before = "head", self.epochs, self.learning_rate, 0
        if len(modules) > 1:
            name, epochs, rate, before = "fine-tuning", self.fine_tune_epochs, self.fine_tune_learning_rate, self.epochs
        device = known.target.device
        fitted, held_out = parts[0], parts[1].to(device)
        target = known.target.to(next(modules[0].parameters()).dtype)
        best = BestEpoch(modules, self.choose_by, value)
        weights = [parameter for module in modules for parameter in module.parameters()]
        optimiser = torch.optim.Adam(weights, lr=rate)
        order = torch.Generator().manual_seed(self.seed)
        for epoch in range(1, epochs + 1):
            shuffled = fitted[torch.randperm(len(fitted), generator=order)].to(device)
            total = torch.zeros((), device=device)
            for some, log_odds in zip(shuffled.split(self.batch_size), log_odds_of(shuffled), strict=True):
                loss = mse_loss(log_odds.sigmoid(), target[some])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(some)
            with torch.no_grad():
                log_odds = torch.cat(list(log_odds_of(held_out)))
            if not log_odds.isfinite().all():
                raise FitError(
                    f"training must give finite confidences; in epoch {epoch} some were not. Take a lower learning "
                    "rate, or bring the features to a size of about one."
                )
            now = held_out_value(self.choose_by, log_odds, known.target[held_out], known.correct[held_out])
            best.record(epoch, now)
            if progress is not None:
                detail = f"squared error {float(total) / len(shuffled):.3g}, held out {self.choose_by} {now:.3g}"
                progress(f"{name}, epoch {epoch} of {epochs}: {detail}", before + epoch)
        best.restore()
        return best
