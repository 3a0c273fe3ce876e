"""An evaluation in words: the headline, the findings, and what to do about it."""

import math
from collections.abc import Mapping, Sequence

from calibrant.errors import CHECK_LABELS
from calibrant.evaluation import (
    NOISE_LEVEL,
    WORTHWHILE,
    Evaluation,
    Reason,
    WorstClass,
    is_beyond_noise,
    smallest_visible,
)
from calibrant.evidence import LEVEL, Estimate
from calibrant.evidence.logistic import NoLine
from calibrant.metrics import ScoreSplit
from calibrant.predictions import LABEL_FLOOR, OF_CORRECTNESS, PROB_FLOOR
from calibrant.report import page
from calibrant.report.page import Verdict
from calibrant.report.risk import (
    class_name,
    decision_words,
    error_text,
    highest_words,
    places_of,
    risk_headline,
    separates,
    separation_words,
    size_of,
)
from calibrant.slices import Slice
from calibrant.text import counted, joined, percent, samples_text, without_middle

_STEPS = {
    Reason.temperature_helps: (
        "Fit a temperature on samples that are not used for testing, and evaluate again; calibrant compare tests "
        "whether another method is better."
    ),
    Reason.scores_disagree: (
        "A temperature lowers one proper score and raises the other: compare methods (calibrant compare) on samples "
        "that are not used for testing before fitting one."
    ),
    Reason.classes_differ: (
        "One temperature cannot correct classes that are off in opposite directions: compare methods (calibrant "
        "compare); platt, svs and sms correct every class."
    ),
    Reason.not_by_temperature: (
        "Temperature scaling would not help: look at the classes and bins above, and compare methods "
        "(calibrant compare)."
    ),
    Reason.gain_unknown: (
        "Recalibrate the confidence: compare methods (calibrant compare) on samples that are not used for testing."
    ),
    Reason.too_small: "Leave the confidence unchanged: its error is too small to matter.",
    Reason.calibrated: "Leave the confidence unchanged: recalibrating could only add noise.",
    Reason.like_guessing: f"It is right no more often than guessing would be. {CHECK_LABELS}",
}
_RISK_STEP = (
    "Compare methods (calibrant compare) on samples that are not used for testing: one temperature cannot correct both "
    "level and spread of a probability, as platt can. If none is clearly better than a temperature there, fit that."
)
_LEVEL_STEP = (
    "Compare methods (calibrant compare) on samples that are not used for testing: the level of the probability is "
    "off, not its spread, as where the share of {} has changed. platt corrects it, as adding about {:.2g} to the "
    "log-odds would."
)
_OTHER_RISK_STEP = (
    "Temperature scaling would not help: look at the tenths of the probability (--full), and compare methods "
    "(calibrant compare)."
)
_COPIES_STEP = "Leave copies out, or name the column that they share by --clusters, and evaluate again."
_NO_LINES: dict[NoLine | None, str] = {
    NoLine.all_right: "every prediction is right",
    NoLine.all_wrong: "every prediction is wrong",
    NoLine.extreme: "some confidences are 0 or 1",
    NoLine.constant: "all confidences are the same",
    NoLine.separable: "a threshold of the confidence separates right from wrong predictions",
    None: "some confidences are 0 or 1, all are the same, or a threshold separates right from wrong predictions",
}
_MOST_NAMED = 5  # of the classes that never occur
_POOR = 0.65  # AUROC below which the confidence is not to be relied on to choose predictions
_COMMON = 0.9  # share of a class from which the other one of two is rare
TOP_LABEL_COLUMNS = " --probs --positive confidence --labels correct"


