"""Fit calibration methods on one set of predictions, evaluate them on another, and recommend one."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack, final

import numpy as np
import torch

from calibrant.calibrators import (
    Auto,
    Calibrator,
    ClasswiseHistogramBinning,
    HistogramBinning,
    IsotonicRegression,
    PlattScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from calibrant.calibrators.auto import candidate_set
from calibrant.calibrators.base import Trial, absent_classes, class_names, fold_positions, try_fit
from calibrant.checks import check_at_least, check_evidence, check_rates, with_devices_of_inputs
from calibrant.errors import CHECK_LABELS, InputError, warn
from calibrant.evidence import (
    Difference,
    Estimate,
    NetBenefit,
    PairedBootstrap,
    Resampled,
    by_subject,
    corrected_differences,
    decision_curve,
    estimate,
    smallest_effect,
)
from calibrant.evidence.clusters import copies_in, effective_number_of
from calibrant.evidence.estimates import Draws
from calibrant.evidence.intervals import is_like_guessing
from calibrant.maps import Map
from calibrant.metrics import ACE, AURC, AUROC, ECE, NLL, SCE, Accuracy, Brier, Metric
from calibrant.metrics.base import check_metrics
from calibrant.notebook import HasReport
from calibrant.numerics.softmax import Normalised
from calibrant.predictions import OF_CORRECTNESS, Predictions, as_risk, counted_samples

# A larger share of the test samples in both sets is no chance.
_BY_CHANCE = 0.01
_NUMBERS = 1 << 20  # logits that are read at a time
# So many outputs that occur once are not all in another set by chance.
_FEWEST_OUTPUTS = 5
_LOG_CHANCE = -20.0  # logarithm of the probability of an order of labels that is no chance
# Standard errors between the two accuracies; chance alone exceeds them in 6 of 100,000 cases.
_Z_DIFFERENT = 4.0


ClassNames: TypeAlias = tuple[str, ...] | None


class Caution(NamedTuple):
    """A problem of the two sets that puts every result in doubt, and what it means."""

    problem: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.consequence}"


def check_held_out(calibration: Predictions, test: Predictions) -> tuple[Caution, ...]:
    """Refuse sets of different classes; warn if they share samples or differ in accuracy beyond chance."""
    check_classes(*((samples.n_classes, samples.class_names) for samples in (calibration, test)))
    shares = [(one.top.accuracy, effective_number_of(one) or len(one)) for one in (calibration, test)]
    return warn_of_cautions(calibration, test, *shares)


def check_classes(calibration: tuple[int, ClassNames], test: tuple[int, ClassNames]) -> None:
    """Refuse sets whose numbers or names of classes differ."""
    (k, names), (other_k, others) = calibration, test
    if k != other_k:
        raise InputError(
            f"calibration and test samples must have the same classes; got {k} and {other_k}. Take both from one model."
        )
    if names is not None and others is not None and names != others:
        index = next(i for i, pair in enumerate(zip(names, others, strict=True)) if pair[0] != pair[1])
        raise InputError(
            f"calibration and test samples must name the classes alike, in the same order; class {index} is "
            f"{names[index]!r} in one and {others[index]!r} in the other."
        )


def warn_of_cautions(
    calibration: Predictions, test: Predictions, *accuracies: tuple[float, float], sampled: float = 1.0
) -> tuple[Caution, ...]:
    """Warn if two sets share samples, or if two accuracies, each with its number of samples, differ or are like chance.

    ``sampled``: the share of all calibration samples that the first set is.
    """
    cautions, common = list[Caution](), samples_in_both(calibration, test)
    if common > _BY_CHANCE * len(test) * sampled and (sampled == 1 or common >= _FEWEST_OUTPUTS):
        both = f"{common:,} of {len(test):,} test samples are also calibration samples"
        some = f"{common:,} samples are in both, of {len(calibration):,} and {len(test):,} drawn from each"
        consequence = (
            "methods are evaluated on what they were fitted on, which favours flexible ones. Use different samples for "
            "one of the two."
        )
        cautions.append(Caution(both if sampled == 1 else some, consequence))
    elif _have_same_labels(calibration, test):
        consequence = (
            "they look like predictions of two models for the same samples, and the methods fitted on the first are "
            "applied to the second. To compare the two, evaluate one with the other as its baseline (--baseline)."
        )
        cautions.append(Caution("both sets have the same labels in the same order", consequence))
    (first, n), (second, other_n) = accuracies
    cautions += _like_guessing(test, second, other_n, "test samples")
    if z_between(first * n, n, second * other_n, other_n) > _Z_DIFFERENT:
        consequence = (
            f"accuracy is {first:.1%} on the calibration samples and {second:.1%} on the test samples, more than "
            "chance explains. Check that both are random parts of the same data, and that the network was trained on "
            "neither."
        )
        cautions.append(Caution("the two sets may not be drawn alike", consequence))
    cautions += _classes_of_one_set(calibration, test)
    for caution in cautions:
        warn(str(caution))
    return tuple(cautions)


def warn_of_one_set(samples: Predictions) -> tuple[Caution, ...]:
    """Warn if samples that are compared in folds are copies of each other, or if predictions are like guessing."""
    size = effective_number_of(samples) or len(samples)
    cautions = _like_guessing(samples, samples.top.accuracy, size, f"{len(samples):,} samples")
    if copies := copies_in(samples):
        consequence = (
            "methods are evaluated on what they were fitted on, which favours flexible ones. Leave copies out, or name "
            "the column that they share by --clusters."
        )
        cautions.append(Caution(f"{copies:,} of {len(samples):,} samples may be copies of others", consequence))
    for caution in cautions:
        warn(str(caution))
    return tuple(cautions)


def _like_guessing(samples: Predictions, accuracy: float, n: float, of: str) -> list[Caution]:
    if samples.class_names == OF_CORRECTNESS or not is_like_guessing(accuracy, n, samples.n_classes):
        return []
    consequence = f"accuracy is {accuracy:.1%} on the {of}, of {samples.n_classes:,} classes. {CHECK_LABELS}"
    return [Caution("the predictions are no better than guessing", consequence)]


def _classes_of_one_set(calibration: Predictions, test: Predictions) -> list[Caution]:
    """Return a caution for each set that lacks classes of the other, beyond chance."""
    sets, cautions = {"calibration": calibration, "test": test}, list[Caution]()
    for (name, own), (other_name, other) in itertools.permutations(sets.items()):
        n, m = (torch.tensor(effective_number_of(one) or len(one)).double() for one in (own, other))
        missing = absent_classes(other).to(own.labels.device)
        missing = missing[own.label_counts[missing] > 0]
        counts = own.label_counts[missing] * n / len(own)  # effective ones, as the two sizes are
        # Probability that all samples of a class are among these n, were they drawn from the n + m of both sets.
        log_chance = (n + 1).lgamma() - (n - counts + 1).lgamma() + (n + m - counts + 1).lgamma() - (n + m + 1).lgamma()
        missing = missing[log_chance + math.log(own.n_classes) < math.log(_BY_CHANCE)]
        if len(missing):
            of_them = int(own.label_counts[missing].sum())
            consequence = (
                f"{of_them:,} of {len(own):,} {name} samples are, so this is no chance. Check that both are random "
                "parts of the same data, and that their labels count the classes alike."
            )
            cautions.append(Caution(f"no {other_name} sample is of class {class_names(missing, own)}", consequence))
    return cautions


def _have_same_labels(first: Predictions, second: Predictions) -> bool:
    """Return whether two sets have the same labels in an order that is neither sorted nor chance."""
    labels, others = first.labels, second.labels
    if len(labels) != len(others) or not torch.equal(labels, others.to(labels.device)) or not (labels.diff() < 0).any():
        return False
    count = labels.bincount().double()
    return float(torch.special.xlogy(count, count / len(labels)).sum()) < _LOG_CHANCE


def z_between(right: float, n: float, other_right: float, other_n: float) -> float:
    """Return the number of standard errors between two shares.

    A success and a failure are added to each, which keeps a handful of samples from looking certain.

    Reference: Agresti and Caffo (2000), Simple and Effective Confidence Intervals for Proportions and Differences of
    Proportions Result from Adding Two Successes and Two Failures, The American Statistician.

    Example:
        >>> round(z_between(100, 100, 68, 100), 1), round(z_between(9900, 10000, 0, 1), 1)
        (6.6, 2.4)
    """
    first, second = (right + 1) / (n + 2), (other_right + 1) / (other_n + 2)
    variance = first * (1 - first) / (n + 2) + second * (1 - second) / (other_n + 2)
    return abs(first - second) / math.sqrt(variance)


def samples_in_both(first: Predictions, second: Predictions) -> int:
    """Count the samples of the second set (logits and label) that are also in the first, beyond chance.

    A model with few different outputs, such as a forest, gives different samples the same ones by chance. Samples that
    occur several times in their own set are not counted; and outputs that occur twice in a set, which are at least as
    many by chance as those that occur once in each, must explain less than the count, unless all outputs are in both.

    Example:
        >>> samples = Predictions.from_logits([[0.5, 1.5], [2.5, 0.0], [3.5, 1.0]], [0, 1, 0])
        >>> samples_in_both(samples[:2], samples[1:])
        1
    """
    if first.n_classes != second.n_classes:
        return 0
    (once, pairs), (other_once, other_pairs) = _fingerprints(first), _fingerprints(second)
    common, by_chance = len(np.intersect1d(once, other_once, assume_unique=True)), pairs + other_pairs
    is_subset = common == min(len(once), len(other_once)) >= _FEWEST_OUTPUTS
    return common if is_subset or common > by_chance + 3 * math.sqrt(by_chance) else 0


def _fingerprints(samples: Predictions) -> tuple[np.ndarray, int]:
    """Return a number for each sample that occurs once, which others have by chance only; and how many occur twice."""
    direction = torch.rand(samples.n_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    blocks = samples.blocks(max(1, _NUMBERS // samples.n_classes))
    parts = [block.logits.double() @ direction.to(samples.logits.device) for block in blocks]
    # Rounded, because products of matrices of other shapes differ in their last digits.
    values = np.round((torch.cat(parts) + torch.pi * samples.labels).cpu().numpy(), 9)
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts == 1], int((counts == 2).sum())


UNCALIBRATED, TEMPERATURE, PLATT = Uncalibrated.name, TemperatureScaling.name, PlattScaling.name
"""The two baselines of every comparison; of confidences in being right, Platt scaling is the second."""

# From so many calibration samples on, another draw of as many gives the same answer. In simulations of models of 2, 4
# and 10 classes, whose logits were .7 to 2.5 times those of a calibrated one, two temperatures fitted on samples of
# their own disagreed, one lowering the log-loss by 1 % or more and the other raising it by as much, in at most 5 % of
# pairs at 200 samples (17 % at 100, 44 % at 30). Large gains need fewer: where the share of the log-loss that the first
# removed, times the number of samples, was about 4, the second removed 1 % or more, too, in 95 % of cases.
_ENOUGH_CALIBRATION = 200
_CLEAR_GAIN = 4.0
# With fewer test samples it stays open whether a method helps: the interval of a handful is narrow by luck.
_FEWEST = 30


class WhyUncalibrated(StrEnum):
    """Why no method is recommended."""

    nothing_helps = "nothing_helps"
    too_few_samples = "too_few_samples"  # a gain that matters is neither shown nor ruled out
    nothing_fitted = "nothing_fitted"


@final
@dataclass(frozen=True, eq=False)
class FoldMaps:
    """Maps that were fitted in folds: each on the samples outside its fold, to calibrate those inside."""

    maps: tuple[Map, ...]
    inside: tuple[torch.Tensor, ...]  # positions of the samples of each fold, (m,)

    def transform(self, samples: Predictions) -> Predictions:
        """Return the samples of all folds, each as the map of its fold calibrates it."""
        logits, kinds = torch.empty_like(samples.logits), set[Normalised]()
        for fitted, inside in zip(self.maps, self.inside, strict=True):
            part = fitted.transform(samples[inside])
            logits[inside] = part.logits
            kinds.add(part.normalised)
        is_same = all(fitted.gives_log_probs is None for fitted in self.maps)  # also the floors of zeros, then
        return samples.with_logits(logits, normalised=None if is_same else min(kinds))


@final
@dataclass(frozen=True)
class MethodResult:
    """One method: its metrics on the test samples, or why there are none."""

    name: str
    title: str
    metrics: dict[str, Estimate] = field(default_factory=dict)
    differences: dict[str, dict[str, Difference]] = field(default_factory=dict)  # by baseline, then metric
    decisions: tuple[NetBenefit, ...] = ()  # by threshold of the risk, beside the uncalibrated model's
    to_best: Difference | None = None  # in log-loss, from the method with the lowest
    changed: float = math.nan  # share of test samples whose predicted class it changes
    seconds: float = math.nan  # time of the fit
    notes: tuple[str, ...] = ()
    failure: str | None = None
    map: Map | None = field(default=None, repr=False, compare=False)  # fitted on all calibration samples
    fold_maps: FoldMaps | None = field(default=None, repr=False, compare=False)

    @property
    def evaluated(self) -> Map | FoldMaps | None:
        """What calibrated the test samples: the map, or in folds those of the other samples."""
        return self.fold_maps or self.map

    @property
    def nll(self) -> float:
        """Log-loss, by which methods are ranked; NaN if the method was not fitted."""
        return self.metrics["nll"].value if self.metrics else math.nan

    @property
    def fitted_numbers(self) -> int:
        """How many numbers its map has learned: the fewer, the simpler."""
        return 0 if self.map is None else sum(part.numel() for part in self.map.state_dict().values())

    def beats(self, baseline: str) -> bool:
        """Whether its log-loss is lower than the baseline's, beyond noise and by enough to matter."""
        return baseline in self.differences and self.differences[baseline]["nll"].side == "better"


