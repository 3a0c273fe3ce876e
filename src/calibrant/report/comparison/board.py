"""Several methods fitted on one set of predictions and judged on another, side by side."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from torch import Tensor

from calibrant.calibrators import Auto, Calibrator, DoNothing, TemperatureScaling
from calibrant.calibrators.choice.ranking import label
from calibrant.evidence import Contest, Estimate, estimate
from calibrant.maps import Map
from calibrant.metrics import ACE, AURC, AUROC, ECE, NLL, SCE, Accuracy, Brier, Metric
from calibrant.predictions import Predictions
from calibrant.report.comparison.change import Change, changes
from calibrant.report.comparison.held_out import check_held_out
from calibrant.report.comparison.trial import try_method

__all__ = ["Entry", "Leaderboard", "leaderboard", "leaderboard_metrics"]

NOTHING, TEMPERATURE = DoNothing.name, TemperatureScaling.name


@final
@dataclass(frozen=True)
class Entry:
    """One method: its numbers on the test rows, or why there are none."""

    name: str
    title: str
    metrics: dict[str, Estimate] = field(default_factory=dict)
    against: dict[str, dict[str, Change]] = field(default_factory=dict)  # rival ("none", "temperature"), then metric
    to_best: Change | None = None  # nll minus the lowest
    changed: float = math.nan  # share of test rows whose predicted class it changes
    seconds: float = math.nan  # of the fit
    notes: tuple[str, ...] = ()
    failure: str | None = None
    map: Map | None = field(default=None, repr=False, compare=False)

    @property
    def nll(self) -> float:
        """What the board is sorted by; NaN where the method did not fit."""
        return self.metrics["nll"].value if self.metrics else math.nan

    def beats(self, rival: str) -> bool:
        """Whether its log-loss is lower than the rival's beyond noise, with all that was tried taken into account."""
        return rival in self.against and self.against[rival]["nll"].side == "better"


@final
@dataclass(frozen=True)
class Leaderboard:
    """Methods by their log-loss on the test rows, lowest first; those that did not fit come last."""

    entries: tuple[Entry, ...]
    calibration_rows: int
    test_rows: int
    classes: int
    n_bins: int
    seed: int
    resamples: int
    cautions: tuple[str, ...] = ()  # what should be known of the two sets of rows before anything else

    @property
    def fitted(self) -> tuple[Entry, ...]:
        """The entries that have numbers; never empty, because doing nothing is among them."""
        return tuple(entry for entry in self.entries if entry.failure is None)

    @property
    def best(self) -> Entry:
        """The lowest log-loss."""
        return self.fitted[0]

    @property
    def recommended(self) -> Entry:
        """What to use: the lowest log-loss among the methods that beat both rivals beyond noise.

        Where there is none, temperature scaling, if that beats doing nothing beyond noise; else doing nothing. With
        many methods on one test file the lowest log-loss is partly luck, so the simpler get the benefit of doubt.
        """
        useful = [entry for entry in self.fitted if entry.beats(NOTHING)]
        temperature = self.find(TEMPERATURE)
        better = useful if temperature is None else [entry for entry in useful if entry.beats(TEMPERATURE)]
        if not better and temperature is not None and temperature in useful:
            return temperature
        return next(iter([*better, *useful]), next(entry for entry in self.fitted if entry.name == NOTHING))

    def find(self, name: str) -> Entry | None:
        """The entry of that name, if it has numbers."""
        return next((entry for entry in self.fitted if entry.name == name), None)


def leaderboard_metrics(n_bins: int = 15) -> tuple[Metric, ...]:
    """What every method is judged by; the first decides."""
    return NLL(), Brier(), ECE(n_bins), ACE(n_bins), SCE(n_bins), AUROC(), AURC(), Accuracy()