def verdict(
    evaluation: Evaluation, slices: Sequence[Slice] = (), compared: str | None = None, reading: str = TOP_LABEL_COLUMNS
) -> Verdict:
    """Put an evaluation into words; ``compared`` says how it differs from a baseline.

    ``reading`` has the options of a command that compares methods on confidences; "" if one stands below the words.
    """
    risk = evaluation.risk
    findings = [
        *filter(None, [compared]),
        *_copies(evaluation),
        *_absent(evaluation),
        _noise(evaluation.metrics, size_text(evaluation), "confidences" if risk is None else "probabilities"),
        *_by_class(evaluation),
        *([] if risk is None else [highest_words(risk), separation_words(evaluation, risk)]),
        *decision_words(evaluation.decisions, positive_words(evaluation)),
        *_line(evaluation),
        *_of_predictions(evaluation),
        *_worst_slice(slices),
        *_rare(evaluation),
        *_split(evaluation),
        *_zeros(evaluation),
    ]
    steps = [_COPIES_STEP] if evaluation.copies else []
    steps.append(_absent_step(evaluation) if evaluation.absent_classes else _step(evaluation, reading))
    is_poor = risk is None and evaluation.metrics["auroc"].high < _POOR
    if is_poor and not evaluation.absent_classes:  # of no interval it is NaN
        steps.append("Do not use confidence alone to decide which predictions to trust: it ranks them too poorly.")
    return Verdict(_headline(evaluation), findings, steps)


def size_text(evaluation: Evaluation) -> str:
    """Return how many samples there are, and how many independent ones they are worth."""
    return samples_text(evaluation.n, evaluation.effective_n, clusters=evaluation.clusters)


def positive_words(evaluation: Evaluation) -> str:
    """Return what a probability is of, which decisions are taken by."""
    return "being right" if evaluation.classes is None else class_name(1, evaluation.positive)


def _of_predictions(evaluation: Evaluation) -> list[str]:
    """Return findings about the predicted class and its confidence, where there is no one positive class."""
    if evaluation.risk is not None:
        return []
    return [
        *(
            f"Predictions with {percent(worst.low)} to {percent(worst.high)} confidence "
            f"({percent(worst.share)} of samples) claim {percent(worst.confidence)} and are right "
            f"{percent(worst.accuracy)} of the time."
            for worst in evaluation.worst_bins[:1]
        ),
        *_classes(evaluation),
        _separation(evaluation.metrics["auroc"], evaluation.metrics["accuracy"].value),
    ]


def _worst_slice(slices: Sequence[Slice]) -> list[str]:
    """Return a sentence about the worst slice, if it is worse than the rest."""
    worst = next((slice_ for slice_ in slices if slice_.is_miscalibrated and slice_.is_worse), None)
    if worst is None:
        return []
    claims, right = percent(worst.claimed.value), percent(worst.occurred.value)
    words = ("claims", "right") if worst.risk is None else ("predicted", "observed")
    others = sum(slice_.is_miscalibrated for slice_ in slices)
    named = f"Worst for {worst.column} = {without_middle(worst.value)} ({words[0]} {claims}, {words[1]} {right}"
    of = f"{others} of {counted(len(slices), 'slice')}"
    return [f"{named}, {counted(worst.n, 'sample')}); {of} have an error beyond noise."]


def _headline(evaluation: Evaluation) -> str:
    accuracy, confidence = evaluation.metrics["accuracy"].value, evaluation.metrics["confidence"].value
    if evaluation.risk is not None:
        return risk_headline(evaluation, evaluation.risk)
    claim = f"it is {percent(confidence)} sure on average and right {percent(accuracy)} of the time"
    if evaluation.is_off_by_class:
        by_class, worst = evaluation.metrics["tl_ece"], evaluation.worst_classes
        over, under = (next(c for c in worst if (c.confidence > c.accuracy) is sure) for sure in (True, False))
        claim = f"too sure of {_class_text(over)} and not sure enough of {_class_text(under)}"
        return f"{size_of(by_class.value - (by_class.floor or 0.0))} miscalibrated by class: {claim}."
    if not is_beyond_noise(evaluation.metrics):
        return f"No miscalibration beyond noise: {claim}."
    error = evaluation.metrics["ece"].value
    if abs(evaluation.gap) < error / 2:
        return f"{size_of(error)} miscalibrated, too sure in some places and not sure enough in others: {claim}."
    return f"{size_of(error)} {'over' if evaluation.gap > 0 else 'under'}confident: {claim}."


