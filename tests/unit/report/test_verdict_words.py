"""The verdict on a candidate in words, for every combination of better, worse, alike and missing."""

import math
from itertools import product

from calibrant.diagnosis import CandidateVerdict
from calibrant.evidence import Difference
from calibrant.report.candidates import baseline_words, basis_words, verdict_words

NAN = math.nan
SIDES = ("better", "worse", "alike")
# The numbers of each side, of the candidate and of the baseline.
RAW = {"better": (0.021, 0.094), "worse": (0.094, 0.021), "alike": (0.093, 0.094)}
SCALED = {"better": (0.008, 0.011), "worse": (0.028, 0.011), "alike": (0.012, 0.011), "missing": (NAN, 0.011)}
AUROC = {"better": (0.9, 0.87), "worse": (0.81, 0.87), "alike": (0.87, 0.868), "missing": (NAN, 0.87)}
ACCURACY = {"better": (0.78, 0.75), "worse": (0.72, 0.75), "alike": (0.75, 0.75)}


def against(side, value, baseline, *, covers_seeds=True):
    side = "alike" if side == "missing" else side
    return Difference(baseline, value, value - baseline, -1.0, 1.0, 0.5, 0.5, side, covers_seeds)


def words(raw, scaled, auroc, accuracy):
    """One sentence about candidate b against baseline a, from four differences."""
    return verdict_words(
        CandidateVerdict("b", "a", raw, scaled, auroc, accuracy, "alike", 1, 1, 1), "label smoothing 0.1", "ce"
    )


def verdict(raw, scaled, auroc, accuracy="alike", *, covers_seeds=True):
    return words(
        against(raw, *RAW[raw], covers_seeds=covers_seeds),
        against(scaled, *SCALED[scaled]),
        against(auroc, *AUROC[auroc]),
        against(accuracy, *ACCURACY[accuracy]),
    )


def test_every_combination_reads_as_was_reviewed(golden):
    combinations = product(SIDES, SCALED, AUROC)
    lines = [f"raw {raw}, scaled {scaled}, AUROC {auroc}: {verdict(raw, scaled, auroc)}"
             for raw, scaled, auroc in combinations]  # fmt: skip
    lines += [f"accuracy {side}: {verdict('better', 'worse', 'worse', side)}" for side in SIDES]
    lines += [f"one run each: {verdict(side, 'alike', 'alike', covers_seeds=False)}" for side in SIDES]
    calibrated = against("better", 0.1, 0.2), against("alike", 0.01, 0.01)
    for aurocs, accuracies in (
        ((NAN, 0.87), (1.0, 0.9)), ((0.87, NAN), (0.9, 0.0)), ((NAN, NAN), (1.0, 1.0)), ((NAN, NAN), (0.0, 1.0)),
        ((1.0, 0.9), (0.7, 0.7)),
    ):  # fmt: skip
        side = "better" if aurocs == (1.0, 0.9) else "alike"
        text = words(*calibrated, against(side, *aurocs), against("alike", *accuracies))
        lines.append(f"AUROC {aurocs}, accuracy {accuracies}: {text}")
    golden("candidate-verdicts.txt", "\n".join(lines) + "\n")


def test_numbers_that_differ_beyond_noise_get_as_many_digits_as_it_takes():
    same = against("alike", 0.01, 0.01), against("better", 0.8749, 0.8721), against("alike", 0.7, 0.7)
    assert "from .02131 to .02134" in words(against("worse", 0.02134, 0.02131), *same)
    assert "(.021 against .021 for ce)" in words(against("alike", 0.02134, 0.02131), *same)
    assert "AUROC .875 against .872" in words(against("alike", 0.02134, 0.02131), *same)


def test_a_long_name_of_the_baseline_is_not_in_every_sentence():
    assert baseline_words("cross-entropy with mixup 0.2") == "cross-entropy with mixup 0.2"
    assert baseline_words("cross-entropy with split holdout and epochs 2 and batch size 32") == "the baseline"


def test_the_basis_names_runs_samples_and_kinds_of_noise(golden):
    alike = against("alike", 0.1, 0.1)
    cases = [((1, 1), 1), ((3, 5), 1), ((1, 3), 1), ((2, 2), 4)]
    verdicts = [
        CandidateVerdict("b", "a", alike, alike, alike, alike, "alike", *runs, compared) for runs, compared in cases
    ]
    golden("candidate-basis.txt", "\n".join(basis_words(verdict, "10,000 test samples") for verdict in verdicts) + "\n")
