"""Refinement: how well confidence separates right from wrong predictions, before and after each map."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.diagnosis.baseline import Differences
from calibrant.diagnosis.evaluated import EvaluatedCandidate
from calibrant.diagnosis.over_seeds import Record, Spread, TwoSample, spread, two_sample
from calibrant.diagrams import confidence_density
from calibrant.evidence import Difference
from calibrant.metrics import murphy, refinement_terms
from calibrant.predictions import TopLabel

__all__ = ["NOT_AN_IDENTITY", "SEPARATION", "DensityCurves", "Refinement", "RefinementRow", "ScoreSplit", "refinement"]

NOT_AN_IDENTITY = (
    "equation 9 (ECE = α − β − γ) is not an identity: its right side is no calibration error. Exact is ECE = mean "
    "confidence − accuracy where no bin is underconfident (equation 7), and ECE ≥ its size always."
)
# Right answers, and AUROC, AUPR of right and of wrong ones, AURC, E-AURC; then log-loss and Brier scores.
SEPARATION = ("accuracy", "auroc", "aupr_success", "aupr_error", "aurc", "e_aurc", "nll", "brier", "top_brier")
_MURPHY = ("reliability", "resolution", "uncertainty", "within_bin", "refinement")
_TERMS = ("alpha", "beta", "gamma", "equation_9", "ece", "confidence_minus_accuracy", "overconfident_bins")


@final
@dataclass(frozen=True, eq=False)
class DensityCurves(Record):
    """Densities of the confidence of right and of wrong answers, on one grid, averaged over runs."""

    confidence: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]
    median_right: Spread
    median_wrong: Spread


@final
@dataclass(frozen=True, eq=False)
class RefinementRow(Record):
    """One candidate under one map, over its runs.

    ``murphy`` divides the top-label Brier score: reliability is what calibration could still remove, refinement
    (uncertainty − resolution) what it cannot. Both are of binned answers, and noise inflates reliability and resolution
    alike, by about accuracy · (1 − accuracy)/n a bin. AUPR and AURC depend on accuracy: compare them among candidates
    of the same. A map may change answers (structured vector scaling does): the accuracy is that after it.
    """

    map: str
    metrics: Mapping[str, Spread]  # those of SEPARATION
    t_tests: Mapping[str, TwoSample]  # of each against the baseline's runs under this map; empty for the baseline
    auroc_difference: Difference | None  # on the same samples
    murphy: Mapping[str, Spread]
    terms: Mapping[str, Spread]  # of equation 9, with ECE and mean confidence − accuracy
    identity_holds: tuple[bool, ...]  # for each run: no bin is underconfident, so that ECE is that difference exactly
    density: DensityCurves | None  # None where no run could be mapped


@final
@dataclass(frozen=True)
class ScoreSplit(Record):
    """A proper score of the uncalibrated network: what a temperature can remove, and what remains, over runs."""

    total: Spread
    calibration: Spread
    refinement: Spread


@final
@dataclass(frozen=True, eq=False)
class Refinement(Record):
    """One candidate.

    ``splits`` divide log-loss and Brier score over all classes, by a temperature that is cross-fitted on the test
    samples (see :func:`~calibrant.metrics.calibration_refinement`). A richer recalibration would find more to remove:
    calibration is a lower bound, and refinement an upper one. The cost of fitting the temperature is in refinement,
    too: about 1/(2n) nats of log-loss.
    """

    candidate: str
    rows: tuple[RefinementRow, ...]  # as it is, then after each map
    splits: Mapping[str, ScoreSplit]  # nll, brier; empty where no temperature is best
    note: str = NOT_AN_IDENTITY


def refinement(
    candidate: EvaluatedCandidate, baseline: EvaluatedCandidate, differences: Differences, *, n_bins: int = 15
) -> Refinement:
    """Refinement of a candidate, beside that of the baseline.

    Args:
        candidate: A candidate of an :class:`~calibrant.diagnosis.evaluated.Evaluated`.
        baseline: The candidate to compare with, or the same one.
        differences: Those of the candidate from :func:`~calibrant.diagnosis.baseline.differences_from`, by map and
            metric; empty for the baseline.
        n_bins: Number of bins of the decompositions.

    Reference:
        Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, arXiv:2106.09385.
    """
    rows = [
        _row(
            name, candidate, None if candidate is baseline else baseline, differences.get(name, {}).get("auroc"), n_bins
        )
        for name in candidate.runs[0].outcomes
    ]
    return Refinement(candidate.name, tuple(rows), _splits(candidate))


def _row(
    name: str, candidate: EvaluatedCandidate, baseline: EvaluatedCandidate | None, auroc: Difference | None, n_bins: int
) -> RefinementRow:
    metrics = {metric: candidate.over_runs(name, metric) for metric in SEPARATION}
    tests = {} if baseline is None else {
        metric: two_sample(baseline.over_runs(name, metric).values, found.values) for metric, found in metrics.items()
    }  # fmt: skip
    tops = candidate.tops(name).values()
    terms = [refinement_terms(top, n_bins=n_bins) for top in tops]
    return RefinementRow(
        map=name,
        metrics=metrics,
        t_tests=tests,
        auroc_difference=auroc,
        murphy=_spreads([murphy(top, n_bins=n_bins) for top in tops], _MURPHY),
        terms=_spreads(terms, _TERMS),
        identity_holds=tuple(each.overconfident_bins == 1 for each in terms),
        density=_density(tops),
    )


def _spreads(found: Sequence[object], names: Iterable[str]) -> dict[str, Spread]:
    return {name: spread([float(getattr(each, name)) for each in found]) for name in names}


def _density(tops: Iterable[TopLabel]) -> DensityCurves | None:
    found = [confidence_density(top) for top in tops]
    if not found:
        return None
    return DensityCurves(
        tuple(found[0].confidence.tolist()),
        _mean([each.right for each in found if each.n_right] or [found[0].right]),
        _mean([each.wrong for each in found if each.n_wrong] or [found[0].wrong]),
        spread([each.median_right for each in found]),
        spread([each.median_wrong for each in found]),
    )


def _mean(curves: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(torch.stack(list(curves)).mean(0).tolist())


def _splits(candidate: EvaluatedCandidate) -> dict[str, ScoreSplit]:
    names = [name for name in ("nll", "brier") if any(name in run.splits for run in candidate.runs)]
    splits = {name: [run.splits[name] for run in candidate.runs if name in run.splits] for name in names}
    return {
        name: ScoreSplit(
            spread([each.total for each in found]),
            spread([each.calibration for each in found]),
            spread([each.refinement for each in found]),
        )
        for name, found in splits.items()
    }