def _class_text(worst: WorstClass, *more: str) -> str:
    name = class_name(worst.label, worst.name, 80)  # those not named beside it may begin and end alike
    claims, right = f"claims {percent(worst.confidence)}", f"right {percent(worst.accuracy)}"
    return f"{name} ({', '.join((claims, right, *more))})"


def _by_class(evaluation: Evaluation) -> list[str]:
    """Return the error by predicted class, where the calibration error does not show it."""
    if not evaluation.is_off_by_class:
        return []
    error = evaluation.metrics["tl_ece"]
    interval = "" if math.isnan(error.low) else f" (95 % interval {error.low:.3f} to {error.high:.3f})"
    return [
        f"It averages over classes, whose errors cancel: by predicted class the error is {error.value:.3f}{interval}."
    ]


def _noise(metrics: Mapping[str, Estimate], samples: str, numbers: str) -> str:
    error, smooth = metrics["ece"], metrics["smece"]
    interval = "" if math.isnan(error.low) else f" (95 % interval {error_text(error.low)} to {error_text(error.high)})"
    floor = error_text(error.floor or 0.0)
    score = f"ECE {error_text(error.value)}{interval}; a calibrated model with these {numbers} would score {floor}"
    first, second = ("unknown" if p is None else "< .002" if p < 0.002 else f"= {p:.3f}" for p in (error.p, smooth.p))
    if is_beyond_noise(metrics, ["ece"]):
        wide = ", although the interval, which is conservative, reaches down to 0" if error.low <= 0 else ""
        return f"{score} on {samples}, so this is beyond noise (p {first}){wide}."
    is_close = error.p is not None and error.p <= LEVEL
    bound = f"; because two errors are tested, the bound is {NOISE_LEVEL:.3f}" if is_close else ""
    explained = f"{score} on {samples}, so noise {'may explain' if is_close else 'explains'} it (p {first}{bound})"
    if is_beyond_noise(metrics):
        return f"{explained}; the error without bins, smECE {error_text(smooth.value)}, is beyond it (p {second})."
    return f"{explained}."


def _line(evaluation: Evaluation) -> list[str]:
    if evaluation.line is None and evaluation.classes is None:
        return [f"There is no calibration slope: {_NO_LINES[evaluation.no_line]}."]
    if evaluation.line is None:
        zeros = evaluation.zeros.cells if evaluation.zeros and evaluation.classes == 2 else 0
        of = class_name(1, evaluation.positive)
        return [f"There is no calibration slope: {zeros:,} of the probabilities of {of} are 0 or 1."] if zeros else []
    texts = []
    for estimated, right in ((evaluation.line.slope, 1), (evaluation.line.in_the_large, 0)):
        interval = "" if math.isnan(estimated.low) else f"{estimated.low:.2f} to {estimated.high:.2f}; "
        texts.append(f"{estimated.value:.2f} ({interval}{right} if calibrated)")
    of = "" if evaluation.classes is None else f" of {class_name(1, evaluation.positive)}"
    return [f"On the scale of log-odds{of}: calibration slope {texts[0]}, calibration in the large {texts[1]}."]


def _rare(evaluation: Evaluation) -> list[str]:
    """Return how to evaluate the probability of the rare one of two classes, which few predictions are of."""
    if evaluation.risk or evaluation.classes != 2 or evaluation.majority is None or evaluation.majority.share < _COMMON:
        return []
    share = percent(1 - evaluation.majority.share)
    how = "--top-label --confidence NAME --correct NAME"
    return [
        f"Only {share} of samples are of the rarer class. To evaluate its probability, not the predicted class: {how}."
    ]


