"""Table 4 of the paper from one fit: δ and the head evaluated apart and together, each against temperature scaling."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, final

from torch import nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.checks import check_at_least, check_known
from calibrant.clamping import ClampedModel, NetworkPredictions, NeuralClamping, Progress
from calibrant.diagrams import Dot
from calibrant.errors import InputError
from calibrant.evidence import Difference, Estimate, PairedBootstrap, Resampled, estimate
from calibrant.inference import LabelledInputs
from calibrant.maps import Identity, Map, Scale
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Entropy, Metric
from calibrant.predictions import Predictions

__all__ = [
    "ABLATION_METRICS",
    "Ablation",
    "AblationComparison",
    "AblationDiagram",
    "AblationPanel",
    "AblationRow",
    "ablation",
    "ablation_of",
]

ABLATION_METRICS: tuple[Metric, ...] = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), AUROC())
"""The columns of the paper's tables, the log-loss, which decides, and AUROC."""
Cell: TypeAlias = str | float | bool | None


@final
@dataclass(frozen=True)
class AblationRow:
    """One combination of δ and head, with its metrics on the test samples.

    Args:
        name: Name of the combination, such as ``joint``.
        with_delta: Whether δ* is added to the inputs.
        temperature: T; None where the head is another map.
        metrics: Estimates by name.
        head: The map behind the network.
    """

    name: str
    with_delta: bool
    temperature: float | None
    metrics: dict[str, Estimate]
    head: Map = field(repr=False, compare=False)


@final
@dataclass(frozen=True)
class AblationComparison:
    """A row's metrics minus those of a baseline row, on the same test samples."""

    row: str
    baseline: str
    differences: dict[str, Difference]
    is_planned: bool  # rather than only for the marks of the figure


@final
@dataclass(frozen=True)
class AblationPanel:
    """One metric of the figure: a dot per row, in their order."""

    metric: str
    lower_is_better: bool | None  # None: neither
    dots: tuple[Dot, ...]


@final
@dataclass(frozen=True)
class AblationDiagram:
    """Numbers of the figure: rows in the order of the table, and a panel per metric."""

    names: tuple[str, ...]
    temperatures: tuple[float | None, ...]  # None where the head is no temperature
    baseline: str  # the row that the others are compared with
    panels: tuple[AblationPanel, ...]
    norm: float  # of δ
    n: int


@final
@dataclass(frozen=True, eq=False)
class Ablation:
    """A fit taken apart.

    Args:
        rows: In the order of the paper's Table 4, then those that it leaves out.
        comparisons: The planned ones first, then all others against the same baseline.
        metrics: The metrics evaluated.
        gamma: γ of the focal loss in ``TS (focal)``.
        resamples: Number of bootstrap resamples.
        seed: Random seed of the bootstrap.
        clamped: The joint fit.
        without_delta: Test predictions of the network.
        with_delta: Test predictions of the network at x + δ*, before any head.
        n_calibration: Number of calibration samples.
    """

    rows: tuple[AblationRow, ...]
    comparisons: tuple[AblationComparison, ...]
    metrics: tuple[Metric, ...]
    gamma: float
    resamples: int
    seed: int
    clamped: ClampedModel = field(repr=False)
    without_delta: Predictions = field(repr=False)
    with_delta: Predictions = field(repr=False)
    n_calibration: int

    @property
    def norm(self) -> float:
        """‖δ*‖."""
        return float(self.clamped.delta.double().norm())

    @property
    def baseline(self) -> str:
        """Name of the row without δ: temperature scaling, where the head is a temperature."""
        return self.comparisons[0].baseline

    def row(self, name: str) -> AblationRow:
        """Return the row of this name.

        Raises:
            UnknownNameError: If there is none.
        """
        check_known(name, [row.name for row in self.rows], "an ablation's row")
        return next(row for row in self.rows if row.name == name)

    def predictions(self, name: str) -> Predictions:
        """Return the test predictions of a row.

        Raises:
            UnknownNameError: If there is no such row.
        """
        row = self.row(name)
        return row.head.transform(self.with_delta if row.with_delta else self.without_delta)

    def comparison(self, row: str, baseline: str) -> AblationComparison | None:
        """Return the comparison of two rows, if it was made."""
        return next((pair for pair in self.comparisons if (pair.row, pair.baseline) == (row, baseline)), None)

    def table(self) -> list[dict[str, Cell]]:
        """Return one record per row: name, whether δ* is added, T, and value, low and high of every metric."""
        lines: list[dict[str, Cell]] = []
        for row in self.rows:
            line: dict[str, Cell] = {"row": row.name, "delta": row.with_delta, "temperature": row.temperature}
            for name, estimated in row.metrics.items():
                line |= {name: estimated.value, f"{name}_low": estimated.low, f"{name}_high": estimated.high}
            lines.append(line)
        return lines

    def diagram(self, metrics: Sequence[str] = ("nll", "ece", "accuracy")) -> AblationDiagram:
        """Return the numbers of the figure, a panel for each of these metrics.

        Raises:
            UnknownNameError: If one was not evaluated.
        """
        known = {metric.name: metric for metric in self.metrics}
        for name in metrics:
            check_known(name, known, "an ablation's metric")
        return AblationDiagram(
            names=tuple(row.name for row in self.rows),
            temperatures=tuple(row.temperature for row in self.rows),
            baseline=self.baseline,
            panels=tuple(
                AblationPanel(name, known[name].lower_is_better, tuple(self._dot(row, name) for row in self.rows))
                for name in metrics
            ),
            norm=self.norm,
            n=len(self.without_delta),
        )

    def _dot(self, row: AblationRow, metric: str) -> Dot:
        estimated, against = row.metrics[metric], self.comparison(row.name, self.baseline)
        side = "alike" if against is None else against.differences[metric].side
        return Dot(estimated.value, estimated.low, estimated.high, side)


