"""Plots draw what they are given, on their own, for any data."""

from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
import torch
from figure_words import drawn_words
from forked import start
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from calibrant import evaluate_slices
from calibrant.diagrams import bins_sweep, classwise_reliability, confidence_density, reliability, risk_coverage
from calibrant.errors import CalibrantWarning, InputError, UnknownNameError
from calibrant.evidence import Estimate, estimate
from calibrant.metrics import ECE, ece, mce
from calibrant.plots import (
    figures,
    method_title,
    plot_bins_sweep,
    plot_bins_sweeps,
    plot_classwise,
    plot_density,
    plot_reliability,
    plot_risk_coverage,
    plot_trend,
    save_figure,
)
from calibrant.plots.reliability import slice_figures
from calibrant.predictions import Predictions, TopLabel
from calibrant.scale.trend import Period, Trend


def rows(n, k, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(logits * scale, labels)


EXTREMES = {
    "three rows": TopLabel([0.9, 0.8, 0.55], [True, False, True]),
    "one row": TopLabel([1.0], [True]),
    "all right": TopLabel(torch.linspace(0.2, 1, 100), torch.ones(100, dtype=torch.bool)),
    "all wrong": TopLabel(torch.linspace(0.2, 1, 100), torch.zeros(100, dtype=torch.bool)),
    "one confidence": TopLabel([0.8] * 50, [True] * 35 + [False] * 15),
    "two classes": rows(200, 2),
    "many classes": rows(100, 200),
    "underconfident": rows(300, 5, scale=0.3),
}
PLOTS = [
    (plot_reliability, reliability),
    (plot_density, confidence_density),
    (plot_risk_coverage, risk_coverage),
    (plot_bins_sweep, bins_sweep),
]


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_data_are_drawn(name):
    made = figures(EXTREMES[name])
    expected = {"reliability", "density", "risk_coverage", "bins_sweep"}
    expected |= {"classwise"} if isinstance(EXTREMES[name], Predictions) else set()
    expected |= {"risk", "decisions"} if getattr(EXTREMES[name], "n_classes", 0) == 2 else set()
    assert set(made) == expected
    for figure in made.values():
        texts = drawn_words(figure)
        assert texts
        assert not any("nan" in text for text in texts)


@pytest.mark.parametrize(("plot", "diagram"), PLOTS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_axes_given_are_the_axes_returned(plot, diagram, theme):
    ax = Figure().add_subplot()
    assert plot(diagram(EXTREMES["two classes"]), ax=ax, theme=theme) is ax
    assert ax.get_title(loc="left")
    assert ax.get_xlabel()
    assert ax.get_ylabel()


@pytest.mark.parametrize(("plot", "diagram"), PLOTS)
def test_without_axes_a_figure_is_made(plot, diagram):
    ax = plot(diagram(EXTREMES["two classes"]))
    assert isinstance(ax, Axes)
    assert isinstance(ax.figure, Figure)


def test_every_class_has_a_panel_with_its_name():
    predictions = Predictions.from_logits(
        torch.randn(50, 3), torch.zeros(50, dtype=torch.int64), class_names=list("xyz")
    )
    figure = Figure()
    assert plot_classwise(classwise_reliability(predictions), figure=figure) is figure
    assert {ax.get_title(loc="left") for ax in figure.axes} == {"", "x", "y", "z"}


def test_nothing_global_changes():
    before = dict(mpl.rcParams)
    for figure in figures(EXTREMES["two classes"], theme="dark").values():
        figure.draw_without_rendering()
    assert dict(mpl.rcParams) == before


def test_the_look_does_not_depend_on_global_settings():
    usual = plot_reliability(reliability(EXTREMES["two classes"]))
    with mpl.rc_context({"axes.facecolor": "red", "axes.grid": True, "text.color": "red", "axes.spines.top": True}):
        other = plot_reliability(reliability(EXTREMES["two classes"]))
    assert usual.get_facecolor() == other.get_facecolor()
    assert not other.spines["top"].get_visible()
    assert [t.get_color() for t in usual.texts] == [t.get_color() for t in other.texts]


def test_pyplot_is_never_loaded():
    code = (
        "import sys\n"
        "from calibrant.plots import figures\n"
        "from calibrant.predictions import Predictions\n"
        "for figure in figures(Predictions.from_logits([[1.0, 0.0], [0.0, 2.0]], [0, 0])).values():\n"
        "    figure.draw_without_rendering()\n"
        "assert 'matplotlib.figure' in sys.modules\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    process = start(code)
    process.join(300)
    assert process.exitcode == 0


def test_overconfidence_and_underconfidence_differ_without_colour():
    over = plot_reliability(reliability(rows(500, 5, scale=4.0)))
    under = plot_reliability(reliability(rows(500, 5, scale=0.3)))
    hatches = [{bar.get_hatch() for bar in ax.patches} - {None} for ax in (over, under)]
    assert all(hatches)
    assert hatches[0] != hatches[1]
    assert "overconfident" in [text.get_text() for text in over.get_legend().get_texts()]
    assert "underconfident" in [text.get_text() for text in under.get_legend().get_texts()]


@pytest.mark.parametrize(("plot", "diagram"), [PLOTS[0], PLOTS[2]])
def test_two_sets_are_compared_under_their_names(plot, diagram):
    first, second = diagram(rows(300, 5)), diagram(rows(200, 5, scale=1.0))
    ax = plot(first, other=second, set_names=("raw", "scaled"))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0].startswith("raw")
    assert texts[1].startswith("scaled")


@pytest.mark.parametrize(("plot", "diagram"), [*PLOTS, (plot_classwise, classwise_reliability)])
def test_predictions_are_drawn_like_their_diagram(plot, diagram):
    predictions = rows(300, 5)
    first, second = (plot(given) for given in (predictions, diagram(predictions)))
    first, second = ((drawn if isinstance(drawn, Figure) else drawn.figure) for drawn in (first, second))
    assert drawn_words(first) == drawn_words(second)


def test_arrays_are_given_by_keyword_and_an_error_shows_the_call():
    predictions = rows(300, 5)
    by_keyword = plot_reliability(probs=predictions.probs, labels=predictions.labels)
    assert by_keyword.get_title(loc="left") == plot_reliability(predictions).get_title(loc="left")
    with pytest.raises(InputError, match=r"plot_reliability\(probs=p, labels=y\)"):
        plot_reliability(predictions.probs, predictions.labels)


def test_the_title_has_the_ece_with_its_interval_and_the_name_of_the_data():
    predictions = rows(500, 5, scale=4.0)
    found = estimate(predictions, [ECE(10)])["ece"]
    ax = plot_reliability(predictions, n_bins=10, name="digits.csv")
    assert f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f} %)" in ax.get_title(loc="left")
    for figure in figures(predictions, name="digits.csv").values():
        assert any("digits.csv" in text for text in drawn_words(figure))