def leaderboard(
    calibration: Predictions,
    test: Predictions,
    calibrators: Iterable[Calibrator],
    *,
    n_bins: int = 15,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _text, _done, _total: None,
) -> Leaderboard:
    """Fit every method on the calibration rows, judge it on the test rows, and rank by log-loss.

    Doing nothing and temperature scaling always take part: every other method is compared with both, by the same
    resamples of the same rows. Temperature scaling against doing nothing is one planned test: its p-value is not
    corrected, so that trying more methods cannot change the answer. Those of all other methods are corrected for their
    number (Holm), one metric and rival at a time. Together the two can thus err in up to 10 of 100 cases, not 5. A
    method that cannot be fitted becomes an entry with the reason; what a fit warns of becomes its notes.

    Args:
        calibration: Rows to fit on, that the model was not trained on.
        test: Other rows, with the same classes.
        calibrators: The methods; one named twice takes part once.
        n_bins: Bins of the binned errors.
        resamples: Draws behind intervals and tests.
        seed: The same seed gives the same numbers.
        progress: Called with what begins, how many methods are done, and how many there are.

    Raises:
        InputError: If the two sets have different classes.

    Warns:
        CalibrantWarning: If the sets share rows, or differ in accuracy beyond noise.

    Example:
        >>> import torch
        >>> logits = 4 * torch.randn(600, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = (logits / 4).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(1)).squeeze()
        >>> rows = Predictions.from_logits(logits, labels)
        >>> leaderboard(rows[:300], rows[300:], [], resamples=100).best.name
        'temperature'
    """
    cautions = check_held_out(calibration, test)
    # What auto takes stands before auto, which would otherwise win by a tie.
    given = sorted(calibrators, key=lambda method: isinstance(method, Auto))
    methods = {label(method): method for method in (DoNothing(), TemperatureScaling(), *given)}
    metrics = leaderboard_metrics(n_bins)
    contest = Contest(test, metrics, resamples=resamples, seed=seed)
    entries: list[Entry] = []
    drawn: dict[str, dict[str, Tensor]] = {}
    for place, (name, method) in enumerate(methods.items()):
        progress(f"fitting {name}", place, len(methods))
        trial = try_method(method, calibration, test)
        if trial.mapped is None:
            entries.append(Entry(name, method.title, notes=trial.notes, failure=trial.failure))
            continue
        progress(f"judging {name}", place, len(methods))
        drawn[name] = contest.values(trial.mapped)
        entries.append(
            Entry(
                name,
                method.title,
                metrics=estimate(trial.mapped, metrics, resamples=resamples, seed=seed),
                changed=float((trial.mapped.predicted != test.predicted).double().mean()),
                seconds=trial.seconds,
                notes=trial.notes,
                map=trial.map,
            )
        )
    progress("comparing", len(methods), len(methods))
    return Leaderboard(
        _compared(entries, contest, drawn),
        len(calibration),
        len(test),
        test.n_classes,
        n_bins,
        seed,
        resamples,
        cautions,
    )


def _compared(entries: Sequence[Entry], contest: Contest, drawn: dict[str, dict[str, Tensor]]) -> tuple[Entry, ...]:
    """The entries in order, with their differences to both rivals and to the best."""
    ordered = sorted(entries, key=lambda entry: (entry.failure is not None, math.isnan(entry.nll), entry.nll))
    rivals = [name for name in (NOTHING, TEMPERATURE) if name in drawn]
    against = {rival: _against(rival, contest, drawn) for rival in rivals}
    to_best = {name: by_metric["nll"] for name, by_metric in _against(ordered[0].name, contest, drawn).items()}
    return tuple(
        replace(
            entry,
            against={rival: found[entry.name] for rival, found in against.items() if entry.name in found},
            to_best=to_best.get(entry.name),
        )
        for entry in ordered
    )


def _against(rival: str, contest: Contest, drawn: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Change]]:
    """Every other method's changes against the rival, by method and metric."""
    # From either side, temperature scaling against doing nothing is the same planned test.
    planned = {NOTHING: TEMPERATURE, TEMPERATURE: NOTHING}.get(rival)
    found = {name: contest.differences(drawn[rival], values) for name, values in drawn.items() if name != rival}
    by_metric = {
        metric.name: changes(
            metric, {name: differences[metric.name] for name, differences in found.items()}, planned=planned
        )
        for metric in contest.metrics
    }
    return {name: {metric: by_name[name] for metric, by_name in by_metric.items()} for name in found}
