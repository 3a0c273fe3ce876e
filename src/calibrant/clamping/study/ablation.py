"""Which part of a clamped model did it: δ, the head, or a temperature that moved. Table 4 of the paper from one fit."""

import copy
from collections.abc import Sequence

from torch import nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.checks import check_at_least
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.neural_clamping import NeuralClamping, Progress
from calibrant.clamping.study.ablation_judging import Judging, Part
from calibrant.clamping.study.ablation_record import Ablation
from calibrant.clamping.study.forward_runs import ForwardRuns
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples
from calibrant.maps import Identity, Map, Scale
from calibrant.metrics import ACE, AUROC, ECE, NLL, SCE, Accuracy, Entropy, Metric
from calibrant.predictions import Predictions

__all__ = ["ABLATION_METRICS", "ablation", "ablation_of"]

ABLATION_METRICS: tuple[Metric, ...] = (Accuracy(), Entropy(), ECE(), ACE(), SCE(), NLL(), AUROC())
"""The columns of the paper's tables, the log-loss, which decides, and how well right is told from wrong."""


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
    """Fit δ* and T* jointly, then judge them apart and together on rows that neither has seen.

    ``none`` is the network; ``TS`` and ``TS (focal)`` have δ = 0 and T by log-loss or focal loss; ``δ* only`` has
    T = 1; ``T* only`` has δ = 0; ``joint`` has both; ``TS on δ*`` has T fitted anew by log-loss, at δ*. The paper
    compares ``joint`` with ``TS``, where T differs as well as δ. What δ alone brings is ``TS on δ*`` against ``TS``:
    the same criterion for T, with δ and without.

    With a head that is no temperature, the rows are ``none``, ``head`` (fitted at δ = 0), ``δ* only``, ``head* only``
    and ``joint``. The p-values are those of single comparisons, not corrected for their number.

    Args:
        method: What to fit.
        model: From inputs to logits; comes back as it was.
        calibration: Rows to fit on, as ``NeuralClamping.fit`` takes them.
        test: Other rows to judge on, in the same form.
        metrics: What to judge by.
        resamples: Draws behind intervals and p-values.
        seed: Of the draws; the fit has its own.
        progress: Called with what is being done and how many passes over the rows the fit took so far.

    Raises:
        InputError: If the network does not take the rows, or the options are out of range.
        FitError: If a temperature has no optimum on the calibration rows, or the fit diverges.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(4, 3, dtype=torch.float64).eval()
        >>> inputs = torch.randn(600, 4, dtype=torch.float64, generator=torch.manual_seed(0))
        >>> truth = network(inputs + 0.5).softmax(dim=1)
        >>> labels = torch.multinomial(truth, 1, generator=torch.manual_seed(1))[:, 0]
        >>> method = NeuralClamping(strength=0.01)
        >>> found = ablation(method, network, (inputs[:300], labels[:300]), (inputs[300:], labels[300:]), resamples=50)
        >>> [row.name for row in found.rows]
        ['none', 'TS', 'TS (focal)', 'δ* only', 'T* only', 'joint', 'TS on δ*']

    Reference:
        Neural Clamping, Section 4.3 and Table 4.
    """
    _check(metrics, resamples)
    judges = ForwardRuns(model, test, space=method.space, batch_size=method.batch_size)
    rows = CalibrationSamples.of(calibration, batch_size=method.batch_size)
    clamped = method.fit(model, rows, progress=progress)
    return _taken_apart(clamped, rows, judges, method.head, metrics=metrics, resamples=resamples, seed=seed)


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
    """The same of a model that was fitted before.

    Args:
        clamped: From :meth:`NeuralClamping.fit`, or loaded.
        calibration: The rows it was fitted on.
        test: Other rows.
        head: The method of its head, to be fitted without δ.
        metrics: As of :func:`ablation`.
        resamples: As of :func:`ablation`.
        seed: As of :func:`ablation`.

    Raises:
        InputError: As :func:`ablation`; also if the head is a temperature and ``head`` is not, or the reverse.
        FitError: If a head has no optimum on the calibration rows.
    """
    _check(metrics, resamples)
    if isinstance(clamped.head, Scale) != isinstance(head, TemperatureScaling):
        raise InputError(
            f"head must be the method that fitted the clamped model's head, {type(clamped.head).__name__}; got "
            f"{head.name}."
        )
    judges = ForwardRuns(clamped.model, test, space=clamped.space)
    return _taken_apart(clamped, calibration, judges, head, metrics=metrics, resamples=resamples, seed=seed)


def _check(metrics: Sequence[Metric], resamples: int) -> None:
    if not metrics:
        raise InputError("metrics must name at least one metric; got none.")
    check_at_least(resamples, 2, "resamples")


def _taken_apart(
    clamped: ClampedModel,
    calibration: object,
    judges: ForwardRuns,
    head: Calibrator,
    *,
    metrics: Sequence[Metric],
    resamples: int,
    seed: int,
) -> Ablation:
    fitted_on = ForwardRuns(clamped.model, calibration, space=clamped.space)
    nothing = clamped.delta.new_zeros(clamped.delta.shape)
    still, moved = fitted_on.at(nothing), fitted_on.at(clamped.delta)
    gamma = (clamped.summary.gamma if clamped.summary else 0.0) or 1.0
    parts = _parts(copy.deepcopy(clamped.head).cpu(), head, gamma, still, moved)
    test = judges.at(nothing), judges.at(clamped.delta)
    judged = Judging(tuple(metrics), test, resamples, seed).judged(parts)
    return Ablation(*judged, tuple(metrics), gamma, resamples, seed, clamped, *test, calibration_rows=len(fitted_on))


def _parts(best: Map, head: Calibrator, gamma: float, still: Predictions, moved: Predictions) -> list[Part]:
    """Every row's head, fitted on the calibration rows."""
    nothing = Identity(n_classes=still.n_classes)
    if not isinstance(best, Scale):
        return [
            Part("none", False, nothing),
            # Without δ it is the same to the last digits, which a paired test would find.
            Part("head", False, best if moved is still else head.fit(still)),
            Part("δ* only", True, nothing),
            Part("head* only", False, best),
            Part("joint", True, best),
        ]
    return [
        Part("none", False, nothing),
        Part("TS", False, TemperatureScaling().fit(still)),
        Part("TS (focal)", False, TemperatureScaling("focal", gamma).fit(still)),
        Part("δ* only", True, nothing),
        Part("T* only", False, best),
        Part("joint", True, best),
        Part("TS on δ*", True, TemperatureScaling().fit(moved)),
    ]