def test_a_long_name_of_the_data_stays_inside_the_figure():
    for figure in figures(EXTREMES["two classes"], name=f"{'a_long_name_' * 12}.csv").values():
        figure.draw_without_rendering()
        for text in figure.findobj(Text):
            if "a_long" in text.get_text():
                assert text.get_window_extent().x1 <= figure.bbox.x1


def test_two_sets_have_a_band_each():
    first, second = reliability(rows(2000, 5)), reliability(rows(2000, 5, scale=1.0, seed=1))
    ax = plot_reliability(first, other=second)
    bands = [band.get_paths()[0].vertices for band in ax.collections if band.get_paths()]
    assert len(bands) == 2
    for band, diagram in zip(bands, (first, second), strict=True):
        assert band[:, 1].min() == pytest.approx(float(diagram.corp.band_low.min()))
        assert band[:, 1].max() == pytest.approx(float(diagram.corp.band_high.max()))
        assert band[:, 0].min() == pytest.approx(float(diagram.corp.confidence[0]))


@pytest.mark.parametrize("compared", [False, True])
def test_bins_of_few_samples_are_faint_and_the_others_are_not(compared):
    lone, many = [0.35] * 9, [0.95] * 300
    top = TopLabel(lone + many, [False] * 9 + [True] * 200 + [False] * 100)
    ax = plot_reliability(top, other=top if compared else None)
    marks = {
        round(float(x), 6): line.get_alpha()
        for line in ax.lines if line.get_linestyle() == "None" for x in line.get_xdata()
    }  # fmt: skip
    assert marks[0.35] < 0.5
    assert marks[0.95] == 1


