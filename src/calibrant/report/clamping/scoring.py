"""Numbers and paired differences of several sets of predictions for the same test rows, by the same resamples."""

from dataclasses import replace
from typing import final

from torch import Tensor

from calibrant.calibrators import Calibrator
from calibrant.calibrators.base import Trial
from calibrant.comparison import MethodResult
from calibrant.evidence import Difference, PairedBootstrap, estimate
from calibrant.predictions import Predictions
from calibrant.report.clamping.effect import DeltaEffect
from calibrant.report.clamping.judgement import clamping_metrics

__all__ = ["Scoring"]


@final
class Scoring:
    """Judges one set of predictions after the other, each against those before it."""

    def __init__(self, before: Predictions, n_bins: int, resamples: int, seed: int) -> None:
        self._before, self._resamples, self._seed = before, resamples, seed
        self._contest = PairedBootstrap(before, clamping_metrics(n_bins), resamples=resamples, seed=seed)
        self._drawn: dict[str, dict[str, Tensor]] = {}
        self.known: dict[str, MethodResult] = {}
        self.predictions: dict[str, Predictions] = {}
        self.failures: list[MethodResult] = []

    def judge_trial(self, name: str, method: Calibrator, trial: Trial, rivals: list[str]) -> None:
        """A method that may not have fitted."""
        entry = MethodResult(name, method.title, notes=trial.notes, seconds=trial.seconds, map=trial.map)
        if trial.transformed is None:
            self.failures.append(replace(entry, failure=trial.failure))
        else:
            self.judge(entry, trial.transformed, rivals)

    def judge(self, entry: MethodResult, rows: Predictions, rivals: list[str]) -> None:
        """Its numbers, and their differences to those of its rivals."""
        self.predictions[entry.name], self._drawn[entry.name] = rows, self._contest.values(rows)
        judged = [each for each in rivals if each in self.known]
        self.known[entry.name] = replace(
            entry,
            metrics=estimate(rows, self._contest.metrics, resamples=self._resamples, seed=self._seed),
            differences={each: self._changes(each, entry.name) for each in judged},
            changed=float((rows.predicted != self._before.predicted).double().mean()),
        )

    def effect(self, moved: str, still: str) -> DeltaEffect | None:
        """Of δ alone, where the head could be fitted both with it and without."""
        if moved not in self.known or still not in self.known:
            return None
        after, before = self.known[moved], self.known[still]
        return DeltaEffect(moved, still, before.nll, after.nll, after.differences[still])

    def _changes(self, rival: str, name: str) -> dict[str, Difference]:
        """Of each metric. Every one of these questions was there before the numbers, so none is corrected."""
        return self._contest.differences(self._drawn[rival], self._drawn[name])
