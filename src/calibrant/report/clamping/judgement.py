"""A clamped network judged on rows that nothing was fitted on, beside what a map of logits alone would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from torch import Tensor

from calibrant.calibrators import Calibrator, DoNothing, TemperatureScaling
from calibrant.calibrators.choice.ranking import label
from calibrant.clamping import ClampedModel, ClampingSummary, NeuralClamping
from calibrant.errors import InputError
from calibrant.evidence import Contest, estimate
from calibrant.maps import Scale
from calibrant.metrics import ACE, AUROC, ECE, NLL, Accuracy, Brier, Metric
from calibrant.predictions import Predictions
from calibrant.report.comparison.board import NOTHING, TEMPERATURE, Entry
from calibrant.report.comparison.change import Change, changes
from calibrant.report.comparison.held_out import check_held_out
from calibrant.report.comparison.trial import try_method

__all__ = ["CLAMPED", "ClampingJudgement", "clamping_metrics", "judge_clamping"]

CLAMPED = "clamped"


@final
@dataclass(frozen=True)
class ClampingJudgement:
    """Doing nothing, temperature scaling, the head alone where it is another, and the clamped network, in this order.

    Those that could not be fitted are left out. ``against`` of the clamped one has all others, but not the head alone
    where δ is 0, because it is the same.
    """

    entries: tuple[Entry, ...]
    summary: ClampingSummary
    head: str  # the entry that has the head without δ
    temperature: float | None  # where the head is one
    norm: float  # ‖δ‖
    largest: float  # of |δ|
    calibration_rows: int
    test_rows: int
    classes: int
    n_bins: int
    seed: int
    resamples: int
    cautions: tuple[str, ...] = ()
    predictions: Mapping[str, Predictions] = field(default_factory=dict, repr=False, compare=False)  # of the test rows

    @property
    def clamped(self) -> Entry:
        """The clamped network."""
        return self.entries[-1]

    @property
    def moves(self) -> bool:
        """Whether δ is anything but 0."""
        return self.norm > 0

    @property
    def rival(self) -> str:
        """Whom δ must beat: temperature scaling or the head alone, whichever has the lower log-loss here.

        Not the head alone in any case: where it minimises a focal loss, or the solver stops before its optimum, the
        clamped network can be better than it for another reason than δ.
        """
        beside = [entry for entry in self.entries[:-1] if entry.name in {TEMPERATURE, self.head}]
        return min(beside, key=lambda entry: entry.nll).name if beside else NOTHING

    def find(self, name: str) -> Entry | None:
        """The entry of that name, if it has numbers."""
        return next((entry for entry in self.entries if entry.name == name), None)


def clamping_metrics(n_bins: int = 15) -> tuple[Metric, ...]:
    """What is judged."""
    return Accuracy(), NLL(), ECE(n_bins), ACE(n_bins), Brier(), AUROC()


def judge_clamping(
    clamped: ClampedModel,
    calibration: Predictions,
    before: Predictions,
    after: Predictions,
    *,
    head: Calibrator | None = None,
    n_bins: int = 15,
    resamples: int = 500,
    seed: int = 0,
) -> ClampingJudgement:
    """Compare a clamped network with the network itself, by the same resamples of the same test rows.

    "Does δ help" is asked against temperature scaling and, with another head or a focal loss, against that head alone,
    both fitted on the same calibration rows.

    Args:
        clamped: What a fit gave, with its summary.
        calibration: The network's own predictions for the rows it was fitted on.
        before: The network's own predictions for other rows.
        after: The clamped network's for the same.
        head: The method of the head; a temperature unless given.
        n_bins: Bins of the binned errors.
        resamples: Draws behind intervals and tests.
        seed: The same seed gives the same numbers.

    Raises:
        InputError: If the rows do not belong together, or the clamped model has no summary.

    Warns:
        CalibrantWarning: If the sets share rows, or differ in accuracy beyond noise.

    Example:
        >>> import torch
        >>> from calibrant.clamping import NeuralClamping
        >>> network = torch.nn.Linear(4, 3).eval()
        >>> inputs = torch.randn(600, 4, generator=torch.manual_seed(0))
        >>> logits = network(inputs).detach()
        >>> labels = (logits / 2).softmax(1).multinomial(1, generator=torch.manual_seed(1))[:, 0]
        >>> rows = Predictions.from_logits(logits, labels)
        >>> clamped = NeuralClamping(strength=float("inf")).fit(network, (inputs[:300], labels[:300]))
        >>> after = Predictions.from_logits(clamped(inputs[300:]).detach(), labels[300:])
        >>> found = judge_clamping(clamped, rows[:300], rows[300:], after, resamples=100)
        >>> [entry.name for entry in found.entries], found.moves
        (['none', 'temperature', 'clamped'], False)
    """
    summary = clamped.summary
    if summary is None:
        raise InputError("clamped must have the summary of its fit to be judged; it has none.")
    cautions = check_held_out(calibration, before)
    alone = _alone(head or TemperatureScaling(), summary.gamma)
    methods = {label(method): method for method in (DoNothing(), TemperatureScaling(), alone)}
    entries, predictions = [], {}
    for name, method in methods.items():
        trial = try_method(method, calibration, before)
        if trial.mapped is not None:
            predictions[name] = trial.mapped
            entries.append(Entry(name, method.title, seconds=trial.seconds, notes=trial.notes, map=trial.map))
    predictions[CLAMPED] = after
    entries.append(Entry(CLAMPED, NeuralClamping.title, seconds=summary.seconds, notes=summary.notes))
    delta = clamped.delta.detach().double()
    contest = Contest(before, clamping_metrics(n_bins), resamples=resamples, seed=seed)
    judged = _judged(entries, predictions, contest, None if delta.any() else label(alone))
    return ClampingJudgement(
        tuple(
            replace(entry, metrics=estimate(rows, contest.metrics, resamples=resamples, seed=seed))
            for entry, rows in zip(judged, predictions.values(), strict=True)
        ),
        summary,
        head=label(alone),
        temperature=float(clamped.head.temperature) if isinstance(clamped.head, Scale) else None,
        norm=float(delta.norm()),
        largest=float(delta.abs().max()),
        calibration_rows=len(calibration),
        test_rows=len(before),
        classes=before.n_classes,
        n_bins=n_bins,
        seed=seed,
        resamples=resamples,
        cautions=cautions,
        predictions=predictions,
    )


def _alone(head: Calibrator, gamma: float) -> Calibrator:
    """What the head is without δ: with γ, a temperature that minimises the same focal loss."""
    return TemperatureScaling(criterion="focal", gamma=gamma) if gamma > 0 and head.name == TEMPERATURE else head


def _judged(
    entries: Sequence[Entry], predictions: Mapping[str, Predictions], contest: Contest, same: str | None
) -> list[Entry]:
    """The entries with their differences: of the clamped one to all others but the same, of the others to nothing."""
    drawn = {name: contest.values(rows) for name, rows in predictions.items()}
    before, judged = predictions[NOTHING], []
    for entry in entries:
        rivals = [name for name in drawn if name not in {CLAMPED, same}] if entry.name == CLAMPED else [NOTHING]
        against = {rival: _changes(contest, drawn[rival], drawn[entry.name]) for rival in rivals if rival != entry.name}
        changed = float((predictions[entry.name].predicted != before.predicted).double().mean())
        judged.append(replace(entry, against=against, changed=changed))
    return judged


def _changes(contest: Contest, first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Change]:
    """Of each metric. Every one of these questions was there before the numbers, so none is corrected."""
    found = contest.differences(first, second)
    return {metric.name: changes(metric, {CLAMPED: found[metric.name]})[CLAMPED] for metric in contest.metrics}
