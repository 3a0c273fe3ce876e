"""ConfidNet: learn the true-class probability from the features of a frozen classifier."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from calibrant import checks, inference
from calibrant.confidence import learned
from calibrant.errors import FitError, InputError, SeparableError, warn
from calibrant.maps import FitSummary
from calibrant.metrics import aupr_error, auroc
from calibrant.numerics.softmax import to_working_precision
from calibrant.paper import CORBIERE, Paper
from calibrant.predictions import Predictions, TopLabel, check_predictions

Progress: TypeAlias = Callable[[str, float], None]
Augment: TypeAlias = Callable[[Tensor], Tensor]
_Batches: TypeAlias = Callable[[Tensor], Iterator[tuple[Tensor, Tensor]]]  # by indices: log-odds, targets of a batch

_NO_MISTAKE = "No prediction is wrong: there is no error to learn from. Give samples the network was not trained on."


class _Gathered(NamedTuple):
    """Numbers kept per sample; logits are not kept, as there may be a thousand classes."""

    features: Tensor  # (n, d), in the dtype of the network
    target: Tensor  # true-class probability, (n,), float32 or float64
    correct: Tensor  # (n,), bool
    softmax_log_odds: Tensor  # log-odds of the network's own confidence, (n,)


def _gathered(predictions: Predictions, features: object) -> _Gathered:
    checked = checks.as_features(features, rows=len(predictions))
    blocks = predictions.blocks()  # probabilities of all classes and samples at once may not fit into memory
    probs = (to_working_precision(block.logits).softmax(dim=1).gather(1, block.labels[:, None]) for block in blocks)
    known = (torch.cat(list(probs))[:, 0], predictions.correct, predictions.top.log_odds)
    return _Gathered(checked, *(part.to(checked.device) for part in known))


def split_samples(
    correct: Tensor, share: float, *, criterion: learned.ChooseEpochBy, seed: int
) -> tuple[Tensor, Tensor]:
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


def split_by_number(correct: Tensor, validation: object, *, criterion: learned.ChooseEpochBy) -> tuple[Tensor, Tensor]:
    """Return the same indices where the samples to hold out are given, (m,)."""
    n, numbers = len(correct), checks.as_tensor(validation, "validation").cpu()
    if numbers.ndim != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(f"validation must be whole numbers, (m,); got {numbers.dtype}, {tuple(numbers.shape)}.")
    if not 0 < len(numbers.unique()) == len(numbers) < n or numbers.min() < 0 or numbers.max() >= n:
        raise InputError(f"validation must name some of the samples 0 to {n - 1:,}, not all, and each once.")
    n_correct = int(correct.cpu()[numbers.long()].sum())
    if criterion != "mse" and n_correct in {0, len(numbers)}:
        raise SeparableError(
            f"choose_by={criterion!r} needs a correct and a wrong prediction among the samples of validation; of "
            f"{len(numbers):,} {n_correct:,} are correct. Name more of them, or give choose_by='mse'."
        )
    is_held_out = torch.zeros(n, dtype=torch.bool).index_fill_(0, numbers.long(), value=True)
    return (~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0]


def held_out_value(criterion: learned.ChooseEpochBy, log_odds: Tensor, target: Tensor, correct: Tensor) -> float:
    """Return the criterion's value for log-odds (n,), true-class probabilities (n,) and correctness (n,)."""
    log_odds = log_odds.double()
    confidence = log_odds.sigmoid()
    if criterion == "mse":
        return float((confidence - target).square().mean())
    return {"aupr_error": aupr_error, "auroc": auroc}[criterion](TopLabel(confidence, correct, log_odds))