def ablation(
    method: NeuralClamping,
    model: nn.Module,
    calibration: object,
    test: object,
    *,
    metrics: Sequence[Metric] = ABLATION_METRICS,
    resamples: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> Ablation:
    """Fit δ* and T* jointly, then evaluate them apart and together on test samples.

    ``none`` is the network; ``TS`` and ``TS (focal)`` have δ = 0 and T by log-loss or focal loss; ``δ* only`` has
    T = 1; ``T* only`` has δ = 0; ``joint`` has both; ``TS on δ*`` has T refitted by log-loss at δ*. The paper compares
    ``joint`` with ``TS``, where T differs as well as δ. The effect of δ alone is ``TS on δ*`` against ``TS``: the same
    criterion for T, with δ and without.

    With a head that is no temperature, the rows are ``none``, ``head`` (fitted at δ = 0), ``δ* only``, ``head* only``
    and ``joint``. The p-values are not corrected for the number of comparisons.

    Args:
        method: The method to fit.
        model: Network from inputs to logits; it is restored afterwards.
        calibration: Samples to fit on, as ``NeuralClamping.fit`` takes them.
        test: Samples to evaluate on, in the same form.
        metrics: Metrics to evaluate.
        resamples: Number of bootstrap resamples.
        seed: Random seed of the bootstrap; the fit has its own.
        progress: Called with a description of the step and the number of passes over the samples so far.

    Raises:
        InputError: If the network does not take the samples, or options are out of range.
        FitError: If a temperature has no optimum on the calibration samples, or the fit diverges.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(600, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> truth = network(inputs + 0.5).softmax(dim=1)
        >>> labels = torch.multinomial(truth, 1, generator=torch.manual_seed(1))[:, 0]
        >>> method = NeuralClamping(strength=0.01)
        >>> parts = ablation(method, network, (inputs[:300], labels[:300]), (inputs[300:], labels[300:]), resamples=50)
        >>> [row.name for row in parts.rows]
        ['none', 'TS', 'TS (focal)', 'δ* only', 'T* only', 'joint', 'TS on δ*']

    Reference:
        Neural Clamping, Section 4.3 and Table 4.
    """
    _check(metrics, resamples)
    evaluated_on = NetworkPredictions(model, test, space=method.space, batch_size=method.batch_size)
    samples = LabelledInputs.of(calibration, batch_size=method.batch_size)
    clamped = method.fit(model, samples, progress=progress)
    return _evaluated(clamped, samples, evaluated_on, method.head, metrics=metrics, resamples=resamples, seed=seed)


def ablation_of(
    clamped: ClampedModel,
    calibration: object,
    test: object,
    *,
    head: Calibrator = TemperatureScaling(),  # noqa: B008  # frozen
    metrics: Sequence[Metric] = ABLATION_METRICS,
    resamples: int = 500,
    seed: int = 0,
) -> Ablation:
    """Take a fitted clamped model apart, as :func:`ablation` does.

    Args:
        clamped: From :meth:`NeuralClamping.fit`, or loaded.
        calibration: Samples it was fitted on.
        test: Other samples.
        head: The method of its head, to be fitted without δ.
        metrics: Metrics to evaluate.
        resamples: Number of bootstrap resamples.
        seed: Random seed of the bootstrap.

    Raises:
        InputError: As :func:`ablation`; also if the head is a temperature and ``head`` is not, or the reverse.
        FitError: If a head has no optimum on the calibration samples.
    """
    _check(metrics, resamples)
    if isinstance(clamped.head, Scale) != isinstance(head, TemperatureScaling):
        raise InputError(
            f"head must be the method that fitted the clamped model's head, {type(clamped.head).__name__}; got "
            f"{head.name}."
        )
    evaluated_on = NetworkPredictions(clamped.model, test, space=clamped.space)
    return _evaluated(clamped, calibration, evaluated_on, head, metrics=metrics, resamples=resamples, seed=seed)


def _check(metrics: Sequence[Metric], resamples: int) -> None:
    if not metrics:
        raise InputError("metrics must name at least one metric; got none.")
    check_at_least(resamples, 2, "resamples")


class _Part(NamedTuple):
    """A row that is to be evaluated."""

    name: str
    with_delta: bool
    head: Map


def _evaluated(
    clamped: ClampedModel,
    calibration: object,
    evaluated_on: NetworkPredictions,
    head: Calibrator,
    *,
    metrics: Sequence[Metric],
    resamples: int,
    seed: int,
) -> Ablation:
    fitted_on = NetworkPredictions(clamped.model, calibration, space=clamped.space)
    zero = clamped.delta.new_zeros(clamped.delta.shape)
    gamma = (clamped.summary.gamma if clamped.summary else 0.0) or 1.0
    joint = copy.deepcopy(clamped.head).cpu()
    parts = _parts(joint, head, gamma, fitted_on.at(zero), fitted_on.at(clamped.delta))
    test = evaluated_on.at(zero), evaluated_on.at(clamped.delta)
    evaluated = _Evaluation(tuple(metrics), test, resamples, seed).of(parts)
    return Ablation(*evaluated, tuple(metrics), gamma, resamples, seed, clamped, *test, n_calibration=len(fitted_on))


def _parts(
    joint: Map, head: Calibrator, gamma: float, without_delta: Predictions, with_delta: Predictions
) -> list[_Part]:
    """Fit every row's head on the calibration samples."""
    identity = Identity(n_classes=without_delta.n_classes)
    if not isinstance(joint, Scale):
        return [
            _Part("none", False, identity),
            # Without δ it is the same to the last digits, which a paired test would notice.
            _Part("head", False, joint if with_delta is without_delta else head.fit(without_delta)),
            _Part("δ* only", True, identity),
            _Part("head* only", False, joint),
            _Part("joint", True, joint),
        ]
    return [
        _Part("none", False, identity),
        _Part("TS", False, TemperatureScaling().fit(without_delta)),
        _Part("TS (focal)", False, TemperatureScaling("focal", gamma).fit(without_delta)),
        _Part("δ* only", True, identity),
        _Part("T* only", False, joint),
        _Part("joint", True, joint),
        _Part("TS on δ*", True, TemperatureScaling().fit(with_delta)),
    ]


class _Result(NamedTuple):
    estimates: dict[str, Estimate]
    resampled: dict[str, Resampled]


@final
class _Evaluation:
    """Evaluates rows on the test samples; two that are the same model once."""

    def __init__(
        self, metrics: tuple[Metric, ...], test: tuple[Predictions, Predictions], resamples: int, seed: int
    ) -> None:
        self._metrics, self._test, self._resamples, self._seed = metrics, test, resamples, seed
        self._paired = PairedBootstrap(test[0], metrics, resamples=resamples, seed=seed)
        self._known: dict[tuple[object, ...], _Result] = {}

    def of(self, parts: list[_Part]) -> tuple[tuple[AblationRow, ...], tuple[AblationComparison, ...]]:
        results = {part.name: self._result(part) for part in parts}
        rows = tuple(
            AblationRow(part.name, part.with_delta, _temperature(part.head), results[part.name].estimates, part.head)
            for part in parts
        )
        baseline = parts[1].name
        alone = "T* only" if baseline == "TS" else "head* only"
        planned = [("joint", baseline), *([("TS on δ*", baseline)] if baseline == "TS" else []), ("joint", alone)]
        rest = [(name, baseline) for name in results if name != baseline and (name, baseline) not in planned]
        comparisons = tuple(
            AblationComparison(
                row,
                other,
                self._paired.differences(results[other].resampled, results[row].resampled),
                (row, other) in planned,
            )
            for row, other in (*planned, *rest)
        )
        return rows, comparisons

    def _result(self, part: _Part) -> _Result:
        # With δ = 0 both test sets are one. Temperatures that agree to six digits are one as well: the rest is where a
        # search stopped, and a paired test would notice even that.
        with_delta = part.with_delta and self._test[1] is not self._test[0]
        temperature = _temperature(part.head)
        same = (with_delta, id(part.head) if temperature is None else f"{temperature:.6g}")
        if same not in self._known:
            predictions = part.head.transform(self._test[with_delta])
            estimates = estimate(predictions, self._metrics, resamples=self._resamples, seed=self._seed)
            self._known[same] = _Result(estimates, self._paired.values(predictions, estimates))
        return self._known[same]


def _temperature(head: Map) -> float | None:
    if isinstance(head, Identity):
        return 1.0
    return float(head.temperature) if isinstance(head, Scale) else None
