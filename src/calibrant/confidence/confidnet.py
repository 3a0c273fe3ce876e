"""ConfidNet: the probability of the true class, learned from the features of a classifier that stays as it is."""

import dataclasses
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final, get_args

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_known, check_positive, check_seed
from calibrant.confidence.best_epoch import BestEpoch
from calibrant.confidence.chosen_epoch import ChosenEpoch, chosen_epoch
from calibrant.confidence.confidence_head import ConfidenceHead
from calibrant.confidence.fine_tuning import answers_of_inputs, check_numbered, encoder_copy
from calibrant.confidence.gathering import Gathered, gathered_from_model, gathered_from_predictions
from calibrant.confidence.held_out import ChooseEpochBy, Parts, split_rows
from calibrant.confidence.labelled_batches import rows_as_given
from calibrant.confidence.learned_confidence import LearnedConfidence
from calibrant.confidence.training_stage import Progress, Stage
from calibrant.errors import CalibrantWarning, InputError
from calibrant.maps import FitSummary
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["ConfidNet"]

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
        layers: Of the head, linear ones; the last gives one number.
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
        seed: Of the first weights, the held-out rows and the order.

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
            predictions: Of the classifier.
            features: Of the same rows, the activations before its last layer, (n, d). Training is on their device.
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