@final
@dataclass(frozen=True)
class ConfidNet:
    """Learn the probability of the true class from a frozen classifier's features, and use it as confidence.

    The largest probability of a softmax is high for many wrong predictions; the probability of the true class is low
    for nearly all of them. At test the true class is unknown, so a small network learns that number from the features.
    Predictions do not change. On samples that a network was trained on nearly every prediction is correct, and there is
    little to learn from; held-out samples are better. It is trained to separate correct from wrong, and is not a
    calibrated probability of being correct: evaluate it by AUROC and AUPR, or fit a map on it.

    Features are computed once, in evaluation mode; with ``fit(augment=...)`` in every step, of augmented inputs, as in
    the paper.

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
    paper: ClassVar[Paper] = CORBIERE.at("Section 2")

    layers: checks.AtLeastOne = 5
    units: checks.AtLeastOne = 400
    epochs: checks.AtLeastOne = 500
    learning_rate: checks.Positive = 1e-4
    batch_size: checks.AtLeastOne = 128
    held_out: checks.OpenUnitInterval = 0.1
    choose_by: learned.ChooseEpochBy = "aupr_error"
    fine_tune_epochs: checks.AtLeastZero = 0
    fine_tune_learning_rate: checks.Positive = 1e-7
    seed: checks.Seed = 0

    def __post_init__(self) -> None:
        checks.check_options(self)

    def fit(
        self, model: nn.Module, data: object, *, layer: str | None = None, augment: Augment | None = None,
        validation: object = None, progress: Progress | None = None,
    ) -> learned.LearnedConfidence:  # fmt: skip
        """Fit the head, and return the classifier with a learned confidence beside its logits.

        The weights, modes and gradients of the classifier are unchanged, also after an error.

        Args:
            model: Any module with a layer to name; or one with ``features(x)``, (n, ...) -> (n, d), and ``head``, such
                that ``forward(x)`` is ``head(features(x))``.
            data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``, with inputs as the network takes them. A
                loader is read once, in its order; fine-tuning and augmentation need samples by number and refuse it.
            layer: Name of the layer whose inputs are the features, mostly the last: ``"fc"``, ``"classifier.6"``. None
                for a model with ``features`` and ``head``.
            augment: Returns a batch of inputs, (n, ...), at random a little different, such as shifted and mirrored
                images. Each step then runs the classifier, as in training it. Held-out samples are not augmented.
            validation: Numbers of the samples to hold out, (m,), such as those that the classifier was not trained on
                where the others are its training samples, as in the paper. None draws the share ``held_out``.
            progress: Called after every epoch with a text and the number of epochs so far.

        Warns:
            CalibrantWarning: If no prediction is wrong, or the softmax separates held-out samples as well.
        """
        source = inference.sample_source(data)
        if augment is not None and not callable(augment):
            raise InputError(f"augment must be a function of a batch of inputs; got {augment!r}.")
        if (self.fine_tune_epochs or augment) and source.n_samples is None:
            raise InputError(
                f"{'augmentation' if augment else 'fine-tuning'} reads the samples several times, and needs them by "
                "number; got a DataLoader. Pass its data set, or (inputs, labels)."
            )

        def gather() -> _Gathered:
            batches = learned.feature_batches(model, source, batch_size=self.batch_size, layer=layer)
            parts = [_gathered(predictions, features) for predictions, features in batches]
            return _Gathered(*(torch.cat(column) for column in zip(*parts, strict=True)))

        head, encoder = self._fit(gather, progress, _Network(model, source, layer, augment), validation)
        return learned.LearnedConfidence(model, head, encoder=encoder, layer=layer)

    def fit_features(
        self, predictions: Predictions, features: object, *, progress: Progress | None = None
    ) -> learned.ConfidenceHead:
        """Fit the head alone, on the device of the features; without a network nothing can be fine-tuned.

        Args:
            predictions: Predictions of the classifier.
            features: Features of the same samples, (n, d): the activations before the last layer.
            progress: Called after every epoch, as by :meth:`fit`.
        """
        if self.fine_tune_epochs:
            raise InputError("fine_tune_epochs must be 0 where there is no network; use fit(model, data).")
        check_predictions(predictions, "fit_features")
        return self._fit(lambda: _gathered(predictions, features), progress)[0]

    def settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def _fit(
        self,
        gather: Callable[[], _Gathered],
        progress: Progress | None,
        network: "_Network | None" = None,
        validation: object = None,
    ) -> tuple[learned.ConfidenceHead, nn.Module | None]:
        """Return the fitted head, and the fine-tuned encoder where there is a better one than the classifier's."""
        begun = time.perf_counter()
        if progress is not None and not callable(progress):
            raise InputError(f"progress must be a function of a text and a number; got {progress!r}.")
        encoder, fine_tuned = None, 0
        augmented = network is not None and network.augment is not None
        held = inference.frozen(network.model) if network is not None and augmented else nullcontext()
        with torch.inference_mode(mode=False), torch.enable_grad(), held:  # the caller may have switched gradients off
            run = _HeadFit(self, gather(), validation, progress)
            from_inputs = partial(run.from_inputs, network, augmented=augmented)
            epoch, value = run.train([run.head], from_inputs if augmented else run.from_features, run.from_features)
            if self.fine_tune_epochs and network is not None:
                tuned = learned.encoder_copy(network.model, trained=True, layer=network.layer)
                through_both = partial(from_inputs, encoder=tuned)
                held_out_of = partial(through_both, augmented=False)
                fine_tuned, value = run.train([run.head, tuned], through_both, held_out_of, value)
                tuned.requires_grad_(requires_grad=False).zero_grad()
                encoder = tuned if fine_tuned else None
        head, known = run.head, run.known
        softmax = run.value(known.softmax_log_odds[run.held_out])
        choice = learned.ChosenEpoch(epoch, self.epochs, fine_tuned, self.choose_by, value, softmax, len(run.held_out))
        no_mistake = _NO_MISTAKE if known.correct.all() else None
        notes = choice.notes() if no_mistake is None else (*choice.notes(), no_mistake)
        if (reason := no_mistake or choice.warning) is not None:
            warn(reason)
        head.choice, seconds = choice, time.perf_counter() - begun
        head.summary = FitSummary(self.name, self.settings(), len(known.correct), seconds, notes=notes)
        head.eval().requires_grad_(requires_grad=False).zero_grad()
        return head, encoder


