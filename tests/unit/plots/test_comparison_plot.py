"""The figure of a comparison: readable with three methods and with thirty, whatever their numbers."""

import itertools
import math

import pytest
from figure_words import drawn_words
from matplotlib.text import Text

from calibrant.diagrams import ComparisonDiagram, Dot, MethodDots
from calibrant.plots import plot_comparison, save_figure

NAN = math.nan


def method(name, change, ece=0.02, auroc=0.01, *, recommended=False):
    side = "better" if change < -0.002 else "worse" if change > 0.002 else "alike"
    return MethodDots(
        name,
        Dot(0.0, NAN, NAN) if name == "temperature" else Dot(change, change - 0.002, change + 0.002, side),
        Dot(ece, max(0.0, ece - 0.005), ece + 0.005),
        Dot(auroc, auroc - 0.01, auroc + 0.01),
        recommended,
    )


def board(*methods, left_out=()):
    return ComparisonDiagram(methods, "temperature", 5000, left_out)


THREE = board(method("svs", -0.01, recommended=True), method("temperature", 0.0), method("uncalibrated", 0.3, ece=0.14))
THIRTY = board(
    *(method(f"a_method_with_quite_a_long_name_{i}", -0.01 + 0.002 * i + 3 * (i > 20)) for i in range(29)),
    method("temperature", 0.0),
    left_out=("platt", "beta"),
)
EXTREMES = {
    "three": THREE,
    "thirty": THIRTY,
    "one": board(method("temperature", 0.0)),
    "all alike": board(method("a", 0.0, auroc=0.0), method("temperature", 0.0, auroc=0.0)),
    "no auroc": board(method("a", -0.1, auroc=NAN), method("temperature", 0.0, auroc=NAN)),
    "no temperature": ComparisonDiagram((method("a", 0.1), method("uncalibrated", 0.0)), "uncalibrated", 20),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", EXTREMES)
def test_every_board_is_drawn(name, theme):
    texts = drawn_words(plot_comparison(EXTREMES[name], theme=theme))
    assert "Calibration methods compared" in texts
    assert not any("nan" in text for text in texts)


def test_a_method_far_off_stands_at_the_edge_with_its_number():
    figure = plot_comparison(THREE)
    texts = drawn_words(figure)
    assert "+0.300 ▸" in texts
    assert "14.0 % ▸" in texts
    _, change, *_ = figure.axes
    low, high = change.get_xlim()
    assert low < -0.012
    assert high < 0.1


def test_the_recommended_name_is_bold_and_the_others_are_not():
    figure = plot_comparison(THREE)
    figure.draw_without_rendering()
    weights = {label.get_text(): label.get_fontweight() for label in figure.axes[1].get_yticklabels()}
    assert weights == {
        "Structured vector scaling": "bold", "Temperature scaling": "normal", "Uncalibrated": "normal",
    }  # fmt: skip


def test_names_do_not_overlap_and_the_key_stays_inside():
    for shown in (THREE, THIRTY):
        figure = plot_comparison(shown)
        figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in figure.axes[1].get_yticklabels()]
        boxes.sort(key=lambda box: box.y0)
        assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))
        assert min(box.x0 for box in boxes) >= 0
        key = figure.axes[0].get_legend().get_window_extent()
        assert key.x1 <= figure.bbox.x1
        assert key.y0 >= max(box.y1 for box in boxes)


@pytest.mark.parametrize("name", ["three", "thirty"])
def test_every_text_stays_inside_the_figure(name):
    figure = plot_comparison(EXTREMES[name], name="a file with quite a long name of its own.csv")
    figure.draw_without_rendering()
    ticks = {id(label) for ax in figure.axes for label in ax.get_xticklabels()}  # some are beyond the limits, not drawn
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text() and id(text) not in ticks:
            box = text.get_window_extent()
            assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, text.get_text()


def test_a_spelled_out_method_has_the_name_that_commands_take_below():
    texts = drawn_words(plot_comparison(THREE))
    assert {"Structured vector scaling", "svs", "Uncalibrated", "uncalibrated"} <= set(texts)


def test_it_can_be_written(tmp_path):
    assert save_figure(plot_comparison(THIRTY), tmp_path / "board.svg").read_bytes().startswith(b"<?xml")