def test_gaps_within_chance_are_pale():
    calibrated = TopLabel([0.75] * 100, [True] * 73 + [False] * 27)
    overconfident = TopLabel([0.95] * 100, [True] * 60 + [False] * 40)
    pale, strong = (
        {bar.get_alpha() for bar in plot_reliability(top).patches if bar.get_hatch()}
        for top in (calibrated, overconfident)
    )
    assert max(pale) < 0.5
    assert strong == {1.0}


@pytest.mark.parametrize("name", ["2026-11-{:02}", "day {}", "the period number {}"])
def test_the_names_of_periods_do_not_overlap(name):
    one = Estimate(0.1, 0.05, 0.15)
    periods = [Period(name.format(number), 100, {"ece": one}, {}) for number in range(1, 31)]
    figure = plot_trend(Trend(periods, {"ece": ECE()}, 100, 0))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[-1].get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_the_legend_of_few_slices_is_within_the_figure(slices):
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.uniform(0.3, 1, 1995), rng.uniform(0, 0.05, 5)])
    shift = np.where(np.arange(2000) % 2, 0.25, -0.25)  # bins above, below and on the diagonal, and one of few samples
    top = TopLabel(confidence, rng.random(2000) < confidence + shift * (confidence > 0.5))
    column = [f"slice {number % slices}" for number in range(2000)]
    found = evaluate_slices(top, by={"part": column}, resamples=100)
    figure = slice_figures(top, found, {"part": column})["by_part"]
    figure.draw_without_rendering()
    (legend,) = filter(None, (ax.get_legend() for ax in figure.axes))
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_the_legend_does_not_cover_the_note_of_the_operating_point():
    rng = np.random.default_rng(2)
    confidence = np.sort(rng.uniform(0.3, 1, 1500))
    risk = np.where(confidence > 0.96, 0.05, 0.42)  # high from the left on, and low for a few
    ax = plot_risk_coverage(TopLabel(confidence, rng.random(1500) > risk))
    ax.figure.draw_without_rendering()
    (note,) = (text for text in ax.texts if "answered" in text.get_text())
    assert not ax.get_legend().get_window_extent().overlaps(note.get_window_extent())


def test_the_note_of_an_operating_point_at_a_low_risk_does_not_cover_the_axis():
    rng = np.random.default_rng(0)
    confidence = np.sort(rng.uniform(0.3, 1, 2000))
    correct = rng.random(2000) < np.clip(confidence + 0.02, 0, 0.95)
    correct[-20:] = False  # the risk begins at 1, so the point at .1 is close to the axis
    ax = plot_risk_coverage(TopLabel(confidence, correct))
    ax.figure.draw_without_rendering()
    (note,) = (text for text in ax.texts if "answered" in text.get_text())
    assert note.get_window_extent().y0 > ax.bbox.y0


