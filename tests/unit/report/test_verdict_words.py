"""The verdict on a candidate is right in words for every combination of sides."""

import math
from itertools import product

import pytest

from calibrant.diagnosis import CandidateVerdict
from calibrant.evidence import Difference
from calibrant.report.candidates import baseline_words, basis_words, verdict_words

NAN = math.nan
SIDES = ("better", "worse", "alike")


def against(side, value, baseline, *, covers_seeds=True):
    return Difference(baseline, value, value - baseline, -1.0, 1.0, 0.5, 0.5, side, covers_seeds)


def spoken(candidate, baseline, *, raw, scaled, auroc, accuracy):
    found = CandidateVerdict("b", "a", raw, scaled, auroc, accuracy, "alike", 1, 1, 1)
    return verdict_words(found, candidate, baseline)


# The numbers of each side: of errors, lower is better.
RAW = {"better": (0.021, 0.094), "worse": (0.094, 0.021), "alike": (0.093, 0.094)}
SCALED = {"better": (0.008, 0.011), "worse": (0.028, 0.011), "alike": (0.012, 0.011)}
AUROC = {"better": (0.9, 0.87), "worse": (0.81, 0.87), "alike": (0.87, 0.868)}


def said(raw, scaled, auroc, accuracy="alike", *, covers_seeds=True, words="label smoothing 0.1"):
    numbers = {"better": (0.78, 0.75), "worse": (0.72, 0.75), "alike": (0.75, 0.75)}[accuracy]
    missing = against("alike", NAN, 0.011)
    return spoken(
        words,
        "cross-entropy",
        raw=against(raw, *RAW[raw], covers_seeds=covers_seeds),
        scaled=missing if scaled == "missing" else against(scaled, *SCALED[scaled]),
        auroc=against("alike", NAN, 0.87) if auroc == "missing" else against(auroc, *AUROC[auroc]),
        accuracy=against(accuracy, *numbers),
    )


def test_the_verdict_of_the_papers_reads_as_it_should():
    assert said("better", "worse", "worse") == (
        "Label smoothing 0.1 lowers raw ECE from .094 to .021, but after temperature scaling it is .028 against .011 "
        "for cross-entropy, and it separates errors worse: AUROC .81 against .87."
    )


RAW_WORDS = {
    "better": "Label smoothing 0.1 lowers raw ECE from .094 to .021",
    "worse": "Label smoothing 0.1 raises raw ECE from .021 to .094",
    "alike": "Label smoothing 0.1 does not change raw ECE clearly (.093 against .094 for cross-entropy)",
}
SCALED_WORDS = {
    ("better", "better"): ", and after temperature scaling it is still lower: .008 against .011 for cross-entropy",
    ("better", "worse"): ", but after temperature scaling it is .028 against .011 for cross-entropy",
    ("worse", "better"): ", but after temperature scaling it is .008 against .011 for cross-entropy",
    ("worse", "worse"): ", and after temperature scaling it is still higher: .028 against .011 for cross-entropy",
    ("alike", "better"): ", but after temperature scaling it is lower: .008 against .011 for cross-entropy",
    ("alike", "worse"): ", but after temperature scaling it is higher: .028 against .011 for cross-entropy",
} | {
    (raw, "alike"): (
        ", but after temperature scaling the two do not differ clearly: .012 against .011 for cross-entropy"
    ) for raw in ("better", "worse")
} | {(raw, "missing"): "; temperature scaling could not be fitted" for raw in SIDES}  # fmt: skip
AUROC_WORDS = {
    "better": "it separates errors better: AUROC .90 against .87.",
    "worse": "it separates errors worse: AUROC .81 against .87.",
    "alike": "it separates errors neither better nor worse: AUROC .87 against .87.",
}
NO_AUROC = "no AUROC, because all predictions of label smoothing 0.1 are right"
BOTH_ALIKE = (
    "Label smoothing 0.1 does not change ECE clearly, neither raw (.093 against .094 for cross-entropy) nor after "
    "temperature scaling (.012 against .011)"
)


def joint(raw, scaled, auroc):
    """ "and" where it goes the way of what was said last, "but" where it turns."""
    if auroc == "alike":
        return "and"
    last = {"missing": raw}.get(scaled, scaled)
    if last == "alike":
        return "but" if raw == "alike" else "and"
    return "and" if last == auroc else "but"


