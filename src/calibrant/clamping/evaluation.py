"""Evaluate a clamped network on held-out samples, and compare it with maps of its logits alone."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor, nn

from calibrant.calibrators import Calibrator, TemperatureScaling, Uncalibrated
from calibrant.calibrators.base import Trial, try_fit
from calibrant.clamping.inputs import InputPreparation, InputSpace
from calibrant.clamping.model import ClampedModel, ClampingSummary
from calibrant.clamping.neural_clamping import NeuralClamping
from calibrant.clamping.passes import Passes
from calibrant.comparison import TEMPERATURE, UNCALIBRATED, HeldOutComparison, MethodResult, check_held_out
from calibrant.errors import InputError
from calibrant.evidence import Difference, PairedBootstrap, Resampled, estimate
from calibrant.inference import LabelledInputs, check_network, frozen
from calibrant.maps import Scale
from calibrant.metrics import ACE, AUROC, ECE, NLL, Accuracy, Brier, Metric
from calibrant.predictions import Predictions

__all__ = [
    "CLAMPED", "REFITTED", "ClampingEvaluation", "NetworkPredictions", "clamping_metrics", "evaluate_clamping",
    "needs_refit",
]  # fmt: skip

CLAMPED = "clamped"  # name of the clamped network among the methods
REFITTED = "TS on δ*"  # name of the clamped network with T refitted for the log-loss at its δ


@final
class NetworkPredictions:
    """Predictions of a network for the same samples at several δ, in full precision and on the CPU.

    The logits of δ = 0 are kept. A few samples are tried at the beginning, so that a test set that does not fit the
    network is found before a long fit.

    Args:
        model: Network from inputs to logits; it is restored afterwards.
        data: As ``NeuralClamping.fit`` takes them.
        space: Range of the inputs; if it clips, x + δ is clipped, but not where δ is 0.
        batch_size: Samples per batch; None for the data's default.
        class_names: One per class, for the predictions.
    """

    def __init__(
        self,
        model: nn.Module,
        data: object,
        *,
        space: InputSpace | None = None,
        batch_size: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.samples = LabelledInputs.of(data, batch_size=batch_size)
        self._model, self._space, self._class_names = model, space, class_names
        self._without_delta: Predictions | None = None
        self._last: tuple[Tensor, Predictions] | None = None  # δ and what the network says at it
        with frozen(model):
            if space is not None:
                space.check_samples(self.samples)
            check_network(model, self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def at(self, delta: Tensor) -> Predictions:
        """Return the network's own logits at x + δ, before any head, with the labels."""
        if tuple(delta.shape) != self.samples.input_shape:
            raise InputError(
                f"inputs must have the shape of δ, {tuple(delta.shape)}; got {self.samples.input_shape}. Prepare both "
                "sets of samples in the same way."
            )
        if bool(delta.any()):
            if self._last is None or not torch.equal(self._last[0], delta):
                self._last = delta.clone(), self._run(delta, self._space)
            return self._last[1]
        if self._without_delta is None:
            self._without_delta = self._run(delta, None)  # a clamped model whose δ is 0 clips nothing either
        return self._without_delta

    def at_zero(self) -> Predictions:
        return self.at(torch.zeros(self.samples.input_shape))

    def predictions_of(self, clamped: ClampedModel) -> Predictions:
        """Return the calibrated logits of a clamped model around this network."""
        return copy.deepcopy(clamped.head).cpu().transform(self.at(clamped.delta))

    def _run(self, delta: Tensor, space: InputSpace | None) -> Predictions:
        with frozen(self._model), torch.no_grad():
            passes = Passes(self._model, self.samples, preparation=InputPreparation(space))
            logits = passes.full_precision_logits(delta.to(passes.device)).cpu()
        return Predictions.from_logits(logits, self.samples.labels, class_names=self._class_names)


