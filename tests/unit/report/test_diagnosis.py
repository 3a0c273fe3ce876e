"""A diagnosis in words and tables: what stands where, what is marked, and what must be said beside it."""

import dataclasses
import json
import math
import re

import pytest
from made_runs import rows_of, settings_of, write_run

from calibrant.diagnosis import Band, ShiftPanel, ShiftRow, ShiftSummary, Spread, TwoSample, diagnose, read_runs, spread
from calibrant.diagnosis.shift import shift_levels
from calibrant.report import diagnosis_page, diagnosis_verdict, to_markdown
from calibrant.report.candidates import SeedCell, short_text, signed_text, spread_text
from calibrant.report.diagnosis import candidate_words, diagnosis_notes
from calibrant.report.page import p_text
from calibrant.report.shift import shift_section, shift_sentences, under_shifts
from calibrant.report.terminal import to_terminal
from calibrant.training import EpochRecord, HeldOutRecord

SMOOTH = "label_smoothing(0.1)"


def epochs(n):
    """Records whose optimal ECE falls to the middle and rises again."""
    looks = [HeldOutRecord(0.6, 1.0, 0.2, 2.0, 0.02 + 0.001 * abs(epoch - n // 2), 5.0) for epoch in range(1, n + 1)]
    return [EpochRecord(place, 1.0, 0.1, 1.0, 0.5, {"test": look}) for place, look in enumerate(looks, 1)]


def make(folder, loss, seed, *, scale, **more):
    parts = [rows_of(250, part, scale=scale, noise=0.05, seed=seed) for part in ("calibration", "test")]
    name = f"{loss.partition('(')[0]}{scale}-{seed}"
    return write_run(folder / name, settings_of(loss, seed, epochs=20), *parts, **more)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Label smoothing before the baseline, and far more overconfident; cross-entropy traced."""
    folder = tmp_path_factory.mktemp("runs")
    traced = ([1, 2, 3, 21], [9.0, 7.0, 5.0, 2.0])
    return [
        *(make(folder, "label_smoothing(smoothing=0.1)", seed, scale=8.0, records=epochs(20)) for seed in (0, 1)),
        *(make(folder, "label_smoothing(smoothing=0.05)", seed, scale=2.0, records=epochs(20)) for seed in (0, 1)),
        *(make(folder, "ce", seed, scale=2.0, records=epochs(20), learning=traced) for seed in (0, 1)),
    ]


@pytest.fixture(scope="module")
def found(folders):
    return diagnose(read_runs(folders), resamples=100, draws=1)


@pytest.fixture(scope="module")
def pair(folders):
    return diagnose(read_runs([*folders[:2], *folders[4:]]), resamples=100, draws=0)


@pytest.fixture(scope="module")
def alone(folders):
    return diagnose(read_runs(folders[4:5]), resamples=100, draws=0)


def page_of(found):
    return to_markdown(diagnosis_page(found, source="runs"))


def shown(found, width=100, *, full=False):
    return to_terminal(diagnosis_page(found, source="runs"), width=width, full=full).plain


def tables_of(found, title):
    """The tables of the section whose title begins so."""
    return next(each.tables for each in diagnosis_page(found).sections if each.title.startswith(title))


def texts_of(table):
    return [[cell.text for cell in row] for row in table.rows]


def legend_of(found, title="Calibratability"):
    return next(each.legend for each in diagnosis_page(found).sections if each.title.startswith(title))


def cells_of(page, heading, candidate):
    """The cells of a candidate's first row in the table under a heading."""
    table = page.partition(f"## {heading}")[2].partition("\n## ")[0]
    row = next(line for line in table.splitlines() if line.startswith(f"| `{candidate}`"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_page_tells_verdicts_then_tables_then_curves_in_order(found):
    page = page_of(found)
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert [heading for heading in headings if heading != "Notes"] == [
        "Diagnosis: runs",
        "Calibratability: the ECE that a map leaves",
        "Refinement: does confidence separate right from wrong?",
        "Log-loss and Brier score decomposed",
        "Murphy's decomposition, and the terms of equation 9",
        "Direction of miscalibration",
        "Over a coefficient: loss.smoothing of label_smoothing",
        "How many calibration samples a map needs",
        "Optimal ECE over epochs",
        "When samples were learned",
        "Differences in ECE from ce",
        "Runs",
    ]
    for verdict in found.verdicts:
        words, basis = candidate_words(found, verdict)
        assert words in page.partition("## Calibratability")[0]
        assert basis in page


def test_every_row_of_a_table_has_as_many_cells_as_its_header(found):
    page = page_of(found)
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table
    assert "nan" not in page.lower()


def test_the_reference_stands_first_whatever_the_order_of_folders(found):
    page = page_of(found)
    for heading in ("Calibratability", "Refinement", "Log-loss", "Murphy", "Direction", "How many", "Optimal ECE"):
        table = page.partition(f"## {heading}")[2]
        assert next(re.finditer(r"^\| `(.+?)`", table, re.MULTILINE))[1] == "ce"
    names = [line.split()[0] for line in shown(found).splitlines() if re.match(r"(ce|label)\S* +0\.", line)]
    assert names == ["ce", SMOOTH, "label_smoothing(0.05)"]


def test_a_cell_is_the_mean_and_deviation_of_the_runs_with_the_marks_of_both_tests(found):
    smooth = next(each for each in found.calibratability if each.candidate == SMOOTH)
    raw = smooth.ece["uncalibrated"]
    assert (smooth.differences["uncalibrated"].side, smooth.t_tests["uncalibrated"].side) == ("worse", "higher")
    cells = cells_of(page_of(found), "Calibratability", SMOOTH)
    assert cells[2] == f"{raw.mean:.4f} ± {raw.std:.4f} ▲✗"
    assert cells[6].startswith(f"{smooth.optimal_ece.mean:.4f}")
    assert cells[7] == f"{smooth.temperature.mean:.3f} ± {smooth.temperature.std:.3f}"
    line = next(line for line in shown(found).splitlines() if line.startswith(SMOOTH))
    assert f"{raw.mean:.4f}▲✗" in line


def test_marks_say_what_they_are_and_are_not(found, pair, alone):
    said = legend_of(found)
    assert "corrected for 2 comparisons (Holm)" in said
    assert "noise of samples and of seeds" in said
    assert "not corrected and without the noise of samples" in said
    assert "corrected for" not in legend_of(pair)
    assert not set("▲▼✓✗") & set(legend_of(alone))
    first, second = found.verdicts
    single = dataclasses.replace(second, raw_ece=dataclasses.replace(second.raw_ece, covers_seeds=False))
    some = dataclasses.replace(found, verdicts=(first, single))
    assert "noise of samples, and of seeds where either has several runs" in legend_of(some)
    none = dataclasses.replace(found, verdicts=(single,))
    assert "noise of samples. " in legend_of(none)


def test_a_single_run_has_neither_deviations_nor_marks(alone):
    page, text = page_of(alone), shown(alone)
    assert "nothing to compare it with" in text
    assert "train with more seeds" in diagnosis_verdict(alone).next_steps[0]
    for mark in "±▲▼✓✗":
        assert mark not in page.partition("## When samples were learned")[0]
        assert mark not in text


def test_one_candidate_against_the_reference_is_told_in_the_headline_alone(pair):
    words = diagnosis_verdict(pair)
    assert (words.headline, words.findings[1]) == candidate_words(pair, pair.verdicts[0])
    assert len(words.findings) == 2
    assert words.findings[0].startswith("Cross-entropy itself: accuracy .")
    assert "third seed" in words.next_steps[0]


def test_a_long_name_of_the_reference_is_told_once(found):
    long = "cross-entropy with split holdout and epochs 2 and batch size 32 and learning rate 0.02"
    renamed = [dataclasses.replace(each, words=long) if each.name == "ce" else each for each in found.candidates]
    words = diagnosis_verdict(dataclasses.replace(found, candidates=tuple(renamed), shift=panel_of(found)))
    assert words.findings[0].startswith(f"C{long[1:]}, the baseline, itself: accuracy .")
    assert words.headline.startswith("2 candidates against the baseline: ")
    assert "the accuracy of the baseline goes from" in words.findings[-1]
    assert " ".join([words.headline, *words.findings]).lower().count("batch size") == 1


def test_a_reference_without_errors_has_no_auroc_and_that_is_said(found):
    mine = next(each for each in found.refinement if each.candidate == "ce")
    row = dataclasses.replace(mine.rows[0], metrics=dict(mine.rows[0].metrics) | {"auroc": spread([math.nan])})
    others = [dataclasses.replace(each, rows=(row,)) if each is mine else each for each in found.refinement]
    said = diagnosis_verdict(dataclasses.replace(found, refinement=tuple(others))).findings[0]
    assert said.endswith("no AUROC, as every prediction is right or every one is wrong.")


def test_several_candidates_are_counted_by_side(found):
    first, second = found.verdicts
    better = dataclasses.replace(first.ece_after_temperature, side="better")
    worse = dataclasses.replace(first.auroc, side="worse")
    counted = dataclasses.replace(
        found,
        verdicts=(
            dataclasses.replace(first, ece_after_temperature=better, auroc=worse),
            dataclasses.replace(second, auroc=dataclasses.replace(second.auroc, side="worse")),
        ),
    )
    headline = diagnosis_verdict(counted).headline
    assert headline == (
        f"2 candidates against cross-entropy: after temperature scaling 1 is better calibrated ({first.candidate}); "
        f"2 separate errors worse ({first.candidate}, {second.candidate})."
    )
    alike = dataclasses.replace(first.auroc, side="alike")
    quiet = tuple(dataclasses.replace(each, ece_after_temperature=alike, auroc=alike) for each in found.verdicts)
    assert "none is clearly better or worse calibrated; none separates errors clearly better or worse" in (
        diagnosis_verdict(dataclasses.replace(found, verdicts=quiet)).headline
    )


def test_what_a_verdict_rests_on_stands_beside_it_where_they_differ(found):
    first, second = found.verdicts
    assert diagnosis_verdict(found).findings[-1] == candidate_words(found, first)[1]
    mixed = dataclasses.replace(found, verdicts=(first, dataclasses.replace(second, runs=9)))
    assert diagnosis_verdict(mixed).findings[-1].startswith(candidate_words(found, second)[0])
    assert " (9 runs against " in diagnosis_verdict(mixed).findings[-1]


def test_equation_9_is_not_sold_as_an_identity(found):
    page = page_of(found)
    assert "α − β − γ (eq. 9)" in page
    assert "is not an identity" in page


def test_the_terminal_fits_100_columns_with_thirteen_candidates_and_cuts_nothing(found):
    renamed = [f"meta_focal(objective=sece, net={place})" if place == 3 else f"loss {place}" for place in range(13)]

    def copies(records):
        other = next(record for record in records if record.candidate == SMOOTH)
        return tuple(dataclasses.replace(other, candidate=name) for name in renamed)

    words = dataclasses.replace(found.candidates[0], words="cross-entropy")
    many = dataclasses.replace(
        found,
        baseline=renamed[0],
        candidates=tuple(dataclasses.replace(words, name=name) for name in renamed),
        verdicts=copies(found.verdicts)[1:],
        calibratability=copies(found.calibratability),
        refinement=copies(found.refinement),
        directions=tuple(
            dataclasses.replace(one, candidate=name)
            for name in renamed
            for one in found.directions
            if one.candidate == SMOOTH
        ),
        validation_sizes=copies(found.validation_sizes),
        epochs=copies(found.epochs),
    )
    for width in (80, 100):
        for full in (False, True):
            text = shown(many, width, full=full)
            assert max(map(len, text.splitlines())) <= width
    brief = shown(many)
    for name in renamed[:3]:
        assert sum(line.startswith(f"{name} ") for line in brief.splitlines()) == 1


def test_a_map_that_failed_in_one_run_is_told_with_its_reason_and_counted(found):
    smooth, *others = found.calibratability
    ece = dict(smooth.ece) | {"svs": spread([0.1, math.nan]), "histogram": spread([math.nan, math.nan])}
    broken = dataclasses.replace(
        smooth, ece=ece, failures={"svs, seed 1": "there were too few rows."}, notes=("temperature: it is at a bound",)
    )
    noted = [dataclasses.replace(each, notes=("temperature: it is at a bound",)) for each in others]
    changed = dataclasses.replace(found, calibratability=(broken, *noted))
    notes = diagnosis_notes(changed)
    assert f"{smooth.candidate}: svs, seed 1: not fitted, because there were too few rows." in notes
    assert f"{smooth.candidate}, {', '.join(each.candidate for each in others)}: temperature: it is at a bound" in notes
    page = page_of(changed)
    assert all(f"- {note}" in page for note in notes)
    cells = cells_of(page, "Calibratability", smooth.candidate)
    assert cells[4].startswith("–")
    assert cells[5].startswith("0.1000 (1 of 2 runs)")
    assert "note: " in shown(changed)


def test_the_document_is_plain_json_under_its_schema_without_what_only_pictures_need(found):
    document = json.loads(json.dumps(diagnosis_page(found).data(), allow_nan=False))
    assert document["schema"] == "calibrant.diagnosis/1"
    assert (document["baseline"], document["n"], document["bins"], document["shift"]) == ("ce", 250, 15, None)
    assert document["verdict"]["headline"] == diagnosis_verdict(found).headline
    assert document["calibratability"][0]["ece"]["uncalibrated"]["values"] == list(
        found.calibratability[0].ece["uncalibrated"].values
    )
    density = document["refinement"][0]["rows"][0]["density"]
    assert set(density) == {"median_right", "median_wrong"}


def epochs_shown(found, epochs):
    """The epochs in the table of a curve of these epochs."""
    curve = found.epochs[0]
    band = Band(*(tuple(values[: len(epochs)]) for values in dataclasses.astuple(curve.numbers["optimal_ece"])))
    cut = dataclasses.replace(curve, epochs=epochs, numbers={"optimal_ece": band}, lowest_epoch=epochs[0])
    (table,) = tables_of(dataclasses.replace(found, epochs=(cut,)), "Optimal ECE")
    return [int(column.heading.split()[1]) for column in table.columns if column.heading.startswith("epoch")]


def test_few_epochs_are_shown_the_first_and_the_last_among_them(found):
    chosen = epochs_shown(found, tuple(range(1, 21)))
    assert (chosen[0], chosen[-1], len(chosen)) == (1, 20, 7)
    assert epochs_shown(found, (5,)) == [5]
    assert epochs_shown(found, (5, 10)) == [5, 10]
    assert epochs_shown(found, tuple(range(1, 9))) == list(range(1, 9))
    (table,) = tables_of(found, "Optimal ECE")
    assert texts_of(table)[0][-3:] == ["0.0200", "10", "+0.0100"]


def test_candidates_with_other_calibration_samples_get_a_table_of_their_own(found):
    first, *others = found.validation_sizes
    fewer = dataclasses.replace(first, points=first.points[1:])
    title = "How many calibration samples"
    assert len(tables_of(found, title)) == 1
    assert len(tables_of(dataclasses.replace(found, validation_sizes=(fewer, *others)), title)) == 2


def test_a_run_that_lacks_records_is_judged_but_not_in_the_curves_and_that_is_said(folders, tmp_path):
    parts = [rows_of(250, part, scale=2.0, noise=0.05, seed=7) for part in ("calibration", "test")]
    short = write_run(tmp_path / "short", settings_of("ce", 7, epochs=20), *parts, records=epochs(20)[:3])
    found = diagnose(read_runs([*folders[:2], *folders[4:], short]), resamples=100, draws=0)
    note = "ce: seed 7: epochs.jsonl has 3 of 20 records, so the run is left out of the curves over epochs"
    assert note in diagnosis_notes(found)
    assert f"- {note}" in page_of(found)
    curves = next(each for each in found.epochs if each.candidate == "ce")
    assert (curves.runs, curves.epochs[-1]) == (2, 20)
    assert len(found.calibratability[1].ece["uncalibrated"].values) == 3


def test_a_coefficient_has_a_table_of_its_own(found):
    (table,) = tables_of(found, "Over a coefficient")
    assert table.columns[0].heading == "smoothing"
    assert [row[0] for row in texts_of(table)] == ["0.05", "0.1"]


def test_a_title_counts_runs_and_candidates(found, alone):
    assert diagnosis_page(found).facts == "6 runs of 3 candidates, 250 test samples"
    assert diagnosis_page(alone).facts == "1 run, 250 test samples"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0941, ".094"), (-0.5, "-.500"), (-0.0001, ".000"), (2.5, "2.500"), (0.9999, "1.000")]
)
def test_a_share_is_written_without_its_zero(value, text):
    assert short_text(value) == text
    assert signed_text(value) == (text if text.startswith("-") else f"+{text}")


def test_numbers_that_are_not_there_are_dashes():
    nothing = spread([math.nan, math.nan])
    assert (short_text(math.nan), signed_text(math.nan), spread_text(nothing), SeedCell(nothing).cell().text) == (
        "–",
    ) * 4


def test_a_test_that_could_not_be_made_leaves_no_mark():
    note = TwoSample(0.1, math.nan, math.nan, math.nan, "alike", "one run only")
    assert SeedCell(Spread(0.1, math.nan, 0.1, 0.1, (0.1,)), note).marks == ""


def test_the_oracle_is_called_one(found):
    assert "an oracle, and no method" in page_of(found)
    (table,) = tables_of(found, "Calibratability")
    assert [column.heading for column in table.columns][-3:] == ["optimal ↓", "T", "optimal T"]


def test_what_a_learned_loss_learned_is_a_line_for_each_number(found):
    curve = found.epochs[0]
    band = Band(tuple(range(1, 21)), tuple(range(20)), tuple(range(2, 22)))
    learned = dataclasses.replace(curve, learned={"gamma_mean": band, "gamma_std": band})
    changed = dataclasses.replace(found, epochs=(learned, *found.epochs[1:]))
    (table,) = tables_of(changed, "Parameters of learned losses")
    assert [row[:3] for row in texts_of(table)] == [
        [curve.candidate, name, "1.000 (0.000 … 2.000)"] for name in ("gamma_mean", "gamma_std")
    ]
    page = page_of(changed)
    legend = page.partition("## Parameters of learned losses")[2].partition("\n## ")[0]
    assert "γ is measured on the held-out calibration samples" in legend
    assert "test samples" not in legend
    assert "Parameters of learned losses" not in page_of(found)


def test_learned_numbers_of_any_size_are_told_apart(found):
    band = Band((5.01e-4,) * 20, (4.98e-4,) * 20, (5.04e-4,) * 20)
    learned = dataclasses.replace(found.epochs[0], learned={"l2_mean": band})
    (table,) = tables_of(dataclasses.replace(found, epochs=(learned,)), "Parameters of learned losses")
    assert texts_of(table)[0][2] == "0.0005010 (0.0004980 … 0.0005040)"


def panel_of(found):
    """A shift of two corruptions at two severities and one file, for the baseline and one other; its map failed."""
    names, direction = ("ece", "accuracy", "auroc", "nll", "brier", "gap"), found.directions[0]
    rows = []
    corrupted = [(shift, "corruption", severity) for shift in ("fog", "frost") for severity in (1, 5)]
    sets = [("clean", "clean", None), *corrupted, ("v2", "file", None)]
    for place, (shift, source, severity) in enumerate(sets):
        for candidate in ("ce", SMOOTH):
            for name in found.maps:
                values = (
                    [math.nan] * 2 if name == "svs" else [0.1 * place + 0.1 * (candidate != "ce"), 0.1 * place + 0.11]
                )
                metrics = {metric: spread(values) for metric in names}
                against = {"ece": dataclasses.replace(found.verdicts[0].raw_ece, side="better")}
                rows.append(
                    ShiftRow(
                        candidate=candidate, map=name, shift=shift, source=source, severity=severity, n=50,
                        metrics=metrics, change=metrics, direction=dataclasses.replace(direction, gap=metrics["gap"]),
                        differences=against if source == "file" and candidate != "ce" else {}, by_seed={},
                    )
                )  # fmt: skip
    keys = dict.fromkeys((row.shift, row.source, row.severity) for row in rows)
    return ShiftPanel(
        "ce", found.maps, tuple(ShiftSummary(*key, 50) for key in keys), tuple(rows), shift_levels(rows, "ce")
    )


def test_a_shift_is_told_by_severity_by_corruption_and_by_file(found):
    panel = panel_of(found)
    titles = [grid.title for grid in shift_section(panel).tables]
    assert titles == [
        *(f"{words}, mean over fog, frost" for words in ("ECE", "Mean confidence − accuracy", "Accuracy", "AUROC")),
        "ECE at severity 5, by corruption",
        "v2, 50 samples",
    ]
    severities = shift_section(panel).tables[0]
    assert [column.heading for column in severities.columns][2:] == ["clean", "severity 1", "severity 5"]
    assert texts_of(severities)[0][2:] == ["0.0550 ± 0.0778", "0.2550 ± 0.0778", "0.3550 ± 0.0778"]
    assert texts_of(severities)[3] == ["ce", "svs", "–", "–", "–"]
    assert shift_section(panel).tables[-1].rows[4][3].mark == "✓"


def test_a_shift_in_words_says_what_it_does_and_who_is_better_there(found):
    said = shift_sentences(panel_of(found), "cross-entropy")
    assert said[0].startswith("Under 2 corruptions at severity 5, the accuracy of cross-entropy goes from .055 to .355")
    assert said[1].endswith(f"temperature from .055 to .555 (lower for {SMOOTH}).")


def test_a_sentence_about_a_shift_claims_nothing_that_only_a_t_test_of_runs_says(found):
    panel = panel_of(found)
    lower = TwoSample(-0.1, -5.0, 4.0, 0.007, "lower", None)
    levels = [
        dataclasses.replace(level, t_tests=dict.fromkeys(level.metrics, lower)) if level.candidate == SMOOTH else level
        for level in panel.levels
    ]
    panel = dataclasses.replace(panel, levels=tuple(levels))
    said = shift_sentences(panel, "cross-entropy")
    assert said[0].endswith("temperature from .055 to .355.")
    assert shift_section(panel).tables[0].rows[4][2].mark == "▼"
    assert "by a t-test of runs at .05, not corrected and without the noise of samples" in shift_section(panel).legend
    assert "✓ better" in shift_section(panel).legend
    assert "▼" not in shift_section(dataclasses.replace(panel, levels=())).legend


def test_accuracy_is_told_after_each_map(found):
    page = page_of(found)
    table = page.partition("## Refinement")[2].partition("\n## ")[0]
    assert "| candidate | map | accuracy ↑ | auroc ↑ |" in table
    mine = next(each for each in found.refinement if each.candidate == "ce")
    told = [line.split("|")[3].strip() for line in table.splitlines() if line.startswith("| `ce`")]
    assert told == [spread_text(row.metrics["accuracy"]) for row in mine.rows]
    document = diagnosis_page(found).data()["refinement"][0]["rows"][3]
    assert (document["map"], set(document["metrics"]) >= {"accuracy", "auroc"}) == ("svs", True)
    assert "go with its own accuracy" in table


@pytest.mark.parametrize(
    ("p", "drawn", "text"),
    [(0.031, True, "0.031"), (4e-6, True, "< .002"), (4e-6, False, "4e-06"), (0.0015, False, "0.002"),
     (0.0, False, "< 1e-12"), (math.nan, False, "–"), (None, True, "")],
)  # fmt: skip
def test_a_p_value_is_told_as_far_as_it_is_known(p, drawn, text):
    assert p_text(p, resampled=drawn) == text


def test_t_tests_are_not_told_to_the_resolution_of_a_bootstrap(found):
    sure = TwoSample(0.1, 30.0, 4.0, 4e-6, "higher", None)
    changed = [dataclasses.replace(each, t_tests=dict.fromkeys(each.t_tests, sure)) for each in found.calibratability]
    table = page_of(dataclasses.replace(found, calibratability=tuple(changed))).partition("## Differences in ECE")[2]
    row = next(line for line in table.splitlines() if line.startswith(f"| `{SMOOTH}` | uncalibrated"))
    assert row.split("|")[-2].strip() == "4e-06"
    assert "< .002" not in table  # with several runs no p rests on counted draws


def test_a_shifted_set_of_one_sample_is_counted_in_the_singular(found):
    panel = panel_of(found)
    panel = dataclasses.replace(panel, sets=tuple(dataclasses.replace(each, n=1) for each in panel.sets))
    assert [each.title for each in under_shifts(panel)][-1] == "v2 (1 sample)"


def test_a_page_and_a_terminal_with_a_shift_have_all_of_it(found):
    shifted = dataclasses.replace(
        found,
        shift=panel_of(found),
        calibratability=tuple(each for each in found.calibratability if each.candidate in {"ce", SMOOTH}),
    )
    page, text = page_of(shifted), shown(shifted)
    assert "## Under a shift" in page
    assert "nan" not in page.lower()
    assert "Shift: clean → 2 corruptions at severity 5" in text
    assert "Shift: clean → v2 (50 samples)" in text
    assert max(map(len, text.splitlines())) <= 100
    assert diagnosis_page(shifted).data()["shift"]["levels"]