@pytest.mark.parametrize(("raw", "scaled", "auroc"), list(product(SIDES, (*SIDES, "missing"), (*SIDES, "missing"))))
def test_every_combination_is_put_into_the_right_words(raw, scaled, auroc):
    found = said(raw, scaled, auroc)
    if {raw, scaled, auroc} <= {"alike", "missing"}:
        after = {
            "alike": "after temperature scaling .012 against .011",
            "missing": "no number after temperature scaling, which could not be fitted",
        }[scaled]
        end = ", AUROC .87 against .87." if auroc == "alike" else f", {NO_AUROC}."
        start = "Label smoothing 0.1 and cross-entropy do not differ clearly: raw ECE .093 against .094, "
        assert found == start + after + end
        return
    start = BOTH_ALIKE if raw == scaled == "alike" else RAW_WORDS[raw] + SCALED_WORDS[raw, scaled]
    end = f"; there is {NO_AUROC}." if auroc == "missing" else f", {joint(raw, scaled, auroc)} {AUROC_WORDS[auroc]}"
    assert found == start + end


def test_accuracy_is_told_where_it_differs():
    assert said("better", "worse", "worse", "worse").endswith("against .87. Its accuracy is lower: .720 against .750.")
    assert said("alike", "alike", "alike", "better").endswith(" Its accuracy is higher: .780 against .750.")
    assert "accuracy" not in said("better", "worse", "worse")


def test_one_run_of_each_is_said_to_be_no_more():
    found = said("better", "worse", "worse", covers_seeds=False)
    assert found.startswith("In one run each, label smoothing 0.1 lowers raw ECE")
    assert said("alike", "alike", "alike", covers_seeds=False).startswith("In one run each, label smoothing 0.1 and ")


def test_numbers_that_differ_beyond_noise_are_told_apart_and_others_are_not_stretched():
    numbers = {"scaled": against("alike", 0.01, 0.01), "accuracy": against("alike", 0.7, 0.7)}
    near = {"raw": against("worse", 0.02134, 0.02131), "auroc": against("better", 0.8749, 0.8721)}
    words = spoken("b", "a", **near, **numbers)
    assert "raises raw ECE from .02131 to .02134" in words
    assert "AUROC .875 against .872" in words
    same = {"raw": against("alike", 0.02134, 0.02131), "auroc": against("better", 0.9, 0.8)}
    assert "(.021 against .021 for a)" in spoken("b", "a", **same, **numbers)


@pytest.mark.parametrize(
    ("aurocs", "accuracies", "said"),
    [((NAN, 0.87), (1.0, 0.9), "of b are right"), ((0.87, NAN), (0.9, 0.0), "of a are wrong"),
     ((NAN, NAN), (1.0, 1.0), "of b and of a are right"), ((NAN, NAN), (0.0, 1.0), "of b and of a are wrong or right")],
)  # fmt: skip
def test_why_there_is_no_auroc_is_said(aurocs, accuracies, said):
    numbers = {"raw": against("better", 0.1, 0.2), "scaled": against("alike", 0.01, 0.01)}
    accuracy = against("alike", *accuracies)
    words = spoken("b", "a", **numbers, auroc=against("alike", *aurocs), accuracy=accuracy)
    assert words.endswith(f"; there is no AUROC, because all predictions {said}.")


def test_a_long_name_of_the_reference_is_not_in_every_sentence():
    assert baseline_words("cross-entropy with mixup 0.2") == "cross-entropy with mixup 0.2"
    assert baseline_words("cross-entropy with split holdout and epochs 2 and batch size 32") == "the baseline"


def test_a_perfect_auroc_keeps_its_one():
    numbers = {"raw": against("better", 0.1, 0.2), "scaled": against("alike", 0.01, 0.01)}
    words = spoken("b", "a", **numbers, auroc=against("better", 1.0, 0.9), accuracy=against("alike", 0.7, 0.7))
    assert "AUROC 1.00 against .90" in words


@pytest.mark.parametrize(
    ("runs", "candidates", "text"),
    [
        ((1, 1), 1, "One run each, {}: the noise of samples is known, that of seeds is not."),
        ((3, 5), 1, "3 runs against 5 runs, {}: the noise of samples and of seeds."),
        (
            (1, 3),
            1,
            (
                "1 run against 3 runs, {}: the noise of samples and of seeds, where a single run is assumed to vary as "
                "those of the other side do."
            ),
        ),
        (
            (2, 2),
            4,
            "2 runs against 2 runs, {}: the noise of samples and of seeds. Corrected for 4 comparisons at once (Holm).",
        ),
    ],
)
def test_the_basis_is_told(runs, candidates, text):
    alike = against("alike", 0.1, 0.1)
    found = CandidateVerdict("b", "a", alike, alike, alike, alike, "alike", *runs, candidates)
    assert basis_words(found, 10_000) == text.format("on the same 10,000 test samples")
