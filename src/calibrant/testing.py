"""For tests of your own: assert that a model is calibrated, and check plugins against the library's laws.

Each function raises an ``AssertionError`` that carries the evidence, or says which law is broken::

    def test_the_model_is_calibrated():
        calibrant.testing.assert_calibrated(probs=model.predict_proba(X), labels=y, fail_unless="ece<0.05")

    def test_my_calibrator_keeps_the_laws():
        calibrant.testing.check_calibrator(MyCalibrator())
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evaluation import Evaluation, evaluate, is_beyond_noise, metrics_for
from calibrant.evidence import report_differences
from calibrant.gates import Gate, quantities_of, reported_names
from calibrant.losses import Loss, RowLoss
from calibrant.maps import Map
from calibrant.metrics import Metric
from calibrant.metrics.states import merge
from calibrant.predictions import OF_CORRECTNESS, Arrays, Predictions, TopLabel, as_predictions

_SMALL_ERROR = 0.01  # of ece: less is too small to matter, even if it is beyond noise


def assert_calibrated(
    *predictions: Predictions | TopLabel,
    fail_if: str | Sequence[str] = (),
    fail_unless: str | Sequence[str] = (),
    baseline: Predictions | TopLabel | None = None,
    point: bool = False,
    n_bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    **arrays: Unpack[Arrays],
) -> Evaluation:
    """Raise an AssertionError, with the evidence in its message, if predictions are not calibrated.

    Without conditions they are not if a calibration error is beyond noise (``ece`` or ``smece``, p at most .025) and
    ``ece`` is at least 1 %: few samples pass easily. Conditions are those of ``calibrant evaluate``. Of two classes the
    errors are those of the probability of class 1.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        fail_if: Conditions that must not be shown to hold, such as ``ece>0.05``.
        fail_unless: Conditions that must be shown to hold, such as ``ece<0.05`` or ``auroc>0.8``.
        baseline: Other predictions for the same samples, for conditions such as ``nll_difference>0.01``.
        point: Whether values decide the conditions, whatever their intervals are.
        n_bins: Bins of all binned errors.
        resamples: Bootstrap resamples for intervals and noise floors.
        seed: Random seed of the resampling.
        arrays: The predictions as arrays by keyword: ``assert_calibrated(probs=p, labels=y)``.

    Returns:
        The evaluation.

    Example:
        >>> _ = assert_calibrated(confidence=[0.8] * 100, correct=[True] * 80 + [False] * 20)
        >>> try:
        ...     assert_calibrated(confidence=[0.8] * 100, correct=[True] * 50 + [False] * 50)
        ... except AssertionError as error:
        ...     print(str(error).splitlines()[1])
        On average they claim 80.0 % and are right 50.0 % of the time (100 samples).
    """
    samples = as_predictions(predictions, "assert_calibrated", arrays)
    given = {"fail_if": fail_if, "fail_unless": fail_unless}
    texts = {name: [value] if isinstance(value, str) else value for name, value in given.items()}
    gates = [Gate.parse(text, "fail_if", of_point=point) for text in texts["fail_if"]]
    gates += [Gate.parse(text, "fail_unless", of_point=point) for text in texts["fail_unless"]]
    metrics = metrics_for(samples, n_bins=n_bins)
    known = reported_names(metrics, samples)
    for gate in gates:
        gate.check_is_reported(known, has_baseline=baseline is not None)
    drawn = {"resamples": resamples, "seed": seed}
    differences = None if baseline is None else report_differences(baseline, samples, metrics, **drawn)
    evaluation = evaluate(samples, n_bins=n_bins, resamples=resamples, seed=seed)
    metrics_by_name, risk = evaluation.estimates, evaluation.risk
    positive = f"“{evaluation.positive}”" if evaluation.positive else "class 1"
    of_answers = evaluation.positive == OF_CORRECTNESS[1]
    gates = gates if risk is None else [gate.of_two_classes(positive, of_answers=of_answers) for gate in gates]
    quantities = quantities_of(metrics_by_name, differences)
    outcomes = [gate.decide(quantities) for gate in gates]
    failed = [f"{outcome.gate.option} {outcome}" for outcome in outcomes if outcome.failed]
    name = "tl_ece" if evaluation.is_off_by_class else "ece"
    error, is_off = metrics_by_name[name], evaluation.is_off_by_class or is_beyond_noise(metrics_by_name)
    if not gates and is_off and error.value >= _SMALL_ERROR:
        evidence = f"{name} {error.value:.4f}, interval {error.low:.4f} to {error.high:.4f}, p = {error.p:.3f}"
        failed = [f"the predictions are miscalibrated: {evidence}."]
    if failed:
        confidence, accuracy = metrics_by_name["confidence"].value, metrics_by_name["accuracy"].value
        claim = f"On average they claim {confidence:.1%} and are right {accuracy:.1%} of the time"
        if risk is not None:
            means = f"{risk.predicted.value:.1%} on average, and {risk.observed.value:.1%} of samples are {positive}"
            claim = f"The probability of {positive} is {means}"
        raise AssertionError("\n".join([*failed, f"{claim} ({evaluation.n:,} samples).".replace("%", " %")]))
    return evaluation


def overconfident(
    n: int, k: int, *, seed: int = 0, sharpness: float = 2.0, dtype: torch.dtype = torch.float64
) -> Predictions:
    """Return predictions whose probabilities are right at a temperature of ``sharpness``."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits((sharpness * logits).to(dtype), labels)