@final
@dataclass(frozen=True)
class StreamedSets:
    """How more samples than memory holds were compared, and what that costs."""

    shards: int  # calibration and test files
    sample: int  # uniform sample of the calibration samples
    sampled: tuple[str, ...]  # methods that were fitted on that sample; the others on all
    charted: int  # uniform sample of the test samples, for charts
    auroc_error: dict[str, float]  # by method, the most by which ranks in bounded memory can change its AUROC


@dataclass(frozen=True, kw_only=True, repr=False)
class HeldOutComparison:
    """The samples and settings behind methods that are evaluated on other samples than they were fitted on."""

    n_calibration: int
    n_test: int
    n_classes: int
    n_bins: int
    seed: int
    resamples: int
    cautions: tuple[Caution, ...] = ()
    effective_n_calibration: float | None = None  # effective number of calibration samples; None if all count alike
    effective_n_test: float | None = None  # effective number of test samples; None if all count alike
    clusters_test: int | None = None  # number of clusters of the test samples; None: these are independent
    folds: int | None = None  # where all samples are in turn test samples: n_calibration is then that of one fit


@final
@dataclass(frozen=True, repr=False)
class Comparison(HeldOutComparison, HasReport):
    """Methods by their log-loss on the test samples, lowest first; those that could not be fitted come last."""

    methods: tuple[MethodResult, ...]
    streamed: StreamedSets | None = None  # None: the samples were in memory
    simplest: str = TEMPERATURE  # the second baseline: it is preferred unless another method is clearly better

    @property
    def is_of_correctness(self) -> bool:
        """Whether the two classes are wrong and right, of confidences in being right: no method changes an answer."""
        return self.simplest == PLATT  # see simplest_method

    @property
    def fitted(self) -> tuple[MethodResult, ...]:
        """The methods that have metrics; never empty, because the uncalibrated model is among them."""
        return tuple(method for method in self.methods if method.failure is None)

    @property
    def best(self) -> MethodResult:
        """The method with the lowest log-loss."""
        return self.fitted[0]

    @property
    def uncalibrated(self) -> MethodResult:
        """The model before calibration."""
        return next(method for method in self.fitted if method.name == UNCALIBRATED)

    @property
    def baseline(self) -> str:
        """The baseline that most methods have to beat: the simplest method, or no calibration where that failed."""
        return self.simplest if self.find(self.simplest) is not None else UNCALIBRATED

    @property
    def recommended(self) -> MethodResult:
        """The simplest of the methods that beat the uncalibrated model and the baseline and that none clearly beats.

        That is the one with the fewest fitted numbers among those whose log-loss does not clearly differ from the
        lowest; on a tie, that with the lower log-loss. If none beats both: the baseline, if it beats the uncalibrated
        model; else the simplest of the methods that do; else the uncalibrated model. With many methods on one test set
        the lowest log-loss is partly luck, so a simpler method is preferred unless another is clearly better.
        """
        useful = [method for method in self.fitted if method.beats(UNCALIBRATED)]
        simplest = self.find(self.simplest)
        better = useful if simplest is None else [method for method in useful if method.beats(self.simplest)]
        if not better and simplest is not None and simplest in useful:
            return simplest
        better = better or useful
        equals = [method for method in better if method.to_best is None or method.to_best.side == "alike"]
        return min(equals or better[:1], key=lambda method: method.fitted_numbers, default=self.uncalibrated)

    @property
    def undecided(self) -> MethodResult | None:
        """The best method, or else the simplest, if the samples leave open whether it gains enough to matter."""
        matters = smallest_effect(NLL(), self.uncalibrated.nll)
        for method in (self.best, self.find(self.simplest)):
            if method is not None and method.name != UNCALIBRATED:
                change = method.differences[UNCALIBRATED]["nll"]
                if math.isnan(change.p) or not -change.low <= matters:
                    return method
        return None

    @property
    def why_uncalibrated(self) -> WhyUncalibrated | None:
        """Why no method is recommended; None if one is."""
        if self.recommended.name != UNCALIBRATED:
            return None
        if len(self.fitted) == 1:
            return WhyUncalibrated.nothing_fitted
        is_open = (self.effective_n_test or self.n_test) < _FEWEST or self.undecided is not None
        return WhyUncalibrated.too_few_samples if is_open else WhyUncalibrated.nothing_helps

    @property
    def calibration_needed(self) -> int | None:
        """About how many calibration samples would settle the answer, if as many others may well change it; else None.

        Intervals and tests are those of the maps as they were fitted, and know nothing of other calibration samples.
        """
        if self.why_uncalibrated is WhyUncalibrated.nothing_fitted:
            return None
        n, before = self.effective_n_calibration or self.n_calibration, self.uncalibrated.nll
        is_clear = n * (before - self.recommended.nll) >= _CLEAR_GAIN * before
        is_few = n < _ENOUGH_CALIBRATION and (self.recommended.name == UNCALIBRATED or not is_clear)
        return _ENOUGH_CALIBRATION if is_few else None

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row per method: metrics (``nll``, ``nll_low``, ``nll_high``), predictions changed, time, failure."""
        ends = {"": "value", "_low": "low", "_high": "high"}
        return [
            {
                "method": method.name,
                "recommended": method is self.recommended,
                **{f"{m}{end}": getattr(of, field) for m, of in method.metrics.items() for end, field in ends.items()},
                "changed": method.changed,
                "seconds": method.seconds,
                "failure": method.failure,
            }
            for method in self.methods
        ]

    def find(self, name: str) -> MethodResult | None:
        """Return the method of this name, if it has metrics."""
        return next((method for method in self.fitted if method.name == name), None)


def comparison_metrics(n_bins: int = 15) -> tuple[Metric, ...]:
    """Return the metrics of a comparison; the first, the log-loss, decides."""
    return NLL(), Brier(), ECE(n_bins), ACE(n_bins), SCE(n_bins), AUROC(), AURC(), Accuracy()


def default_methods(calibration: Predictions) -> tuple[Calibrator, ...]:
    """Return the candidates of ``auto`` for these calibration samples, and three well-known methods.

    Of confidences in being right, the classes "wrong" and "right", those that can take a confidence below 50 %.
    """
    n, k, absent = len(calibration), calibration.n_classes, len(absent_classes(calibration))
    if calibration.class_names == OF_CORRECTNESS:
        return (*candidate_set(n, k, of_correctness=True).candidates, ClasswiseHistogramBinning())
    return (*candidate_set(n, k, absent=absent).candidates, VectorScaling(), IsotonicRegression(), HistogramBinning())


@with_devices_of_inputs
def compare(  # noqa: PLR0913  # the options of the command line
    calibration: Predictions,
    test: Predictions | None = None,
    calibrators: Iterable[Calibrator] | None = None,
    *,
    folds: int | None = None,
    metrics: Iterable[Metric] = (),
    thresholds: Sequence[float] = (),
    n_bins: int = 15,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _text, _done, _total: None,
) -> Comparison:
    """Fit every method on the calibration samples, evaluate it on the test samples, and rank by log-loss.

    The uncalibrated model and temperature scaling always take part (for classes named "wrong" and "right", Platt
    scaling, because a temperature takes no confidence across 50 %): every other method is compared with both, by the
    same resamples of the same samples. The second baseline against the uncalibrated model is one planned test: its
    p-value is not corrected, so that trying more methods cannot change the answer. Those of all other methods are
    corrected for their number (Holm), one metric and baseline at a time. Together the two can thus err in up to 10 % of
    cases, not 5 %. Of two classes calibration errors are those of the probability of the positive one, as in reports of
    evaluations. A method that cannot be fitted is listed with the reason; warnings of a fit become its notes. Sets that
    share samples, or differ in accuracy beyond noise, are a warning.

    Without test samples the methods are cross-validated: each sample is evaluated by a map that was fitted on the
    samples outside its fold. The numbers are then those of a method, fitted on slightly fewer samples than there are,
    and not of one fitted map. No cluster is in two folds.

    Args:
        calibration: Samples to fit on, which the model was not trained on.
        test: Other samples, with the same classes; None if there are none.
        calibrators: Methods to compare; one that is given twice takes part once. None: :func:`default_methods`.
        folds: Number of folds where there are no test samples: 5, unless another is given.
        metrics: More metrics, such as one of your own; one with the name of another replaces it.
        thresholds: Risks of the positive class of two from which to act: methods are compared by their net benefit
            there (:func:`calibrant.evidence.decision_curve`).
        n_bins: Number of bins of the binned calibration errors.
        resamples: Draws behind intervals and tests.
        seed: Random seed; the same seed gives the same numbers.
        progress: Called with the current step, the number of methods done, and the number of methods.

    Example:
        >>> import torch
        >>> logits = 4 * torch.randn(600, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = (logits / 4).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(1)).squeeze()
        >>> samples = Predictions.from_logits(logits, labels)
        >>> compare(samples[:300], samples[300:], [], resamples=100).best.name
        'temperature'

    Reference for the intervals in folds: Bayle, Bayle, Janson & Mackey (2020), Cross-validation Confidence Intervals
    for Test Error.
    """
    for name, samples in (("calibration", calibration), ("test", calibration if test is None else test)):
        if not isinstance(samples, Predictions):
            raise InputError(
                f"compare must be given Predictions, calibration and test; {name} is {type(samples).__name__}. "
                "Predictions.from_probs(p, y) makes one."
            )
    n_bins, resamples, seed = check_evidence(n_bins, resamples, seed)
    splits: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()
    given = calibration  # with the samples of no weight, which folds count, too
    if test is None:
        cautions, splits, test = warn_of_one_set(given), _folds_of(given, 5 if folds is None else folds), given
    elif folds is not None:
        raise InputError(f"folds must be None where there are test samples; got {folds}.")
    else:
        cautions = check_held_out(calibration, test)
    calibration, test = counted_samples(calibration), counted_samples(test)
    simplest, thresholds = simplest_method(test.class_names), check_rates(thresholds, "thresholds")
    if thresholds:
        as_risk(test)  # refuses more classes before the fits
    methods = methods_of(default_methods(calibration) if calibrators is None else calibrators, simplest)
    metrics = tuple({one.name: one for one in (*comparison_metrics(n_bins), *check_metrics(metrics))}.values())
    draws: Draws = {"resamples": resamples, "seed": seed}
    of_predictions, of_risk = by_subject(metrics, test)
    bootstrap = PairedBootstrap(test, of_predictions, of_risk=of_risk, **draws)

    def fit(name: str, place: int) -> tuple[Trial, FoldMaps | None]:
        progress(f"fitting {name}", place, len(methods))
        if splits:
            return _fit_in_folds(methods[name], given, splits)
        return try_fit(methods[name].fit, calibration, test), None

    def measure(_: str, mapped: Predictions) -> tuple[dict[str, Estimate], dict[str, Resampled], float]:
        estimated = estimate(mapped, of_predictions, **draws)
        if of_risk:
            estimated |= estimate(as_risk(mapped), of_risk, **draws)
        moved = (mapped.predicted != test.predicted).double()
        changed = float(moved.mean() if test.weights is None else moved @ test.weights / test.weights.sum())
        return estimated, bootstrap.values(mapped, estimated), changed

    share = 1 - 1 / len(splits) if splits else 1.0  # of the calibration samples, in one fit
    effective_n = effective_number_of(calibration)
    return comparison_from(
        methods, fit, measure, bootstrap.difference, metrics=metrics, test=test, simplest=simplest.name,
        thresholds=thresholds, progress=progress, **draws,
        n_calibration=round(share * len(calibration)), n_test=len(test), n_bins=n_bins, cautions=cautions,
        effective_n_calibration=None if effective_n is None else share * effective_n,
        effective_n_test=effective_number_of(test), folds=len(splits) or None, streamed=None,
    )  # fmt: skip


class Supplied(TypedDict):
    """What samples in memory and streamed ones must both supply for a comparison, each in its own way."""

    n_calibration: int
    n_test: int
    n_bins: int
    cautions: tuple[Caution, ...]
    effective_n_calibration: float | None
    effective_n_test: float | None
    folds: int | None
    streamed: StreamedSets | None


def comparison_from(  # noqa: PLR0913  # two functions and what they are called with
    methods: Mapping[str, Calibrator],
    fit: Callable[[str, int], tuple[Trial, FoldMaps | None]],
    measure: Callable[[str, Predictions], tuple[dict[str, Estimate], dict[str, Resampled], float]],
    difference: Callable[[Metric, Resampled, Resampled], Difference],
    *,
    metrics: Sequence[Metric],
    test: Predictions,
    simplest: str,
    thresholds: Sequence[float],
    progress: Callable[[str, int, int], None],
    resamples: int,
    seed: int,
    **supplied: Unpack[Supplied],
) -> Comparison:
    """Fit one method after the other, ``measure`` it, and compare all; ``test`` is a sample if they are streamed.

    ``measure`` returns every metric, its resamples, and the share of the samples whose predicted class is changed.
    """
    results, values = list[MethodResult](), dict[str, dict[str, Resampled]]()
    for place, (name, method) in enumerate(methods.items()):
        trial, fold_maps = fit(name, place)
        result = MethodResult(name, method.title, seconds=trial.seconds, notes=trial.notes, failure=trial.failure)
        if (mapped := trial.transformed) is not None:
            progress(f"evaluating {name}", place, len(methods))
            estimates, values[name], changed = measure(name, mapped)
            ordered = {metric.name: estimates[metric.name] for metric in metrics}
            result = replace(result, metrics=ordered, changed=changed, map=trial.map, fold_maps=fold_maps)
            if thresholds:
                decisions = decision_curve(mapped, thresholds, baseline=test, resamples=resamples, seed=seed)
                result = replace(result, decisions=decisions)
        results.append(result)
        del trial, mapped  # the next fit may need the memory of these samples
    progress("comparing", len(methods), len(methods))
    return Comparison(
        with_differences(results, metrics, values, difference, simplest),
        **supplied,
        n_classes=test.n_classes,
        seed=seed,
        resamples=resamples,
        clusters_test=test.n_clusters,
        simplest=simplest,
    )


def _folds_of(samples: Predictions, folds: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the positions of the samples outside and inside of each fold."""
    units, of = (len(samples), "samples") if samples.n_clusters is None else (samples.n_clusters, "clusters")
    if check_at_least(folds, 2, "folds") > units:
        raise InputError(f"folds must be at most the {units:,} {of}; got {folds:,}.")
    return fold_positions(samples.labels, folds, 0, samples.clusters)


