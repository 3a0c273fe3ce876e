"""A diagnosis in words and tables, as far as the golden pages of test_pages.py do not show it."""

import math
from dataclasses import astuple, replace

import pytest
from made_records import made_diagnosis, made_large_diagnosis

from calibrant.diagnosis import Band, Spread, TwoSample, spread
from calibrant.report import diagnosis_page, diagnosis_verdict
from calibrant.report.candidates import (
    SeedCell,
    shift_section,
    shift_sentences,
    short_text,
    signed_text,
    spread_text,
    under_shifts,
)
from calibrant.report.page import p_text


@pytest.fixture
def found():
    return made_large_diagnosis()


def tables_of(found, title):
    """The tables of the section whose title begins so."""
    return next(section.tables for section in diagnosis_page(found).sections if section.title.startswith(title))


def legend_of(found, title="Calibratability"):
    return next(section.legend for section in diagnosis_page(found).sections if section.title.startswith(title))


def test_marks_are_explained_by_the_noise_they_cover(found):
    first, second = found.verdicts
    single = replace(second, raw_ece=replace(second.raw_ece, covers_seeds=False))
    assert "noise of samples, and of seeds where either has several runs" in legend_of(
        replace(found, verdicts=(first, single))
    )
    assert "noise of samples. " in legend_of(replace(found, verdicts=(single,)))
    assert not set("▲▼✓✗") & set(legend_of(made_diagnosis(seeds=(0,), alone=True)))


def test_a_long_name_of_the_baseline_stands_once(found):
    long = "cross-entropy with split holdout and epochs 2 and batch size 32 and learning rate 0.02"
    renamed = [replace(one, words=long) if one.name == "ce" else one for one in found.candidates]
    words = diagnosis_verdict(replace(found, candidates=tuple(renamed)))
    assert words.findings[0].startswith(f"C{long[1:]}, the baseline, itself: accuracy .")
    assert "the accuracy of the baseline goes from" in words.findings[-1]
    assert " ".join([words.headline, *words.findings]).lower().count("batch size") == 1


def test_names_of_a_table_are_not_capitalised(found):
    plain = tuple(replace(one, words=one.name) for one in found.candidates)
    findings = diagnosis_verdict(replace(found, candidates=plain)).findings
    assert findings[0].startswith("ce itself: ")
    for verdict in found.verdicts:
        assert any(line.startswith(f"{verdict.candidate} ") for line in findings)


def test_a_baseline_without_errors_has_no_auroc(found):
    mine = next(one for one in found.refinement if one.candidate == "ce")
    row = replace(mine.rows[0], metrics=dict(mine.rows[0].metrics) | {"auroc": spread([math.nan])})
    others = [replace(one, rows=(row,)) if one is mine else one for one in found.refinement]
    first = diagnosis_verdict(replace(found, refinement=tuple(others))).findings[0]
    assert first.endswith("no AUROC, as every prediction is right or every one is wrong.")


def test_candidates_that_do_not_differ_are_counted_as_none(found):
    alike = replace(found.verdicts[0].auroc, side="alike")
    quiet = tuple(replace(one, ece_after_temperature=alike, auroc=alike) for one in found.verdicts)
    headline = diagnosis_verdict(replace(found, verdicts=quiet)).headline
    assert "none is clearly better or worse calibrated; none separates errors clearly better or worse" in headline


@pytest.mark.parametrize(
    ("epochs", "shown"),
    [(tuple(range(1, 21)), [1, 4, 7, 11, 14, 17, 20]), ((5,), [5]), ((5, 10), [5, 10]), (range(1, 9), range(1, 9))],
)
def test_few_epochs_are_shown_the_first_and_the_last_among_them(found, epochs, shown):
    epochs = tuple(epochs)
    band = Band(*((values * len(epochs))[: len(epochs)] for values in astuple(found.epochs[0].numbers["optimal_ece"])))
    curve = replace(found.epochs[0], epochs=epochs, numbers={"optimal_ece": band}, lowest_epoch=epochs[0])
    (table,) = tables_of(replace(found, epochs=(curve,)), "Optimal ECE")
    headings = [column.heading for column in table.columns if column.heading.startswith("epoch")]
    assert headings == [f"epoch {epoch}" for epoch in shown]


def test_learned_numbers_of_any_size_keep_their_digits(found):
    band = Band((5.01e-4,) * 3, (4.98e-4,) * 3, (5.04e-4,) * 3)
    learned = replace(found.epochs[0], learned={"l2_mean": band})
    (table,) = tables_of(replace(found, epochs=(learned,)), "Parameters of learned losses")
    assert table.rows[0][2].text == "0.0005010 (0.0004980 … 0.0005040)"


def test_a_sentence_about_a_shift_claims_nothing_that_only_a_t_test_of_runs_says(found):
    panel, name = found.shift, found.candidates[0].name
    lower = TwoSample(-0.1, -5.0, 4.0, 0.007, "lower", None)
    levels = tuple(
        replace(level, t_tests=dict.fromkeys(level.metrics, lower)) if level.candidate == name else level
        for level in panel.levels
    )
    panel = replace(panel, levels=levels)
    assert shift_sentences(panel, "ce")[0].endswith("temperature from .055 to .355.")
    assert any(row[2].mark == "▼" for row in shift_section(panel).tables[0].rows)
    assert "by a t-test of runs at .05, not corrected" in shift_section(panel).legend
    assert "▼" not in shift_section(replace(panel, levels=())).legend


def test_a_shifted_set_of_one_sample_is_counted_in_the_singular(found):
    panel = replace(found.shift, sets=tuple(replace(one, n=1) for one in found.shift.sets))
    assert under_shifts(panel)[-1].title == "v2 (1 sample)"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0941, ".094"), (-0.5, "-.500"), (-0.0001, ".000"), (2.5, "2.500"), (0.9999, "1.000")]
)
def test_a_share_is_written_without_its_zero(value, text):
    assert short_text(value) == text
    assert signed_text(value) == (text if text.startswith("-") else f"+{text}")


def test_numbers_that_are_missing_are_dashes():
    missing = spread([math.nan, math.nan])
    cell = SeedCell(missing)
    texts = short_text(math.nan), signed_text(math.nan), spread_text(missing), cell.cell().text, cell.mean().text
    assert set(texts) == {"–"}


def test_a_test_that_could_not_be_made_leaves_no_mark():
    note = TwoSample(0.1, math.nan, math.nan, math.nan, "alike", "one run only")
    assert SeedCell(Spread(0.1, math.nan, 0.1, 0.1, (0.1,)), note).cell().mark == ""


@pytest.mark.parametrize(
    ("p", "resampled", "text"),
    [(0.031, True, "0.031"), (4e-6, True, "< .002"), (4e-6, False, "4e-06"), (0.0015, False, "0.002"),
     (0.0, False, "< 1e-12"), (math.nan, False, "–"), (None, True, "")],
)  # fmt: skip
def test_a_p_value_has_the_digits_that_are_known(p, resampled, text):
    assert p_text(p, resampled=resampled) == text