@final
@dataclass(frozen=True)
class ClampingEvaluation(HeldOutComparison):
    """A clamped network and its baselines; δ* and T* are the δ and T of the clamped network.

    ``methods`` are the uncalibrated network, temperature scaling, the head alone where it is another method, and the
    clamped network, in this order, without those that could not be fitted. The ``differences`` of the clamped network
    have all others as baselines, but not the head alone where δ is 0, because it is the same.

    ``parts`` separate δ from T and are not meant to be used: the head of the clamped network without δ (``T* only``,
    ``head* only``) and, where that T is not the best for the log-loss at this δ, the T that is (``TS on δ*``).

    The effect of δ alone is the difference between two methods with the same kind of head, at its optimum for the
    log-loss, at x + δ (``with_delta``) and at x (``without_delta``). Both names are None where δ is 0 or a head
    has no optimum. After a focal loss, or a descent that stopped early, the T of the clamped network is not that
    optimum, and what that costs is not the effect of δ.
    """

    methods: tuple[MethodResult, ...]
    parts: tuple[MethodResult, ...]  # empty where δ is 0
    with_delta: str | None
    without_delta: str | None
    summary: ClampingSummary
    head: str  # the method that has this kind of head, without δ and fitted by log-loss
    temperature: float | None  # where the head is one
    norm: float  # ‖δ‖
    largest: float  # the largest |δ|
    failures: tuple[MethodResult, ...] = ()  # methods that could not be fitted
    predictions: Mapping[str, Predictions] = field(default_factory=dict, repr=False, compare=False)  # test samples

    @property
    def clamped(self) -> MethodResult:
        return self.methods[-1]

    @property
    def has_delta(self) -> bool:
        return self.norm > 0

    @property
    def effect(self) -> dict[str, Difference] | None:
        """The effect of δ alone, by metric; None where it is unknown."""
        with_delta = None if self.with_delta is None else self.find(self.with_delta)
        return None if with_delta is None or self.without_delta is None else with_delta.differences[self.without_delta]

    @property
    def baseline(self) -> str:
        """The best method without δ: temperature scaling or the head alone, whichever has the lower log-loss here."""
        others = [method for method in self.methods[:-1] if method.name in {TEMPERATURE, self.head}]
        return min(others, key=lambda method: method.nll).name if others else UNCALIBRATED

    @property
    def is_no_better_than_uncalibrated(self) -> bool:
        """Whether the clamped network is known not to be better than the uncalibrated one by enough to matter."""
        differences = self.clamped.differences.get(UNCALIBRATED)
        return differences is not None and differences["nll"].side != "better"

    def find(self, name: str) -> MethodResult | None:
        """Return the method or part of this name, if it has metrics."""
        return next((method for method in (*self.methods, *self.parts) if method.name == name), None)


def clamping_metrics(n_bins: int = 15) -> tuple[Metric, ...]:
    """Return the metrics that a clamped network is evaluated by."""
    return Accuracy(), NLL(), ECE(n_bins), ACE(n_bins), Brier(), AUROC()


def needs_refit(clamped: ClampedModel) -> bool:
    """Return whether T must be refitted to measure the effect of δ, because it does not minimise the log-loss at δ."""
    is_temperature, has_delta = isinstance(clamped.head, Scale), bool(clamped.delta.any())
    return is_temperature and has_delta and not _summary(clamped).head_is_optimal