def test_the_legend_of_two_rankings_covers_neither_where_only_the_first_samples_are_wrong():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(400, generator=generator).double()
    correct = torch.rand(400, generator=generator) > 0.2
    correct[confidence.topk(3).indices] = False  # the risk begins at 1 and falls to .2
    good = TopLabel((confidence + correct) / 2, correct)
    ax = plot_risk_coverage(TopLabel(confidence, correct), other=good, set_names=("softmax", "learned"))
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    for line in ax.get_lines():
        x, y = line.get_transform().transform(line.get_xydata()).T
        assert not ((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).any()


def test_characters_that_the_font_lacks_are_one_warning_and_the_figure_is_written(tmp_path):
    ax = plot_risk_coverage(TopLabel([0.9, 0.6], [True, False]), name="日本語")
    with pytest.warns(CalibrantWarning, match="boxes for characters") as caught:
        save_figure(ax.figure, tmp_path / "risk.png")
    assert len(caught) == 1
    assert (tmp_path / "risk.png").stat().st_size > 1000


def test_fonts_in_a_pdf_are_those_that_publishers_take(tmp_path):
    path = save_figure(plot_risk_coverage(TopLabel([0.9, 0.6], [True, False])).figure, tmp_path / "risk.pdf")
    assert b"/Type3" not in path.read_bytes()
    assert b"/CIDFontType2" in path.read_bytes()


def test_the_operating_point_is_the_widest_coverage_at_a_round_risk():
    top = TopLabel(torch.linspace(0.5, 1, 200), [False] * 40 + [True] * 160)
    ax = plot_risk_coverage(top)
    (point,) = (line for line in ax.lines if line.get_marker() == "D")
    # 20 % are wrong, all of them at the lowest confidences: at 10 % errors, 160 / .9 samples can be answered.
    assert float(point.get_xdata()[0]) == pytest.approx(177 / 200)
    assert float(point.get_ydata()[0]) <= 0.1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("svs", "Structured vector scaling"),
        ("none", "Uncalibrated"),
        ("temperature(criterion=focal)", "Temperature scaling (criterion=focal)"),
        ("temperature+isotonic", "Temperature scaling + isotonic regression"),
        ("my network", "my network"),
    ],
)
def test_methods_are_spelled_out(text, words):
    assert method_title(text) == words


def test_bars_have_the_height_of_the_accuracy():
    diagram = reliability(rows(400, 4, scale=4.0))
    tops = {round(bar.get_y() + bar.get_height(), 9) for bar in plot_reliability(diagram).patches}
    expected = torch.minimum(diagram.bins.accuracy, diagram.bins.confidence)
    assert {round(value, 9) for value in expected.tolist()} <= tops


def test_an_unknown_theme_is_named():
    with pytest.raises(UnknownNameError, match="light, dark; got 'sepia'"):
        plot_reliability(reliability(EXTREMES["one row"]), theme="sepia")


def test_the_same_seed_draws_the_same_floor():
    first, again = (figures(EXTREMES["two classes"], seed=3)["bins_sweep"].axes[0] for _ in range(2))
    assert [line.get_ydata().tolist() for line in first.lines] == [line.get_ydata().tolist() for line in again.lines]


@pytest.mark.parametrize("metric", ["ece", "mce"])
def test_several_sets_are_drawn_over_the_number_of_bins(metric):
    sets = {"none": EXTREMES["two classes"], "temperature": EXTREMES["underconfident"]}
    sweeps = {name: bins_sweep(each, n_bins=[10, 100], redraws=2) for name, each in sets.items()}
    ax = plot_bins_sweeps(sweeps, metric=metric)
    assert {"none", "temperature"} <= set(drawn_words(ax.figure))
    for line, each in zip(ax.lines, sets.values(), strict=True):
        expected = [{"ece": ece, "mce": mce}[metric](each, n_bins=number) for number in (10, 100)]
        assert line.get_ydata().tolist() == pytest.approx(expected)


def test_several_sets_are_at_least_one():
    with pytest.raises(InputError, match="there must be a set to draw"):
        plot_bins_sweeps({})


@pytest.mark.parametrize("draw", [plot_reliability, plot_risk_coverage])
def test_the_other_set_is_predictions_too(draw):
    samples = Predictions.from_logits(torch.eye(3).repeat(20, 1), torch.arange(3).repeat(20))
    with pytest.raises(InputError, match=r"Predictions\.from_probs"):
        draw(samples, other=samples.logits.numpy())


def test_small_diagrams_of_a_class_speak_of_its_probability_and_others_of_confidence():
    sure = rows(3000, 3, scale=4.0)
    by = {"half": ["first"] * 1500 + ["second"] * 1500}

    def legend(figure):
        return [
            text.get_text() for ax in figure.axes for held in [ax.get_legend()] if held for text in held.get_texts()
        ]

    assert "probability too high" in legend(plot_classwise(sure))
    sliced = slice_figures(sure, evaluate_slices(sure, by=by, resamples=50), by)["by_half"]
    assert "overconfident" in legend(sliced)
    two = rows(3000, 2, scale=4.0)
    of_class = slice_figures(two, evaluate_slices(two, by=by, resamples=50), by)["by_half"]
    assert "probability too high" in legend(of_class)
    assert "overconfident" not in legend(of_class)