def hard_logits(k: int) -> Tensor:
    """Return logits of every difficult kind: large, tied, constant, with an offset, saturated, tiny."""
    generator = torch.Generator().manual_seed(5)
    plain = 3 * torch.randn(200, k, generator=generator, dtype=torch.float64)
    large = torch.randn(60, k, generator=generator, dtype=torch.float64) * 1e3
    tied = torch.randint(-2, 3, (60, k), generator=generator).double()
    one_hot = torch.eye(k, dtype=torch.float64)
    extreme = [300 * one_hot, -300 * one_hot, plain[:5] + 1000, 1e-9 * plain[:5]]
    return torch.cat([plain, large, tied, torch.zeros(2, k), plain[:20] + 100, *extreme])


def check_calibrator(calibrator: Calibrator, *, n: int = 400) -> None:
    """Check the laws of a calibrator with two and with five classes.

    A fit gives the same map twice, does not change its samples and has a summary; the map gives finite probabilities
    for any logits, in the logits' dtype, sample by sample; it keeps the predicted class and the ranking of the samples
    where the class declares it; and it refuses top labels. ``n`` is the number of samples to fit on.
    """
    for attribute in ("name", "title", "family", "paper", "preserves_accuracy", "preserves_ranking"):
        assert hasattr(type(calibrator), attribute), f"a calibrator must have the class attribute {attribute}"
    for k in (2, 5):
        samples = overconfident(n, k)
        before = samples.logits.clone()
        fitted = _fit(calibrator, samples)
        assert torch.equal(samples.logits, before), "fit must not change its samples"
        assert isinstance(fitted, Map), f"fit must return a Map; got {type(fitted).__name__}"
        assert fitted.summary is not None, "a fitted map must have a summary"
        assert fitted.n_classes == k, f"the map must have the {k} classes of its samples; got {fitted.n_classes}"
        again = _fit(calibrator, overconfident(n, k))
        hard = hard_logits(k)
        assert torch.equal(fitted(hard), again(hard)), "two fits on the same samples must give the same map"
        _check_map(fitted, hard, calibrator)
    top = TopLabel(torch.tensor([0.9, 0.6]), torch.tensor([True, False]))
    try:
        calibrator.fit(top)  # type: ignore[arg-type]
    except InputError:
        return
    raise AssertionError("a fit on a TopLabel must raise InputError")


def _fit(calibrator: Calibrator, samples: Predictions) -> Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        return calibrator.fit(samples)


def _check_map(fitted: Map, logits: Tensor, calibrator: Calibrator) -> None:
    calibrated = fitted(logits)
    probs = calibrated.softmax(1)
    assert calibrated.shape == logits.shape, "a map must give logits of the shape it is given"
    assert calibrated.isfinite().all(), "a map must give finite logits for finite logits"
    torch.testing.assert_close(probs.sum(1), torch.ones_like(probs[:, 0]), msg="probabilities must sum to 1")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        given = logits.clamp(-100, 100).to(dtype)
        result = fitted(given)
        assert result.dtype == dtype, f"a map must return the dtype of its input; {dtype} gives {result.dtype}"
        assert result.isfinite().all(), f"a map must give finite logits in {dtype}"
    alone = torch.cat([fitted(sample) for sample in logits.split(1)]).softmax(1)
    torch.testing.assert_close(alone, probs, msg="a sample's result must not depend on the other samples")
    clear = (logits.topk(2, dim=1).values.diff(dim=1)[:, 0].abs() > 1e-6) & (logits.abs().amax(1) < 50)
    if calibrator.preserves_accuracy:
        kept = calibrated.argmax(1) == logits.argmax(1)
        assert kept[clear].all(), "preserves_accuracy is declared, but the predicted class of a sample changed"
    if calibrator.preserves_ranking:
        order = logits.softmax(1).amax(1)[clear].argsort()
        ranked = probs.amax(1)[clear][order]
        assert (ranked.diff() >= -1e-9).all(), "preserves_ranking is declared, but the order of confidences changed"


