"""A clamped network judged on rows that nothing was fitted on, beside what a map of logits alone would do."""

import copy

from calibrant.calibrators import Calibrator, DoNothing, TemperatureScaling
from calibrant.calibrators.base import Trial, try_fit
from calibrant.calibrators.choice.ranking import label
from calibrant.clamping import ClampedModel, ClampingSummary, NeuralClamping
from calibrant.comparison import UNCALIBRATED, MethodResult, check_held_out
from calibrant.errors import InputError
from calibrant.maps import Scale
from calibrant.predictions import Predictions
from calibrant.report.clamping.effect import REFITTED
from calibrant.report.clamping.judgement import CLAMPED, ClampingJudgement
from calibrant.report.clamping.scoring import Scoring

__all__ = ["judge_clamping", "needs_refit"]


def needs_refit(clamped: ClampedModel) -> bool:
    """Whether its T is not the log-loss's optimum at its δ, so that δ cannot be judged by it.

    So it is by a focal loss, and by a descent that need not have arrived. Every other head is solved for the log-loss.
    """
    if not isinstance(clamped.head, Scale) or not bool(clamped.delta.any()):
        return False
    summary = _summary(clamped)
    solver, head = summary.settings.get("solver", {}), summary.settings.get("head", {})
    is_exact = solver.get("kind", "ExactSolver") == "ExactSolver" and head.get("criterion", "nll") == "nll"
    return summary.gamma > 0 or not is_exact


def judge_clamping(  # noqa: PLR0913  # two sets of rows, each before and after
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
) -> ClampingJudgement:
    """Compare a clamped network with the network itself, by the same resamples of the same test rows.

    "Does δ help" is asked of the same kind of head at its optimum for the log-loss, with δ and without. A default fit
    is the first of these itself; where its T minimises something else (:func:`needs_refit`), T is fitted anew at its δ.

    Args:
        clamped: What a fit gave, with its summary.
        calibration: The network's own predictions for the rows it was fitted on.
        before: The network's own predictions for other rows.
        after: The clamped network's for the same.
        calibration_after: The clamped network's for the rows it was fitted on; looked at where a refit is needed.
        head: The method of the head; a temperature unless given.
        n_bins: Bins of the binned errors.
        resamples: Draws behind intervals and tests.
        seed: The same seed gives the same numbers.

    Raises:
        InputError: If the rows do not belong together, those for a refit are not given, the head is of another kind, or
            the clamped model has no summary.

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
    summary, head = _summary(clamped), head or TemperatureScaling()
    cautions = check_held_out(calibration, before)
    if isinstance(clamped.head, Scale) != isinstance(head, TemperatureScaling):
        raise InputError(
            f"head must be the method that fitted the clamped model's head, {type(clamped.head).__name__}; got "
            f"{head.name}."
        )
    delta, kind = clamped.delta.detach().double(), label(head)
    moves, is_refitted = bool(delta.any()), needs_refit(clamped)
    scoring = Scoring(before, n_bins, resamples, seed)
    methods = {label(method): method for method in (DoNothing(), TemperatureScaling(), head)}
    for name, method in methods.items():
        scoring.judge_trial(name, method, try_fit(method.fit, calibration, before), [UNCALIBRATED])
    parts = []
    if moves and kind != UNCALIBRATED:
        parts.append("T* only" if isinstance(clamped.head, Scale) else "head* only")
        alone = copy.deepcopy(clamped.head).to(before.logits.device)
        scoring.judge(
            MethodResult(parts[0], "The clamped network's head without δ", map=alone), alone.transform(before), [kind]
        )
    if is_refitted:
        parts.append(REFITTED)
        scoring.judge_trial(REFITTED, TemperatureScaling(), _refitted(clamped, calibration_after, after), [kind])
    # Without δ it is the head alone to the last digits, which a paired test would find; by a focal loss it is not.
    rivals = [name for name in (REFITTED, *methods) if moves or summary.gamma > 0 or name != kind]
    entry = MethodResult(CLAMPED, NeuralClamping.title, seconds=summary.seconds, notes=summary.notes)
    scoring.judge(entry, after, rivals)
    return ClampingJudgement(
        tuple(scoring.known[name] for name in (*methods, CLAMPED) if name in scoring.known),
        tuple(scoring.known[name] for name in parts if name in scoring.known),
        scoring.effect(REFITTED if is_refitted else CLAMPED, kind) if moves else None,
        summary,
        head=kind,
        temperature=clamped.temperature if isinstance(clamped.head, Scale) else None,
        norm=float(delta.norm()),
        largest=float(delta.abs().max()),
        n_calibration=len(calibration),
        n_test=len(before),
        n_classes=before.n_classes,
        n_bins=n_bins,
        seed=seed,
        resamples=resamples,
        cautions=cautions,
        failures=tuple(scoring.failures),
        predictions=scoring.predictions,
    )


def _summary(clamped: ClampedModel) -> ClampingSummary:
    if clamped.summary is None:
        raise InputError("clamped must have the summary of its fit to be judged; it has none.")
    return clamped.summary


def _refitted(clamped: ClampedModel, calibration: Predictions | None, test: Predictions) -> Trial:
    """Temperature scaling of the network at x + δ."""
    if calibration is None:
        raise InputError(
            "calibration_after must be given where the clamped network's T is not the log-loss's optimum (a focal loss "
            "or the stochastic solver); got None. Run the clamped network on the rows it was fitted on."
        )
    rows = [each.with_logits(each.logits * clamped.temperature) for each in (calibration, test)]
    return try_fit(TemperatureScaling().fit, rows[0], rows[1])
