"""Compare calibration methods on more samples than memory holds.

Methods that are fitted by passes over the shards see all calibration samples, the others a uniform sample of them. One
pass over the test shards then applies every map to each batch and adds up a state for each method. The groups of test
samples are the same for all methods, so that redrawing them gives paired differences, as in memory. Of two classes, the
sums over all samples tell the calibration error of the probability of the positive one, and a uniform sample of the
test samples its differences, and what is gained by decisions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of

from calibrant import comparison as in_memory
from calibrant.calibrators import Calibrator
from calibrant.calibrators.base import Trial, try_fit
from calibrant.checks import check_rates
from calibrant.errors import CalibrantError, FileError, FitError, InputError, without_our_warnings
from calibrant.evidence import Estimate, by_subject, report_differences
from calibrant.evidence.differences import (
    FLOOR_DRAWS,
    Difference,
    PairedBootstrap,
    Resampled,
    errors_with_floor,
    paired_difference,
)
from calibrant.evidence.estimates import after_all, values_of
from calibrant.maps import Map
from calibrant.metrics import Metric
from calibrant.metrics.smooth import KernelFeatures
from calibrant.metrics.states import TopStatistic
from calibrant.predictions import Predictions, as_risk
from calibrant.scale.evaluation import draw_counts, estimate_state, resampled_levels
from calibrant.scale.fits import check_streams, fit_streamed
from calibrant.scale.jobs import LOCAL, Engine, first_design, gather
from calibrant.scale.shards import Plan, Shard, Task
from calibrant.scale.state import GROUPS, Design, EvaluationState, Sample, of_positive_weight

Progress = Callable[[str, int, int], None]
_LEFT_OUT = "States that left out different rows (--missing drop) cannot be compared; compare their files."
_CLASS_NUMBERS = 1 << 24  # in the states by group of all methods; more classes or methods have fewer groups


class ShardSet(NamedTuple):
    """Shards, and what to read from them."""

    shards: Sequence[Shard]
    plan: Plan


class StreamedComparison(NamedTuple):
    """A comparison, and uniform samples of the test samples, for its charts."""

    comparison: in_memory.Comparison
    test: Predictions


def compare_streamed(  # noqa: PLR0913  # the options of the command line
    calibration: ShardSet,
    test: ShardSet,
    calibrators: Iterable[Calibrator] | None = None,
    *,
    n_bins: int = 15,
    resamples: int = 500,
    seed: int = 0,
    thresholds: Sequence[float] = (),
    engine: Engine = LOCAL,
    progress: Progress = lambda _text, _done, _total: None,
) -> StreamedComparison:
    """Fit every method on the calibration shards, evaluate it on the test shards, and rank by log-loss.

    Arguments are as for :func:`calibrant.comparison.compare`; without ``calibrators`` the sample decides them.
    """
    if engine.name == "torchrun":
        raise InputError("--engine must be local, dask or ray to compare; got torchrun, which evaluates only.")
    gathered = gather(
        *calibration, n_bins=n_bins, seed=seed, engine=engine, progress=lambda text: progress(f"fit: {text}", 0, 1)
    )
    assert gathered is not None, "only torchrun has processes without an answer"
    first, sample = gathered.state, gathered.state.sample.predictions
    for shard in test.shards:
        test.plan.check(shard)
    tasks = test.plan.tasks(test.shards)
    design = first_design(test.plan, tasks, n_bins=n_bins, seed=seed)
    if not isinstance(sample, Predictions) or design.classes is None:
        raise InputError("methods must be compared on scores of every class; these files have only the top label.")
    in_memory.check_classes((sample.n_classes, sample.class_names), (design.classes, design.class_names))
    thresholds = check_rates(thresholds, "thresholds")
    if thresholds:
        as_risk(sample)  # refuses more classes before the fits
    simplest = in_memory.simplest_method(design.class_names)
    methods = in_memory.methods_of(in_memory.default_methods(sample) if calibrators is None else calibrators, simplest)
    trials: dict[str, Trial] = {}
    for done, (name, method) in enumerate(methods.items()):
        progress(f"fitting {name}", done, len(methods))
        trials[name] = _fitted(method, calibration, sample, first.n, engine)
    maps = {name: trial.map for name, trial in trials.items() if trial.map is not None}
    progress("evaluating", 0, len(tasks))
    states, changed = _gather(maps, tasks, test.plan, design, engine, progress)
    state = states[in_memory.UNCALIBRATED]
    drawn, total = state.sample.predictions, float(state.cells.total.sum())
    assert isinstance(drawn, Predictions)
    readings = _Readings(state, drawn, resamples)

    def fitted(name: str, _: int) -> tuple[Trial, None]:
        trial = trials[name]
        return trial if trial.map is None else trial._replace(transformed=trial.map.transform(drawn)), None

    def measure(name: str, mapped: Predictions) -> tuple[dict[str, Estimate], dict[str, Resampled], float]:
        return *readings.of(states[name], mapped), changed[name] / total

    sampled, accuracies = len(sample) / max(first.n, len(sample)), (_accuracy(first), _accuracy(state))
    is_sample = len(sample) < first.n
    comparison = in_memory.comparison_from(
        methods,
        fitted,
        measure,
        readings.difference,
        metrics=state.metrics,
        test=drawn,
        simplest=simplest.name,
        thresholds=thresholds,
        progress=progress,
        resamples=resamples,
        seed=seed,
        n_calibration=first.n,
        n_test=state.n,
        n_bins=n_bins,
        cautions=in_memory.warn_of_cautions(sample, drawn, *accuracies, sampled=sampled),
        effective_n_calibration=accuracies[0][1] if first.design.weighted else None,
        effective_n_test=accuracies[1][1] if design.weighted else None,
        folds=None,
        streamed=in_memory.StreamedSets(
            shards=len({shard.path for shard in (*calibration.shards, *test.shards)}),
            sample=len(sample),
            sampled=tuple(name for name, method in methods.items() if is_sample and not streams(method)),
            charted=len(drawn),
            auroc_error={name: float(one.cells.auroc_error) for name, one in states.items()},
        ),
    )
    return StreamedComparison(comparison, drawn)


def streams(method: Calibrator) -> bool:
    """Return whether a method is fitted on all samples, by passes over the shards."""
    try:
        check_streams(method)
    except InputError:
        return method.family == "baseline"
    return True


def _fitted(method: Calibrator, calibration: ShardSet, sample: Predictions, n: int, engine: Engine) -> Trial:
    """Fit a method on all calibration samples if it can be, else on the sample of them, with a note."""
    if n == len(sample) or method.family == "baseline":
        return try_fit(method.fit, sample)
    if streams(method):
        lost: list[CalibrantError] = []

        def fit(_: Predictions) -> Map:
            try:
                fitted = fit_streamed(method, *calibration, engine=engine)
            except CalibrantError as error:
                if isinstance(error, FileError) or not isinstance(error, FitError | InputError):
                    lost.append(error)  # a shard or a worker, which no other method could do without either
                raise
            assert fitted is not None, "only torchrun has processes without an answer"
            return fitted.map

        trial = try_fit(fit, sample)
        if lost:
            raise lost[0]
        return trial
    trial = try_fit(method.fit, sample)
    note = f"fitted on a uniform sample of {len(sample):,} of the {n:,} calibration samples."
    return trial if trial.map is None else trial._replace(notes=(note, *trial.notes))


# One pass over the test shards.


def _gather(
    maps: Mapping[str, Map], tasks: Sequence[Task], plan: Plan, design: Design, engine: Engine, progress: Progress
) -> tuple[dict[str, EvaluationState], dict[str, float]]:
    """Return the state of each method, and the weight of the samples whose predicted class it changes."""
    names = tuple(metric.name for metric in in_memory.comparison_metrics(design.n_bins))
    design = replace(design, metrics=names)
    states, changed = _states(maps, design), dict.fromkeys(maps, 0.0)
    work = partial(_states_of_task, plan=plan, design=design, maps=dict(maps))
    for done, answer in enumerate(engine.run(work, tasks), start=1):
        if isinstance(answer, CalibrantError):
            raise answer
        sent = tensors_of(answer)
        for place, name in enumerate(maps):
            states[name].merge(EvaluationState.from_bytes(sent[str(place)].numpy().tobytes()))
            changed[name] += float(sent["changed"][place])
        progress(
            f"evaluating: {done} of {len(tasks)} parts, {states[in_memory.UNCALIBRATED].n:,} samples", done, len(tasks)
        )
    return states, changed


def _states(maps: Mapping[str, Map], design: Design) -> dict[str, EvaluationState]:
    """Return a state for each method; only that of the uncalibrated model keeps a sample, which maps transform."""
    states = {}
    for name in maps:
        is_plain = name == in_memory.UNCALIBRATED
        state = EvaluationState(design if is_plain else replace(design, given_as_probs=False))
        state.limit_class_groups(_CLASS_NUMBERS // len(maps))
        if not is_plain:
            state.sample = Sample(0)
        states[name] = state
    return states


def _states_of_task(task: Task, *, plan: Plan, design: Design, maps: Mapping[str, Map]) -> bytes:
    """Apply every map to the samples of one task; return the states and the weight of changed samples."""
    states, changed = _states(maps, design), dict.fromkeys(maps, 0.0)
    with without_our_warnings():
        for samples, its_keys, _ in plan.keyed(task, design.seed):
            design.check(samples, task.shard.path)
            counted, keys = of_positive_weight(samples, its_keys)
            assert isinstance(counted, Predictions)
            for name, fitted in maps.items():
                states[name].add(mapped := fitted.transform(counted), keys)
                changed[name] += float(counted.mass[mapped.predicted != counted.predicted].sum())
    sent = [torch.frombuffer(bytearray(state.to_bytes()), dtype=torch.uint8) for state in states.values()]
    tensors = {str(place): state for place, state in enumerate(sent)}
    return bytes_of({**tensors, "changed": torch.tensor([*changed.values()], dtype=torch.float64)})


# What is read off the states.


class _Readings:
    """Estimates and resamples of each method, from its sums over all test samples and a uniform sample of these.

    Of two classes, the calibration error is that of the risk; it is resampled in the uniform sample.
    """

    def __init__(self, plain: EvaluationState, drawn: Predictions, resamples: int) -> None:
        self._plain, self._resamples, self._n = plain, resamples, _accuracy(plain)[1]
        self._summed, of_risk = by_subject(plain.metrics, drawn)
        self._of_risk = PairedBootstrap(drawn, (), of_risk=of_risk, resamples=resamples, seed=plain.design.seed)

    def of(self, state: EvaluationState, mapped: Predictions) -> tuple[dict[str, Estimate], dict[str, Resampled]]:
        """Return every metric, of all samples and of all resamples."""
        estimates = estimate_state(state, mapped, self._plain.metrics, resamples=self._resamples)
        values = _resampled(state, estimates, self._resamples, self._summed)
        return estimates, values | self._of_risk.values(mapped)

    def difference(self, metric: Metric, baseline: Resampled, candidate: Resampled) -> Difference:
        """Return a difference between two methods, not corrected."""
        if metric in self._of_risk.metrics:
            return self._of_risk.difference(metric, baseline, candidate)
        return _difference(metric, baseline, candidate, state=self._plain, n=self._n)


def state_differences(
    baseline: EvaluationState, candidate: EvaluationState, *, resamples: int = 500
) -> dict[str, Difference]:
    """Return candidate minus baseline of every metric, as :func:`calibrant.evidence.difference` does in memory.

    Both states must be of the same samples, in shards of the same names: these form the same groups, which are drawn
    for both at once. Calibration errors of two classes are those of the risk, of the kept samples.
    """
    alike = replace(baseline.design, **{name: getattr(candidate.design, name) for name in ("dtype", "by")})
    alike = replace(alike, given_as_probs=candidate.design.given_as_probs)
    if different := candidate.design.difference(alike):
        raise InputError(f"both sets must be of one kind; the baseline has {different}.")
    if baseline.n != candidate.n:
        raise InputError(f"both sets must have the same samples; got {baseline.n:,} and {candidate.n:,}. {_LEFT_OUT}")
    if baseline.labelled != candidate.labelled:
        raise InputError(
            "both sets must have the same labels in the same order, in files of the same names; they have not. "
            f"Sort both by the same key first. {_LEFT_OUT}"
        )
    samples = baseline.sample.predictions, candidate.sample.predictions
    of_predictions, of_risk = by_subject(candidate.metrics, *samples)
    metrics = [metric for metric in of_predictions if not isinstance(metric.statistic, KernelFeatures)]
    sampled = [*of_risk, *(metric for metric in of_predictions if metric not in metrics)]
    values = []
    for state, sample in zip((baseline, candidate), samples, strict=True):
        floors = estimate_state(state, sample, errors_with_floor(metrics), resamples=FLOOR_DRAWS)
        values.append(_resampled(state, floors, resamples, metrics))
    n, seed = _accuracy(candidate)[1], candidate.design.seed
    differences = {m.name: _difference(m, *(one[m.name] for one in values), state=candidate, n=n) for m in metrics}
    differences |= report_differences(*samples, sampled, resamples=resamples, seed=seed) if sampled else {}
    return {metric.name: differences[metric.name] for metric in candidate.metrics}


def _accuracy(state: EvaluationState) -> tuple[float, float]:
    """Return the accuracy, and the effective number of samples."""
    ranked = state.ranked()
    return float(ranked.n_right / ranked.n), float(ranked.effective_n)


def _resampled(
    state: EvaluationState, estimates: Mapping[str, Estimate], resamples: int, metrics: Sequence[Metric]
) -> dict[str, Resampled]:
    """Return each metric of all samples and of every resample: the same groups for every method."""
    seed = state.design.seed + 1  # other draws than those of the intervals
    draws, class_draws = (after_all(draw_counts(n, resamples, seed)) for n in (GROUPS, state.class_groups))
    statistics = {m.name: of for m in metrics if isinstance(of := m.statistic, TopStatistic)}
    top = [metric for metric in metrics if metric.name in statistics]
    drawn, groups = values_of(top, statistics, resampled_levels(state, draws)), state.group_states()
    for metric in metrics:
        if metric not in top:
            values = [metric.value(groups[metric.statistic].reweighted(chunk)) for chunk in class_draws.split(16)]
            drawn[metric.name] = torch.cat(values)
    states, resampled, (accuracy, n) = state.states(), dict[str, Resampled](), _accuracy(state)
    for metric in metrics:
        # Levels are coarser than what the values are read off: draws are moved by as much as theirs differs.
        numbers, exact = drawn[metric.name], float(metric.value(states[metric.statistic]))
        resampled[metric.name] = Resampled.of(
            metric, numbers + (exact - numbers[0]), estimates, n * min(accuracy, 1 - accuracy)
        )
    return resampled


def _difference(
    metric: Metric, baseline: Resampled, candidate: Resampled, *, state: EvaluationState, n: float
) -> Difference:
    groups = GROUPS if isinstance(metric.statistic, TopStatistic) else state.class_groups
    return paired_difference(metric, baseline, candidate, size=min(groups, n))