class _Network(NamedTuple):
    """A classifier, its samples, and how the inputs of those that the head is fitted on vary."""

    model: nn.Module
    source: inference.SampleSource
    layer: str | None
    augment: Augment | None


@final
class _HeadFit:
    """A head in training: what is known of the samples, and which of them are held out."""

    def __init__(self, method: ConfidNet, known: _Gathered, validation: object, progress: Progress | None) -> None:
        self._method, self.known, self._progress = method, known, progress
        self._fitted, held_out = (
            split_samples(known.correct, method.held_out, criterion=method.choose_by, seed=method.seed)
            if validation is None
            else split_by_number(known.correct, validation, criterion=method.choose_by)
        )
        self.held_out = held_out.to(known.target.device)
        self.head = learned.ConfidenceHead(
            known.features.shape[1], layers=method.layers, units=method.units, seed=method.seed
        ).to(known.features.device)
        self._target = known.target.to(next(self.head.parameters()).dtype)

    def value(self, log_odds: Tensor) -> float:
        """Return the criterion of the choice for log-odds of the held-out samples."""
        known, rows = self.known, self.held_out
        return held_out_value(self._method.choose_by, log_odds, known.target[rows], known.correct[rows])

    def from_features(self, chosen: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield log-odds and targets of batches of samples, from the features of the frozen classifier."""
        return (
            (self.head(self.known.features[some]), self._target[some]) for some in chosen.split(self._method.batch_size)
        )

    def from_inputs(
        self, network: _Network | None, chosen: Tensor, *, encoder: nn.Module | None = None, augmented: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the same from the inputs: augmented ones, or through an encoder that is fine-tuned."""
        assert network is not None
        batches = network.source.read(chosen.cpu(), self._method.batch_size)
        for some, (inputs, labels, _) in zip(chosen.split(self._method.batch_size), batches, strict=True):
            seen = inference.to_device(inputs, inference.device_of(self.head))
            wanted, features = self._target[some], None
            if augmented and network.augment is not None:
                n, seen = len(seen), network.augment(seen)
                if not isinstance(seen, Tensor) or len(seen) != n:
                    got = f"shape {tuple(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__
                    raise InputError(f"augment must return as many inputs as it receives, {n}; got {got}.")
                with torch.no_grad():
                    logits, features = inference.logits_and_features(network.model, seen, network.layer)
                    probs = to_working_precision(logits).softmax(dim=1)
                    wanted = probs.gather(1, labels.to(probs.device)[:, None])[:, 0].to(self._target)
            if encoder is not None:
                features = inference.features_of(encoder, seen, network.layer)
            yield self.head(features), wanted

    def train(
        self, modules: Sequence[nn.Module], fitted_on: _Batches, held_out_of: _Batches, value: float | None = None
    ) -> tuple[int, float]:
        """Train the head, or the head and an encoder; return the epoch that is best on held-out samples, and its value.

        Its weights are left, those of the first of equals. Each batch of ``fitted_on`` follows the step of the one
        before. ``value`` is that of the current weights, epoch 0, if they may be the best.
        """
        method, device = self._method, self.known.target.device
        name, epochs, rate, before = "head", method.epochs, method.learning_rate, 0
        if len(modules) > 1:
            name, epochs, before = "fine-tuning", method.fine_tune_epochs, method.epochs
            rate = method.fine_tune_learning_rate
        tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        best, kept = 0, [tensor.detach().clone() for tensor in tensors]
        optimiser = torch.optim.Adam([weights for module in modules for weights in module.parameters()], lr=rate)
        order = torch.Generator().manual_seed(method.seed)
        for epoch in range(1, epochs + 1):
            shuffled = self._fitted[torch.randperm(len(self._fitted), generator=order)].to(device)
            total = torch.zeros((), device=device)
            for log_odds, target in fitted_on(shuffled):
                loss = mse_loss(log_odds.sigmoid(), target)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(target)
            with torch.no_grad():
                log_odds = torch.cat([batch for batch, _ in held_out_of(self.held_out)])
            if not log_odds.isfinite().all():
                raise FitError(
                    f"training must give finite confidences; in epoch {epoch} some were not. Take a lower learning "
                    "rate, or bring the features to a size of about one."
                )
            now = self.value(log_odds)
            if value is None or learned.is_better(method.choose_by, now, value):
                best, value, kept = epoch, now, [tensor.detach().clone() for tensor in tensors]
            if self._progress is not None:
                detail = f"squared error {float(total) / len(shuffled):.3g}, held out {method.choose_by} {now:.3g}"
                self._progress(f"{name}, epoch {epoch} of {epochs}: {detail}", before + epoch)
        with torch.no_grad():
            for tensor, at_best in zip(tensors, kept, strict=True):
                tensor.copy_(at_best)
        assert value is not None  # at least one epoch is run
        return best, value
