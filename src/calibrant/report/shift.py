"""The page of a shift: whether class proportions changed, whether nothing else did, and what accuracy to expect."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from calibrant.evidence import LEVEL, Estimate
from calibrant.report import page
from calibrant.shift import ADJUSTED, CALIBRATED, GIVEN, ClassShare, Expected, Shift
from calibrant.text import counted, joined, percent, without_middle

_MOST = 12  # classes in the brief form
_NAMED = 3  # classes in a sentence
_FEW = 200  # new samples, below which the test of the scores shows large changes only
_ROWS = {GIVEN: "as given", CALIBRATED: "calibrated on the reference", ADJUSTED: "adjusted to the proportions"}
_PARTS = {
    "confidence": "… of the confidence",
    "spread": "… of the spread of the log-probabilities",
    "predicted": "… of the predicted class",
}
_LEGEND = (
    "Proportions of most likelihood, if samples of a class look as they do in the reference; * changed beyond chance, "
    "corrected for the number of classes."
)
_EXPECTED = (
    "Accuracy and log-loss of the reference samples, reweighted by class: what samples like the new ones have on "
    "average, if only the proportions changed."
)


def shift_page(
    shift: Shift, *, reference: str = "the reference", new: str = "new", command: str = "", is_saved: bool = False
) -> page.Page:
    """Return a shift as a page.

    Args:
        shift: The shift that was measured.
        reference: Name of the reference, such as its file.
        new: Name of the new samples.
        command: Command that applies the adjusted map, or saves it.
        is_saved: Whether the adjusted map was saved.
    """
    ranked = sorted(shift.classes, key=lambda one: (not one.is_changed, -abs(one.new.value - one.reference.value)))
    performance = page.Section("Expected of the new samples", (_performance(shift),), legend=_EXPECTED)
    headline, tone = _headline(shift)
    return page.Page(
        "Shift",
        f"{_size(shift, 0)} of {without_middle(reference)} with labels, {_size(shift, 1)} of {without_middle(new)}, "
        f"{len(shift.classes):,} classes",
        page.Verdict(headline, list(_findings(shift)), _next_steps(shift, is_saved=is_saved)),
        source=new,
        tone=tone,
        brief=(_proportions(shift, ranked[:_MOST]), performance),
        sections=(_proportions(shift, shift.classes), performance, page.Section("Tests", (_tests(shift),))),
        full_hint="All classes, and the tests" if len(shift.classes) > _MOST else "The tests",
        settings=f"{shift.resamples:,} resamples of both files, seed {shift.seed}",
        footer=f"The mean log-likelihood is within {max(shift.certificate.gradient, 1e-16):.0e} of its maximum.",
        commands=(command,) if command and _helps(shift) else (),
        data=lambda: page.document("calibrant.shift/1", _document(shift)),
    )


def _size(shift: Shift, place: int) -> str:
    n, effective, clusters = (shift.n_reference, shift.n_new)[place], shift.effective[place], shift.clusters[place]
    details = [f"effective {effective:,.0f}"] if round(effective) != n else []
    details += [f"{clusters:,} clusters"] if clusters is not None else []
    return counted(n, "sample") + (f" ({', '.join(details)})" if details else "")


def _headline(shift: Shift) -> tuple[str, page.Tone]:
    accuracy = _accuracy(shift.expected[GIVEN].accuracy)
    if not shift.is_label_shift:
        return "More changed than the class proportions: do not trust these numbers, label some new samples.", "bad"
    if not shift.is_changed:
        return f"No change of the class proportions is shown; expect an accuracy of {accuracy}.", "good"
    there, now = shift.expected[GIVEN].on_reference, shift.expected[GIVEN].accuracy
    is_lower = now.high < there.value
    return f"The class proportions changed; expect an accuracy of {accuracy}.", "bad" if is_lower else "neutral"


def _accuracy(estimated: Estimate) -> str:
    if math.isnan(estimated.low):
        return percent(estimated.value)
    return f"{percent(estimated.value)} ({100 * estimated.low:.1f} to {100 * estimated.high:.1f} %)"


def _findings(shift: Shift) -> Iterator[str]:
    p = page.p_text(shift.p_label_shift)
    if not shift.is_label_shift:
        yield (
            f"The scores are not those of the reference in other proportions (p {p}): samples of a class look "
            "different, there are kinds of samples that the reference lacks, or the model or its inputs changed. "
            "Proportions, accuracy and the adjusted map assume that this is not so."
        )
    changed = sorted((one for one in shift.classes if one.is_changed), key=lambda one: -abs(_change(one)))
    if changed:
        words = [f"{without_middle(one.name)} from {percent(one.reference.value)} to {percent(one.new.value)}"
                 for one in changed[:_NAMED]]  # fmt: skip
        more = (
            f", and {counted(len(changed) - _NAMED, 'other class', 'other classes')}" if len(changed) > _NAMED else ""
        )
        yield f"Changed: {joined(words) if not more else ', '.join(words)}{more}."
    elif shift.is_changed:
        yield f"Together the proportions differ (p {page.p_text(shift.p_unchanged)}); of no single class is it shown."
    if shift.is_label_shift:
        few = " With so few samples, only a large change would show." if min(shift.effective) < _FEW else ""
        yield f"The scores are those of the reference in these proportions, as far as they show (p {p}).{few}"
    there = shift.expected[GIVEN].on_reference
    if shift.is_changed or not shift.is_label_shift:
        yield f"On the reference {percent(there.value)} of the predictions are right."
    yield from _gain(shift)
    yield from _actual(shift)


def _change(one: ClassShare) -> float:
    return one.new.value - one.reference.value


def _helps(shift: Shift) -> bool:
    """Whether the adjusted map is of use: the proportions alone changed, and it does not raise the log-loss."""
    return shift.is_label_shift and shift.is_changed and not shift.gain["nll"].low > 0


def _gain(shift: Shift) -> Iterator[str]:
    if not (shift.is_label_shift and shift.is_changed):
        return
    accuracy, nll = shift.gain["accuracy"], shift.gain["nll"]
    points = page.bounds_text(100 * accuracy.low, 100 * accuracy.high, "+z.1f", "to")
    text = f"Adjusted probabilities change the accuracy by {100 * accuracy.value:+z.1f} points ({points})"
    yield f"{text}, and the log-loss by {nll.value:+z.4f} ({page.bounds_text(nll.low, nll.high, joined='to')})."


def _actual(shift: Shift) -> Iterator[str]:
    expected = shift.expected[GIVEN]
    if expected.actual is None:
        return
    actual = expected.actual["accuracy"]
    where = "inside" if expected.accuracy.low <= actual <= expected.accuracy.high else "outside of"
    yield (
        f"By the labels of the new samples, which were not used, {percent(actual)} are right, {where} the interval; "
        f"{shift.covered:,} of {counted(len(shift.classes), 'interval')} hold the class's proportion."
    )


def _next_steps(shift: Shift, *, is_saved: bool) -> list[str]:
    (half, n), *more = shift.labels_needed.items()
    needed = f"{n:,} give the accuracy to ±{100 * half:g} points" + "".join(
        f", {n:,} to ±{100 * half:g}" for half, n in more
    )
    if not shift.is_label_shift:
        has_labels = shift.expected[GIVEN].actual is not None
        return [
            "Evaluate the new samples, which have labels: calibrant evaluate."
            if has_labels
            else f"Label new samples drawn at random: {needed}. Then evaluate them, and fit a map on them."
        ]
    if not shift.is_changed:
        return ["Change nothing, and compare again when more samples have come in."]
    checked = f"To check the accuracy, label new samples drawn at random: {needed}."
    if not _helps(shift):
        return ["Do not adjust the probabilities: that would raise the log-loss.", checked]
    return ["Apply the adjusted map to samples like the new ones." if is_saved else "Save the adjusted map.", checked]


def _proportions(shift: Shift, classes: "list[ClassShare] | tuple[ClassShare, ...]") -> page.Section:
    rows = [
        [page.name_cell(one.name), page.estimate_text(one.reference),
         page.Cell(page.estimate_text(one.new) + (" *" if one.is_changed else ""), bold=one.is_changed),
         "" if one.actual is None else page.number_text(one.actual), page.p_text(one.p, resampled=False)]
        for one in classes
    ]  # fmt: skip
    left = len(shift.classes) - len(classes)
    title = f"Class proportions, the {len(classes)} that changed most" if left else "Class proportions"
    table = page.table(["class", "reference", "new", "actual", "p"], rows)
    return page.Section(title, (table,), legend=_LEGEND)


def _performance(shift: Shift) -> page.Table:
    def row(name: str, one: Expected) -> list[object]:
        actual = ["", ""] if one.actual is None else [page.number_text(one.actual[of]) for of in ("accuracy", "nll")]
        texts = [page.estimate_text(of) for of in (one.on_reference, one.accuracy, one.nll)]
        return [_ROWS[name], *texts[:2], actual[0], texts[2], actual[1]]

    headings = ["predictions", "accuracy on the reference", "accuracy ↑", "actual ↑", "nll ↓", "actual ↓"]
    return page.table(headings, [row(name, one) for name, one in shift.expected.items()])


def _tests(shift: Shift) -> page.Table:
    rows = [
        ["the proportions are those of the reference", page.p_text(shift.p_unchanged), "", _outcome(shift.is_changed)],
        ["nothing else changed", page.p_text(shift.p_label_shift), "", _outcome(not shift.is_label_shift)],
        *([_PARTS[name], page.p_text(part.p), percent(part.distance), ""] for name, part in shift.parts.items()),
    ]
    return page.table([f"hypothesis, rejected at {LEVEL:g}", "p", "largest difference", "outcome"], rows, text=(0, 3))


def _outcome(rejected: bool) -> str:
    return "rejected" if rejected else "not rejected"


def _document(shift: Shift) -> dict[str, Any]:
    return {
        "n": {"reference": shift.n_reference, "new": shift.n_new},
        "effective_n": dict(zip(("reference", "new"), shift.effective, strict=True)),
        "clusters": dict(zip(("reference", "new"), shift.clusters, strict=True)),
        "is_changed": shift.is_changed,
        "is_label_shift": shift.is_label_shift,
        "p": {"unchanged": shift.p_unchanged, "label_shift": shift.p_label_shift},
        "parts": dict(shift.parts),
        "classes": [asdict(one) for one in shift.classes],
        "expected": {name: asdict(one) for name, one in shift.expected.items()},
        "gain": dict(shift.gain),
        "labels_needed": {f"{half:g}": n for half, n in shift.labels_needed.items()},
        "covered": shift.covered,
        "distributions": dict(shift.distributions),
        "certificate": shift.certificate,
        "resamples": shift.resamples,
        "seed": shift.seed,
    }