def check_metric(metric: Metric, *, tolerance: float = 1e-9) -> None:
    """Check the laws of a metric.

    Its value is one float; the states of two parts merge into the state of the whole; the order of the samples does not
    matter; its samples are not changed; a sample of weight 0 counts nothing, and only the ratios of weights matter. A
    metric whose statistic refuses weights is excused from the last two.
    """
    for attribute in ("name", "title", "family", "paper", "lower_is_better"):
        assert hasattr(metric, attribute), f"a metric must have the attribute {attribute}"
    for k in (2, 5):
        samples = overconfident(301, k)
        before = samples.logits.clone()
        value = metric(samples)
        assert isinstance(value, float), f"a metric must return a float; got {type(value).__name__}"
        assert torch.equal(samples.logits, before), "a metric must not change its samples"
        whole = torch.tensor(value, dtype=torch.float64)
        first, second = slice(0, 100), slice(100, 301)
        merged = metric.value(merge([metric.statistic(samples[first]), metric.statistic(samples[second])]))
        message = "the merged states of two parts must give the value of the whole"
        torch.testing.assert_close(merged.double(), whole, rtol=tolerance, atol=tolerance, msg=message)
        shuffled = samples[torch.randperm(301, generator=torch.Generator().manual_seed(1))]
        other = torch.tensor(metric(shuffled), dtype=torch.float64)
        message = "the order of the samples must not matter"
        torch.testing.assert_close(other, whole, rtol=tolerance, atol=tolerance, msg=message)
        if metric.statistic.takes_weights:
            _check_weights(metric, samples, tolerance)


def _check_weights(metric: Metric, samples: Predictions, tolerance: float) -> None:
    weights = torch.rand(len(samples), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    kept = torch.arange(len(samples)) % 3 > 0

    def value(weights: Tensor | None, rows: Tensor | None = None) -> Tensor:
        given = Predictions.from_logits(samples.logits, samples.labels, weights=weights)
        return torch.tensor(metric(given if rows is None else given[rows]), dtype=torch.float64)

    cases = {
        "a sample of weight 0 must count nothing": (value(weights * kept), value(weights, kept)),
        "only the ratios of the weights may matter": (value(7.3 * weights), value(weights)),
        "weights of 1 must change nothing": (value(torch.ones_like(weights)), value(None)),
    }
    for message, (got, expected) in cases.items():
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, msg=message)


def check_loss(loss: Loss, *, tolerance: float = 1e-6) -> None:
    """Check the laws of a loss.

    It is finite, its gradient is that of finite differences, the order of a batch does not matter, and its inputs
    are not changed. A loss of single samples agrees with itself under the reductions ``none``, ``mean`` and ``sum``.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (12,), generator=generator)
    given = logits.clone().requires_grad_()
    value = loss(given, labels)
    assert value.shape == (), "a loss must be one number under the reduction mean"
    assert value.isfinite(), f"a loss must be finite; got {float(value)}"
    value.backward()
    assert given.grad is not None, "a loss must have a gradient in its logits"
    assert torch.equal(given.detach(), logits), "a loss must not change its logits"
    direction = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    step = 1e-6
    with torch.no_grad():
        rise = (loss(logits + step * direction, labels) - loss(logits - step * direction, labels)) / (2 * step)
        order = torch.randperm(12, generator=generator)
        shuffled = loss(logits[order], labels[order])
    message = "the gradient must be that of finite differences"
    torch.testing.assert_close((given.grad * direction).sum(), rise, rtol=tolerance, atol=tolerance, msg=message)
    torch.testing.assert_close(shuffled, value.detach(), msg="the order of a batch must not matter")
    if isinstance(loss, RowLoss):
        other = copy.deepcopy(loss)
        other.reduction = "none"
        losses = other(logits, labels)
        assert losses.shape == (12,), "a loss of single samples must give one number for each under the reduction none"
        torch.testing.assert_close(losses.mean(), value.detach(), msg="mean must be the mean of none")
        other.reduction = "sum"
        torch.testing.assert_close(other(logits, labels), losses.sum(), msg="sum must be the sum of none")
