"""Figures of a diagnosis show the numbers they were given: read back from what was drawn."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import same_color

from calibrant.diagnosis import spread
from calibrant.plots.diagnosis import (
    diagnosis_figures,
    plot_calibratability,
    plot_coefficients,
    plot_densities,
    plot_learned_epochs,
    plot_learned_loss,
    plot_over_epochs,
    plot_shift,
    plot_shifted_sets,
    plot_two_sided,
    plot_validation_sizes,
)
from calibrant.plots.diagnosis.panels import shortened
from calibrant.plots.layout import THEMES

LIGHT = THEMES["light"]


def lines_of(ax, marker, colour):
    """Lines and single marks that look like this, in the order drawn."""
    return [line for line in ax.lines if line.get_marker() == marker and same_color(line.get_color(), colour)]


def words_of(figure):
    return [text.get_text() for ax in figure.axes for text in (*ax.texts, ax.title, ax._left_title) if text.get_text()]


def panels_of(figure):
    return figure.axes[1:]  # the first is the head


def test_calibratability_marks_each_mean_on_its_range(maker):
    found = maker().diagnosis()
    ax = panels_of(plot_calibratability(found))[0]
    for marker, colour, name in (
        ("o", LIGHT.over, "uncalibrated"),
        ("o", LIGHT.under, "temperature"),
        ("s", LIGHT.ink, "histogram"),
    ):
        marks = lines_of(ax, marker, colour)
        assert [float(mark.get_xdata()[0]) for mark in marks] == [row.ece[name].mean for row in found.calibratability]
        for place, mark in enumerate(marks):
            assert round(float(mark.get_ydata()[0])) == place
    oracle = lines_of(ax, "|", LIGHT.under)
    assert [float(mark.get_xdata()[0]) for mark in oracle] == [row.optimal_ece.mean for row in found.calibratability]
    ranges = [segment for each in ax.collections for segment in each.get_segments()]
    wanted = [(row.ece["svs"].lowest, row.ece["svs"].highest) for row in found.calibratability]
    drawn = [(segment[0, 0], segment[1, 0]) for segment in ranges]
    assert all(any(np.allclose(each, ends) for ends in drawn) for each in wanted)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ce", "focal", "label_smoothing(0.05)"]


def test_calibratability_tells_that_the_order_after_scaling_is_another(maker):
    figure = plot_calibratability(maker().diagnosis())
    places = [(round(text.get_position()[0], 2), text.get_text()) for text in panels_of(figure)[1].texts]
    assert [place for x, place in places if x == 0.2 and len(place) == 1] == ["1", "2", "3"]
    assert [place for x, place in places if x == 0.8 and len(place) == 1] == ["2", "1", "2"]


def test_errors_that_differ_by_large_factors_are_read_by_factors(maker):
    found = maker().diagnosis()
    assert panels_of(plot_calibratability(found))[0].get_xscale() == "log"  # .01 to .15
    near = tuple(
        replace(row, ece=dict.fromkeys(row.ece, spread([0.04])), optimal_ece=spread([0.03]))
        for row in found.calibratability
    )
    ax = panels_of(plot_calibratability(replace(found, calibratability=near)))[0]
    assert ax.get_xscale() == "linear"
    assert ax.get_xlim()[0] == 0


def test_a_fit_that_failed_has_no_mark_and_is_counted(maker):
    found = maker().diagnosis()
    first = found.calibratability[0]
    failed = replace(first, ece=first.ece | {"svs": spread([float("nan")] * 2)}, failures={"svs, seed 0": "why"})
    figure = plot_calibratability(replace(found, calibratability=(failed, *found.calibratability[1:])))
    assert len(lines_of(panels_of(figure)[0], "D", LIGHT.muted)) == 2
    assert any("1 fit failed" in words for words in words_of(figure))


@pytest.mark.parametrize(
    ("sides", "marker"),
    [
        (("better", "alike"), "^"),
        (("better", "better"), "^"),
        (("alike", "worse"), "v"),
        (("worse", "better"), "D"),
        (("alike", "alike"), "o"),
    ],
)
def test_the_map_marks_a_candidate_by_the_two_sides_that_it_shows(maker, sides, marker):
    made = maker(2)
    (ax,) = panels_of(plot_two_sided(replace(made.diagnosis(), verdicts=(made.verdict(1, sides),))))
    marks = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [mark.get_marker() for mark in marks] == ["s", marker]


def test_the_map_has_every_candidate_at_its_numbers_with_its_name(maker):
    found = maker(12).diagnosis()
    figure = plot_two_sided(found)
    (ax,) = panels_of(figure)
    marks = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines if len(line.get_xdata()) == 1
    ]
    assert marks == [
        (able.ece["temperature"].mean, fine.rows[0].metrics["auroc"].mean)
        for able, fine in zip(found.calibratability, found.refinement, strict=True)
    ]
    assert set(shortened([each.name for each in found.candidates], 28).values()) <= set(words_of(figure))


def test_names_on_the_map_cover_neither_each_other_nor_a_point(maker):
    figure = plot_two_sided(maker(12).diagnosis())
    figure.draw_without_rendering()
    (ax,) = panels_of(figure)
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    assert len(boxes) == 13  # and which corner is better
    points = [ax.transData.transform((line.get_xdata()[0], line.get_ydata()[0])) for line in ax.lines
              if len(line.get_xdata()) == 1]  # fmt: skip
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])
        assert not any(box.contains(*point) for point in points)


def test_a_candidate_without_auroc_is_named_and_not_on_the_map(maker):
    found = maker(2).diagnosis()
    nothing = {"auroc": spread([float("nan")])}
    last = replace(found.refinement[1], rows=tuple(replace(row, metrics=nothing) for row in found.refinement[1].rows))
    figure = plot_two_sided(replace(found, refinement=(found.refinement[0], last)))
    assert len([line for line in panels_of(figure)[0].lines if len(line.get_xdata()) == 1]) == 1
    assert any("not available for focal" in words for words in words_of(figure))


def test_coefficient_curves_run_along_their_number(maker):
    found = maker().diagnosis()
    (ax,) = panels_of(plot_coefficients(found))
    (line,) = lines_of(ax, "o", LIGHT.under)
    assert line.get_xdata().tolist() == [0.05, 0.1, 0.2]
    assert line.get_ydata().tolist() == [point.ece["temperature"].mean for point in found.coefficients[0].points]
    ranges = [part.get_segments() for part in ax.collections]
    spreads = [point.ece["temperature"] for point in found.coefficients[0].points]
    assert [[*segment[:, 1]] for segment in ranges[1]] == [[each.lowest, each.highest] for each in spreads]
    assert len(ranges) == 5  # of four maps and the oracle
    assert ax.get_xlabel() == "smoothing"
    assert ax._left_title.get_text() == "label_smoothing"


def test_validation_sizes_are_on_a_logarithmic_axis_with_the_range_as_a_band(maker):
    made = maker()
    found = made.diagnosis()
    ax = panels_of(plot_validation_sizes(found))[0]
    (line,) = lines_of(ax, "o", LIGHT.under)
    points = found.validation_sizes[0].points
    assert ax.get_xscale() == "log"
    assert line.get_xdata().tolist() == [100, 200, 500, 640]
    assert line.get_ydata().tolist() == [point.ece["temperature"].mean for point in points]
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx(
        (points[-1].ece["temperature"].lowest, points[0].ece["temperature"].highest)
    )
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["100", "200", "640"]  # 500 would touch 640


def test_an_uncalibrated_error_far_above_is_printed_and_not_drawn(maker):
    found = maker(2).diagnosis()
    high = replace(found.validation_sizes[1], raw_ece=spread([0.7]))
    figure = plot_validation_sizes(replace(found, validation_sizes=(found.validation_sizes[0], high)))
    assert panels_of(figure)[1].get_ylim()[1] < 0.2
    assert "▴ uncalibrated 70.0 %" in words_of(figure)


def test_fits_that_failed_on_few_samples_are_counted_above_their_panel(maker):
    found = maker(2).diagnosis()
    first, second, *others = found.validation_sizes[1].points
    tried = sum(len(each.values) for each in first.ece.values())
    once, again = replace(first, failed={"temperature": 4, "svs": 3}), replace(second, failed={"svs": 1})
    for points, said in (
        ((once, second, *others), f"7 of {tried} fits failed at 100 samples"),
        ((once, again, *others), f"8 of {2 * tried} fits failed at up to 200 samples"),
    ):
        sizes = (found.validation_sizes[0], replace(found.validation_sizes[1], points=points))
        figure = plot_validation_sizes(replace(found, validation_sizes=sizes))
        assert [text for text in words_of(figure) if "failed" in text] == [said]


def test_epochs_show_errors_above_and_the_temperature_below(maker):
    found = maker().diagnosis()
    figure = plot_over_epochs(found)
    upper, lower = panels_of(figure)[2:4]
    curve = found.epochs[1]
    assert [line.get_ydata().tolist() for line in upper.lines] == [
        list(curve.numbers[name].mean) for name in ("ece", "optimal_ece")
    ]
    assert lower.lines[-1].get_ydata().tolist() == list(curve.numbers["temperature"].mean)
    assert lower.get_yscale() == "log"
    assert upper._left_title.get_text() == "focal"
    assert upper.get_ylim() == panels_of(figure)[0].get_ylim()
    assert upper.get_ylim()[1] > max(found.epochs[2].numbers["ece"].highest)


def test_learned_gamma_is_a_mean_between_one_deviation_to_both_sides(maker):
    found = maker().diagnosis()
    (ax,) = panels_of(plot_learned_loss(found))  # only the last candidate's loss is learned
    low, high, mean = (line.get_ydata().tolist() for line in ax.lines)
    assert mean == pytest.approx([1.1, 1.2, 1.3])
    assert high == pytest.approx([2.6, 2.2, 1.8])
    assert low == pytest.approx([0.0, 0.2, 0.8])  # cut at 0
    assert ax.get_ylabel() == "γ"
    assert "γ = 1.3 in the end" in words_of(ax.figure)


def test_clipped_gammas_are_noted_and_other_losses_have_their_ends(maker):
    made = maker(2)
    curve = made.epochs(0, learned=True)
    clipped = replace(curve, learned=dict(curve.learned) | {"gamma_clipped": made.band([0.0, 0.25, 0.0], 0)})
    names = ("smoothing_mean", "smoothing_least", "smoothing_most")
    ends = dict(zip(names, ([0.1] * 3, [0.05] * 3, [0.2] * 3), strict=True))
    other = replace(made.epochs(1), learned={name: made.band(each, 0) for name, each in ends.items()})
    figure = plot_learned_loss(replace(made.diagnosis(), epochs=(clipped, other)))
    assert any("up to 25.0 % of samples at the limit" in words for words in words_of(figure))
    ax = panels_of(figure)[1]
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.05] * 3, [0.2] * 3, [0.1] * 3]
    assert ax.get_ylabel() == "ε"


def test_learned_groups_are_histograms_from_the_first_epoch_down(maker):
    found = maker().diagnosis()
    ax = panels_of(plot_learned_epochs(found))[0]
    stairs = [patch.get_data() for patch in ax.patches]
    assert [each.baseline for each in stairs] == [2, 1]  # the group without rows has none
    for each, group in zip(stairs, found.learned_epochs[0].groups, strict=False):
        assert each.edges.tolist() == list(found.learned_epochs[0].edges)
        heights = np.array(each.values) - each.baseline
        assert heights / heights.max() == pytest.approx(np.array(group.counts) / max(group.counts))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["never", "2–4", "1"]
    assert {"60.0 %", "40.0 %", "0.0 %"} <= {text.get_text() for text in ax.texts}
    means = [each.get_segments()[0][0, 0] for each in ax.collections]
    assert means == [7.0, 5.0]
    assert "rank correlation −0.40" in words_of(ax.figure)


def test_right_answers_stand_and_wrong_ones_hang_before_and_after(maker):
    found = maker().diagnosis()
    panels = panels_of(plot_densities(found))
    assert len(panels) == 6
    assert [ax.get_ylabel() for ax in panels[:2]] == ["uncalibrated", "after TS"]
    right, wrong = (panels[0].collections[place].get_paths()[0].vertices for place in (0, 2))
    assert right[right[:, 1].argmax()] == pytest.approx([0.9, 1.0])
    assert wrong[wrong[:, 1].argmin()] == pytest.approx([0.5, -1.0])
    medians = [panels[0].collections[place].get_segments()[0][0, 0] for place in (1, 3)]
    assert medians == pytest.approx([0.9, 0.5])


def test_answers_that_are_all_right_leave_the_lower_side_empty(maker):
    found = maker(1).diagnosis()
    row = found.refinement[0].rows[0]
    density = replace(row.density, wrong=(0.0,) * len(row.density.wrong), median_wrong=spread([float("nan")]))
    only = replace(found.refinement[0], rows=(replace(row, density=density), *found.refinement[0].rows[1:]))
    ax = panels_of(plot_densities(replace(found, refinement=(only,))))[0]
    assert len(ax.collections) == 2  # a density and its median


def test_under_corruption_each_number_runs_over_severity(maker):
    panel = maker().diagnosis().shift
    figure = plot_shift(panel)
    ece, accuracy, auroc = panels_of(figure)[3:6]
    of = {name: [each for each in panel.levels if (each.candidate, each.map) == ("focal", name)] for name in panel.maps}
    for ax, metric in ((ece, "ece"), (auroc, "auroc")):
        for line, name in zip(ax.lines, ("uncalibrated", "temperature"), strict=True):
            assert line.get_xdata().tolist() == [0, 1, 2, 3]
            assert line.get_ydata().tolist() == [each.metrics[metric].mean for each in of[name]]
    (line,) = accuracy.lines
    assert line.get_ydata().tolist() == [each.metrics["accuracy"].mean for each in of["uncalibrated"]]
    words = words_of(figure)
    assert any("mean over 2 corruptions" in each for each in words)
    assert "gap at 3: +4.0, after TS +4.0" in words


def test_natural_shift_stands_below_the_clean_samples_on_the_same_axes(maker):
    panel = maker().diagnosis().shift
    figure = plot_shifted_sets(panel)
    clean, photos = panels_of(figure)[:2]  # of the ECE
    assert [ax._left_title.get_text() for ax in (clean, photos)] == ["clean, 500 samples", "photos, 300 samples"]
    assert clean.get_xlim() == photos.get_xlim()
    for ax, shift in ((clean, "clean"), (photos, "photos")):
        for colour, name in ((LIGHT.over, "uncalibrated"), (LIGHT.under, "temperature")):
            drawn = [float(mark.get_xdata()[0]) for mark in lines_of(ax, "o", colour)]
            rows = [row for row in panel.rows if (row.shift, row.map) == (shift, name)]
            assert drawn == [row.metrics["ece"].mean for row in rows]
    accuracy = panels_of(figure)[3]
    assert [len(accuracy.lines), accuracy.lines[0].get_marker()] == [3, "D"]


def test_a_long_name_loses_its_middle():
    assert shortened(["label_smoothing(0.05)"], 30) == {"label_smoothing(0.05)": "label_smoothing(0.05)"}
    short = shortened([f"meta_focal(objective=sece, learning_rate={rate})" for rate in (0.001, 0.002)], 20)
    assert len(set(short.values())) == 2
    assert all(len(each) == 20 for each in short.values())


def test_no_two_names_of_a_figure_become_the_same():
    ways = [f"epochs={epochs} batch_size={size}" for epochs in (2, 5) for size in (32, 64)]
    names = [f"ce split=holdout {way} learning_rate=0.02" for way in ways]
    assert list(shortened(names, 26).values()) == [f"ce {way}" for way in ways]
    names = [f"meta_focal(objective=sece) split=holdout {way} learning_rate=0.02" for way in ways]
    assert list(shortened(names, 26).values()) == [f"…{way}" for way in ways]
    same_words = [f"meta_focal(objective={'x' * 9}{place}{'y' * 30})" for place in range(12)]
    short = shortened([*names, *same_words, "mmce"], 20).values()
    assert len(set(short)) == len(short)
    assert max(map(len, short)) == 20


@pytest.mark.parametrize("draw", [plot_calibratability, plot_two_sided, plot_densities, plot_over_epochs])
def test_candidates_whose_names_differ_in_the_middle_are_distinguished_in_a_figure(maker, draw):
    made = maker(2)
    made.names = tuple(f"ce split=holdout epochs={epochs} batch_size=32 learning_rate=0.02" for epochs in (2, 5))
    found = made.diagnosis()
    figure = draw(replace(found, baseline=made.names[0], shift=None))
    ticks = {label.get_text() for ax in figure.axes for label in ax.get_yticklabels()}
    titles = {ax._left_title.get_text() for ax in figure.axes}
    assert {"ce epochs=2", "ce epochs=5"} <= ticks | titles | set(words_of(figure))


def test_the_key_of_the_map_has_room_whatever_the_reference_is_called(maker):
    made = maker(2)
    made.names = ("meta_focal(objective=sece) mixup=0.2 batch_size=512", "ce")
    figure = plot_two_sided(replace(made.diagnosis(), baseline=made.names[0], verdicts=(made.verdict(1),)))
    figure.draw_without_rendering()
    (legend,) = (ax.get_legend() for ax in figure.axes if ax.get_legend())
    assert legend.get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.parametrize(("seeds", "is_range"), [(1, False), (2, True)])
def test_single_runs_are_not_called_a_mean_over_seeds(maker, seeds, is_range):
    figures = diagnosis_figures(maker(3, seeds).diagnosis())
    assert len(figures) > 8
    for name, figure in figures.items():
        words = [
            *words_of(figure),
            *(each.get_text() for ax in figure.axes if ax.get_legend() for each in ax.get_legend().texts),
        ]
        assert any("seeds" in each for each in words) == is_range, name


def test_ticks_in_percent_are_as_short_as_they_can_be(maker):
    figure = plot_shifted_sets(maker().diagnosis().shift)
    figure.draw_without_rendering()
    ticks = [label.get_text() for ax in panels_of(figure) for label in ax.get_xticklabels()]
    assert any(ticks)
    assert not [tick for tick in ticks if tick.endswith(".0")]