def evaluate_clamping(  # noqa: PLR0913  # two sets of samples, each before and after
    clamped: ClampedModel,
    calibration: Predictions,
    before: Predictions,
    after: Predictions,
    *,
    calibration_after: Predictions | None = None,
    head: Calibrator | None = None,
    n_bins: int = 15,
    resamples: int = 500,
    seed: int = 0,
) -> ClampingEvaluation:
    """Compare a clamped network with the network itself, by the same resamples of the same test samples.

    All comparisons were planned, so no p-value is corrected.

    Args:
        clamped: A fitted clamped network, with its summary.
        calibration: The network's own predictions for the samples it was fitted on.
        before: The network's own predictions for the test samples.
        after: The clamped network's predictions for the test samples.
        calibration_after: The clamped network's predictions for the samples it was fitted on, if it needs a refit.
        head: The method of the head; temperature scaling unless given.
        n_bins: Number of bins of the binned calibration errors.
        resamples: Number of bootstrap draws of intervals and tests.
        seed: Random seed; the same seed gives the same numbers.
    """
    summary, head = _summary(clamped), head or TemperatureScaling()
    cautions = check_held_out(calibration, before)
    if isinstance(clamped.head, Scale) != isinstance(head, TemperatureScaling):
        raise InputError(
            f"head must be the method of the clamped model's head, {type(clamped.head).__name__}; got {head.name}."
        )
    delta, head_name = clamped.delta.detach().double(), head.expression
    has_delta, is_refitted = bool(delta.any()), needs_refit(clamped)
    results = _Results(before, n_bins, resamples, seed)
    methods = {method.expression: method for method in (Uncalibrated(), TemperatureScaling(), head)}
    for name, method in methods.items():
        results.add_trial(name, method, try_fit(method.fit, calibration, before), [UNCALIBRATED])
    parts = []
    if has_delta and head_name != UNCALIBRATED:
        parts.append("T* only" if isinstance(clamped.head, Scale) else "head* only")
        alone = copy.deepcopy(clamped.head).to(before.logits.device)
        result = MethodResult(parts[0], "The clamped network's head without δ", map=alone)
        results.add(result, alone.transform(before), [head_name])
    if is_refitted:
        parts.append(REFITTED)
        results.add_trial(REFITTED, TemperatureScaling(), _refitted(clamped, calibration_after, after), [head_name])
    # Without δ it is the head alone to the last digits, which a paired test would find; by a focal loss it is not.
    baselines = [name for name in (REFITTED, *methods) if has_delta or summary.gamma > 0 or name != head_name]
    result = MethodResult(CLAMPED, NeuralClamping.title, seconds=summary.seconds, notes=summary.all_notes)
    results.add(result, after, baselines)
    with_delta, known = REFITTED if is_refitted else CLAMPED, results.known
    is_known = has_delta and with_delta in known and head_name in known
    return ClampingEvaluation(
        tuple(known[name] for name in (*methods, CLAMPED) if name in known),
        tuple(known[name] for name in parts if name in known),
        with_delta if is_known else None,
        head_name if is_known else None,
        summary,
        head=head_name,
        temperature=clamped.temperature if isinstance(clamped.head, Scale) else None,
        norm=float(delta.norm()),
        largest=float(delta.abs().max()),
        n_calibration=len(calibration), n_test=len(before), n_classes=before.n_classes, n_bins=n_bins, seed=seed,
        resamples=resamples, cautions=cautions, failures=tuple(results.failures), predictions=results.predictions,
    )  # fmt: skip


@final
class _Results:
    """Collects the results of the methods: the metrics of each, and its differences from earlier ones."""

    def __init__(self, before: Predictions, n_bins: int, resamples: int, seed: int) -> None:
        self._before, self._resamples, self._seed = before, resamples, seed
        self._bootstrap = PairedBootstrap(before, clamping_metrics(n_bins), resamples=resamples, seed=seed)
        self._drawn: dict[str, dict[str, Resampled]] = {}
        self.known: dict[str, MethodResult] = {}
        self.predictions: dict[str, Predictions] = {}
        self.failures: list[MethodResult] = []

    def add_trial(self, name: str, method: Calibrator, trial: Trial, baselines: Iterable[str]) -> None:
        result = MethodResult(name, method.title, notes=trial.notes, seconds=trial.seconds, map=trial.map)
        if trial.transformed is None:
            self.failures.append(replace(result, failure=trial.failure))
        else:
            self.add(result, trial.transformed, baselines)

    def add(self, result: MethodResult, samples: Predictions, baselines: Iterable[str]) -> None:
        """Add a method with its metrics, and their differences from those of its baselines."""
        bootstrap = self._bootstrap
        estimates = estimate(samples, bootstrap.metrics, resamples=self._resamples, seed=self._seed)
        drawn = bootstrap.values(samples, estimates)
        self.predictions[result.name], self._drawn[result.name] = samples, drawn
        drawn_of = self._drawn
        differences = {name: bootstrap.differences(drawn_of[name], drawn) for name in baselines if name in self.known}
        changed = float((samples.predicted != self._before.predicted).double().mean())
        self.known[result.name] = replace(result, metrics=estimates, differences=differences, changed=changed)


def _summary(clamped: ClampedModel) -> ClampingSummary:
    if clamped.summary is None:
        raise InputError("clamped must have the summary of its fit to be evaluated; it has none.", argument="clamped")
    return clamped.summary


def _refitted(clamped: ClampedModel, calibration: Predictions | None, test: Predictions) -> Trial:
    """Fit temperature scaling to the network at x + δ."""
    if calibration is None:
        raise InputError(
            "calibration_after must be given where the clamped network's T is not the log-loss's optimum (a focal loss "
            "or the stochastic solver); got None. Run the clamped network on the samples it was fitted on."
        )
    uncalibrated = (samples.with_logits(samples.logits * clamped.temperature) for samples in (calibration, test))
    return try_fit(TemperatureScaling().fit, *uncalibrated)