def _classes(evaluation: Evaluation) -> list[str]:
    worst_classes = evaluation.worst_classes
    if not worst_classes:
        return []
    gaps = [worst.confidence - worst.accuracy for worst in worst_classes]
    are_all = len(worst_classes) == evaluation.classes  # if there are few classes; one is then enough
    side = "overconfident" if min(gaps) > 0 else "underconfident" if max(gaps) < 0 else "miscalibrated"
    few = 1 if are_all and side != "miscalibrated" else 3
    named = [_class_text(worst, counted(worst.count, "sample")) for worst in worst_classes[:few]]
    if are_all and side == "miscalibrated":
        return [f"It is miscalibrated whichever class it predicts: {', '.join(named)}."]
    parts = "parts of the error come" if len(named) > 1 else "part of the error comes"
    words = f"the largest {parts} from predictions of {', '.join(named)}."
    return [f"It is {side} whichever class it predicts; {words}" if are_all else page.sentence(words)]


def _separation(auroc: Estimate, accuracy: float) -> str:
    if math.isnan(auroc.value):
        every = "right" if accuracy == 1 else "wrong"
        return f"Every prediction is {every}, so the separation of right from wrong is undefined."
    words = page.sentence(separates(auroc, "confidence", "right from wrong"))
    interval = "" if math.isnan(auroc.low) else f"{auroc.low:.3f} to {auroc.high:.3f}; "
    return f"{words}: AUROC {auroc.value:.3f} ({interval}guessing is 0.5)."


def _split(evaluation: Evaluation) -> list[str]:
    """Return the effect of one temperature on the log-loss, and on the Brier score where its direction differs."""
    if not evaluation.splits:
        return []
    nll, brier = evaluation.splits["nll"], evaluation.splits["brier"]
    return [_removed("log-loss", nll), *([_removed("Brier score", brier)] if _side(nll) != _side(brier) else [])]


def _side(split: ScoreSplit) -> int:
    """Return 1 if a temperature lowers the score beyond noise, -1 if it raises it, 0 if the samples leave it open."""
    return int(split.calibration_low > 0) - int(split.calibration_high < 0)


def _removed(score: str, split: ScoreSplit) -> str:
    places = places_of(split.total / 10, 3)
    share, removed = percent(abs(split.calibration) / split.total), round(split.calibration, places)
    interval = f"{split.calibration_low:z.{places}f} to {split.calibration_high:z.{places}f}"
    whole = f"Of the {score} {split.total:.{places}f}, one temperature would"
    doubt = "but these samples are inconclusive"
    if _side(split) > 0:
        kept = f"{split.refinement:.{places}f} is what one temperature cannot lower"
        return f"{whole} remove {split.calibration:.{places}f} ({share}; 95 % interval {interval}); {kept}."
    if _side(split) < 0:
        raised = f"{-split.calibration:.{places}f} ({share})"
        return f"One temperature would raise the {score} {split.total:.{places}f} by {raised}, beyond noise."
    if split.calibration_high < WORTHWHILE * split.total:
        low, high = (percent(end / split.total) for end in (split.calibration_low, split.calibration_high))
        return f"{whole} remove less than {100 * WORTHWHILE:.0f} % (95 % interval {low} to {high})."
    if removed > 0:
        return f"{whole} remove {split.calibration:.{places}f}, {doubt} (95 % interval {interval})."
    change = f"raise it by {-split.calibration:.{places}f}" if removed < 0 else "not change it"
    estimated = f"The {score} is {split.total:.{places}f}: one temperature would {change}, {doubt}"
    return f"{estimated} (95 % interval of what it removes {interval})."


def _copies(evaluation: Evaluation) -> list[str]:
    """Return how many samples seem to be copies, and what that does to the evidence."""
    if not evaluation.copies:
        return []
    repeated = f"{evaluation.copies:,} of {evaluation.n:,} samples repeat another one's outputs and whether it is right"
    too = "Copies make intervals too narrow and p-values too small."
    return [f"{repeated}, far more than by chance: they may be copies. {too}"]


