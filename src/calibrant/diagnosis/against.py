"""Candidates held against a reference on the same test rows, with the noise of rows and of seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.diagnosis.fitting import RAW
from calibrant.diagnosis.judged import Judged, JudgedCandidate
from calibrant.diagnosis.over_seeds import LEVEL, Interval, Noise, interval_of, noise_of_seeds
from calibrant.diagnosis.record import Record
from calibrant.evidence import Difference, PairedBootstrap, holm
from calibrant.metrics import AUROC, ECE, Accuracy, Metric

__all__ = ["Against", "Side", "compared_with"]

Side: TypeAlias = Literal["better", "worse", "alike"]
Drawn: TypeAlias = Mapping[int, Mapping[str, Tensor]]  # by seed and metric, of the rows and then of every resample


@final
@dataclass(frozen=True)
class Against(Record):
    """A candidate's number beside the reference's: means over runs, on the same test rows.

    The difference is candidate minus reference, with the 95 % interval of this one difference and its p-value. With one
    run of each it is the paired bootstrap of rows, and says which of two networks does better on rows like these, not
    which way to train does. With more, the same resampled rows serve all runs, so that what they have in common
    cancels, and the noise of seeds is added (see :mod:`calibrant.diagnosis.over_seeds`). ``corrected_p`` is Holm's over
    the candidates; ``side`` is "alike" unless that is at most .05 and the interval leaves 0 out.
    """

    metric: str
    value: float
    reference: float
    difference: float
    low: float
    high: float
    p: float
    corrected_p: float
    side: Side
    covers_seeds: bool
    by_seed: Mapping[int, Difference]  # paired bootstraps of the two runs of each seed that both have


def compared_with(
    judged: Judged, reference: str, *, resamples: int = 500, seed: int = 0
) -> dict[str, dict[str, dict[str, Against]]]:
    """Every candidate but the reference: ECE, AUROC and accuracy under every map, by candidate, map and metric.

    Maps are not fitted again in a resample: the noise of the calibration rows is left out, but for what of it differs
    from seed to seed. A candidate without a single run under a map has NaN there.

    Args:
        judged: From :func:`~calibrant.diagnosis.judged.judge_candidates`.
        reference: The name of a candidate.
        resamples: Bootstrap draws of the test rows.
        seed: Of the draws.
    """
    metrics: tuple[Metric, ...] = (ECE(judged.n_bins), AUROC(), Accuracy())
    rival = judged.find(reference)
    others = [each for each in judged.candidates if each is not rival]
    found: dict[str, dict[str, dict[str, Against]]] = {each.name: {} for each in others}
    contest = PairedBootstrap(next(iter(rival.tops(RAW).values())), metrics, resamples=resamples, seed=seed)
    for name in judged.map_names if others else ():
        against = _drawn(contest, rival, name)
        for candidate in others:
            drawn = _drawn(contest, candidate, name)
            found[candidate.name][name] = {
                metric.name: _against(contest, metric, against, drawn, judged.n) for metric in metrics
            }
        for metric in metrics:
            _correct([of_maps[name] for of_maps in found.values()], metric)
    return found


def _drawn(contest: PairedBootstrap, candidate: JudgedCandidate, map_name: str) -> Drawn:
    return {seed: contest.values(top) for seed, top in candidate.tops(map_name).items()}


def _against(contest: PairedBootstrap, metric: Metric, reference: Drawn, candidate: Drawn, n: int) -> Against:
    first, second = (_known(drawn, metric) for drawn in (reference, candidate))
    means = [float(torch.stack(list(each.values()))[:, 0].mean()) if each else math.nan for each in (first, second)]
    pairs = {seed: (first[seed], second[seed]) for seed in second if seed in first}
    covers_seeds = bool(first and second) and len(first) + len(second) > 2
    if covers_seeds:
        interval = _of_means(metric, list(first.values()), list(second.values()), n)
    elif first and second:
        interval = _of_two_runs(contest.difference(metric, *first.values(), *second.values()))
    else:
        interval = Interval(math.nan, math.nan, math.nan)
    return Against(
        metric=metric.name,
        value=means[1],
        reference=means[0],
        difference=means[1] - means[0],
        low=interval.low,
        high=interval.high,
        p=interval.p,
        corrected_p=math.nan,
        side="alike",
        covers_seeds=covers_seeds,
        by_seed={seed: contest.difference(metric, *pair) for seed, pair in pairs.items()},
    )


def _known(drawn: Drawn, metric: Metric) -> dict[int, Tensor]:
    """Of the runs that have such a number: without wrong answers, for one, there is no AUROC."""
    return {seed: values[metric.name] for seed, values in drawn.items() if not values[metric.name][0].isnan()}


def _of_two_runs(found: Difference) -> Interval:
    # Draws that are all the same, but not 0, tell nothing of noise.
    same = math.isclose(found.low, found.high, rel_tol=1e-9) and found.value != 0
    return Interval(found.low, found.high, math.nan if same else found.p)


def _of_means(metric: Metric, first: Sequence[Tensor], second: Sequence[Tensor], n: int) -> Interval:
    change = torch.stack(list(second)).mean(0) - torch.stack(list(first)).mean(0)
    value, drawn = float(change[0]), change[1:][~change[1:].isnan()]
    # Noise inflates every calibration error, and resampling does it a second time.
    bias = float(drawn.mean()) - value if metric.family == "calibration" else 0.0
    rows = Noise(float(drawn.var()) if len(drawn) > 1 else 0.0, max(n - 1, 1))
    seeds = noise_of_seeds([float(each[0]) for each in first], [float(each[0]) for each in second])
    assert seeds is not None, "there are more than two runs"
    return interval_of(value, [rows, seeds], bias=bias)


def _correct(rows: Sequence[dict[str, Against]], metric: Metric) -> None:
    """Put in p-values corrected for the number of candidates, and what follows from them."""
    p = holm({str(place): row[metric.name].p for place, row in enumerate(rows)})
    for place, row in enumerate(rows):
        found = row[metric.name]
        row[metric.name] = replace(found, corrected_p=p[str(place)], side=_side(metric, found, p[str(place)]))


def _side(metric: Metric, found: Against, p: float) -> Side:
    if not p <= LEVEL or found.low <= 0 <= found.high:
        return "alike"
    return "better" if (found.difference < 0) == metric.lower_is_better else "worse"