def _fit_in_folds(
    method: Calibrator, samples: Predictions, splits: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[Trial, FoldMaps | None]:
    """Fit a map on all samples, to keep, and one outside each fold, to evaluate the method by."""
    trial, maps = try_fit(method.fit, counted_samples(samples)), list[Map]()
    for number, (outside, _) in enumerate(splits, start=1):
        in_fold = trial if trial.map is None else try_fit(method.fit_without_scores, counted_samples(samples[outside]))
        if in_fold.map is None:
            where = "" if in_fold is trial else f"in fold {number} of {len(splits)}: "
            return Trial(failure=f"{where}{in_fold.failure}", notes=trial.notes), None
        maps.append(in_fold.map)
    fold_maps = FoldMaps(tuple(maps), tuple(inside for _, inside in splits))
    return trial._replace(transformed=counted_samples(fold_maps.transform(samples))), fold_maps


def simplest_method(class_names: ClassNames) -> Calibrator:
    """Return the simplest method, the second baseline of a comparison, for classes of these names."""
    return PlattScaling() if class_names == OF_CORRECTNESS else TemperatureScaling()


def methods_of(calibrators: Iterable[Calibrator], simplest: Calibrator) -> dict[str, Calibrator]:
    """Return the methods to compare, by name, each once; the two baselines come first."""
    given = (calibrators,) if isinstance(calibrators, Calibrator | str) else tuple(calibrators)
    for method in given:
        if not isinstance(method, Calibrator):
            hint = f" calibrant.catalogue.parse_calibrator({method!r}) makes one." if isinstance(method, str) else ""
            raise InputError(f"calibrators must be calibrators, such as TemperatureScaling(); got {method!r}.{hint}")
    # auto comes last: on a tie, the method that it chose ranks first.
    ordered = sorted(given, key=lambda method: isinstance(method, Auto))
    return {method.expression: method for method in (Uncalibrated(), simplest, *ordered)}


def with_differences(
    results: Sequence[MethodResult],
    metrics: Sequence[Metric],
    bootstrap_values: Mapping[str, Mapping[str, Resampled]],
    difference: Callable[[Metric, Resampled, Resampled], Difference],
    simplest: str,
) -> tuple[MethodResult, ...]:
    """Sort the methods by log-loss, with their differences from both baselines and from the best.

    ``bootstrap_values``: by method and metric; ``difference`` takes two of them.
    """
    ordered = sorted(results, key=lambda method: (method.failure is not None, math.isnan(method.nll), method.nll))

    def differences_from(baseline: str) -> dict[str, dict[str, Difference]]:
        # In either direction, the simplest method against the uncalibrated model is the same planned test.
        planned = {UNCALIBRATED: simplest, simplest: UNCALIBRATED}.get(baseline)
        return corrected_differences(baseline, bootstrap_values, metrics, difference, planned=planned)

    by_baseline = {name: differences_from(name) for name in (UNCALIBRATED, simplest) if name in bootstrap_values}
    to_best = differences_from(ordered[0].name)

    def complete(method: MethodResult) -> MethodResult:
        own = {baseline: by[method.name] for baseline, by in by_baseline.items() if method.name in by}
        return replace(method, differences=own, to_best=to_best.get(method.name, {}).get("nll"))

    return tuple(map(complete, ordered))