def _absent(evaluation: Evaluation) -> list[str]:
    """Return the classes of which there is no sample, although the probabilities expect many."""
    if not evaluation.absent_classes:
        return []
    fewest, *others = sorted(round(one.expected) for one in evaluation.absent_classes)
    expected = f"at least {fewest:,} of each" if others else f"{fewest:,}"
    return [f"No sample is {_absent_names(evaluation)}, though the probabilities expect {expected}."]


def _absent_names(evaluation: Evaluation) -> str:
    names = [class_name(one.label, one.name) for one in evaluation.absent_classes]
    left = len(names) - len(shown := names[:_MOST_NAMED])
    return joined([*shown, *([counted(left, "other class", "other classes")] if left else [])], "or")


def _absent_step(evaluation: Evaluation) -> str:
    has_option = evaluation.classes == 2 and evaluation.positive != OF_CORRECTNESS[1]
    also = " and --positive-class" if has_option else ", and that they number the classes as the scores do"
    return f"No sample is {_absent_names(evaluation)}: check the labels{also}."


def _step(evaluation: Evaluation, reading: str) -> str:
    """Return the advice; where more samples are needed, how many, and what those at hand suggest."""
    advice, samples = evaluation.advice, counted(evaluation.n, "sample")
    needed = f"evaluate on about {advice.samples:,}" if advice.samples else ""
    needed += " in clusters of the same size" if evaluation.clusters else ""
    if advice.reason is Reason.floor_high:
        hidden = f"With {samples} an ECE below about {smallest_visible(evaluation.metrics):.3f} is lost in noise"
        return f"{hidden}: {needed} before relying on it."
    if evaluation.classes is None and advice.reason is Reason.gain_unknown:
        end = f": calibrant compare CALIBRATION TEST{reading}" if reading else "; calibrant compare tests methods."
        return f"Calibrate the probability of being right, on samples that are not used for testing{end}"
    if advice.reason is not Reason.gain_open:
        steps = {} if evaluation.risk is None else _risk_steps(evaluation)
        return steps.get(advice.reason, _STEPS[advice.reason])
    step = f"{samples} cannot decide whether a temperature helps: {needed}."
    gains = [split.calibration / split.total for split in evaluation.splits.values()]
    if min(gains) >= 0 and max(gains) >= WORTHWHILE:
        return f"{step} They suggest a temperature; calibrant compare with calibration samples tests that directly."
    if is_beyond_noise(evaluation.metrics):
        return f"{step} They suggest another method than a temperature: see calibrant compare."
    return step


def _risk_steps(evaluation: Evaluation) -> dict[Reason, str]:
    """Return the steps that are others for the probability of one of two classes."""
    line, step = evaluation.line, _RISK_STEP
    if line is not None and 0.8 < line.slope.low <= 1 <= line.slope.high < 1.25:
        step = _LEVEL_STEP.format(class_name(1, evaluation.positive), line.in_the_large.value)
    return {Reason.classes_differ: step, Reason.not_by_temperature: _OTHER_RISK_STEP}


def _zeros(evaluation: Evaluation) -> list[str]:
    """Return how many probabilities are 0, and the effect on the log-loss."""
    zeros = evaluation.zeros
    if zeros is None or not (zeros.cells or zeros.floored_labels):
        return []
    share = percent(zeros.cells / zeros.of_cells)
    line = f"{share} of the probabilities are 0 or below {PROB_FLOOR:g} ({zeros.cells:,} of {zeros.of_cells:,})"
    if not zeros.floored_labels:
        return [f"{line}, none of them a true class's."] if zeros.cells > zeros.of_cells / 1000 else []
    labels = "1 true class" if zeros.floored_labels == 1 else f"{zeros.floored_labels:,} true classes"
    return [f"{line}: the log-loss counts {labels} as {LABEL_FLOOR:g}, and depends on that choice."]
