"""The picture of δ: readable whatever the numbers are, and in both themes."""

import matplotlib as mpl
import pytest
import torch
from figure_words import check_words, drawn_texts
from matplotlib.figure import Figure

from calibrant.diagrams import DeltaPicture
from calibrant.plots import plot_delta, save_figure
from calibrant.plots.layout import metric_axis


def picture(m=5, maps=1, channels=1, *, size=(8, 8), zero=False, captions=()):
    chance = torch.Generator().manual_seed(0)
    inputs = torch.rand(m, channels, *size, generator=chance)
    drawn = torch.zeros(maps, *size) if zero else torch.randn(maps, *size, generator=chance)
    names = ("δ",) if maps == 1 else ("δ, red", "δ, green", "δ, blue")
    return DeltaPicture(inputs, inputs + 0.1, drawn, names, captions, 0.0, 1.0, 2.5, 3.0, 0.1, in_pixels=True)


FIGURES = {
    "grey δ": (plot_delta, picture(captions=tuple("abcde")), "light"),
    "wide δ in colour": (plot_delta, picture(maps=3, channels=3, size=(4, 16)), "dark"),
    "δ of nothing and one input": (plot_delta, picture(m=1, zero=True), "light"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_and_its_words_stay_inside(name):
    plot, diagram, theme = FIGURES[name]
    check_words(plot(diagram, theme=theme))


@pytest.mark.parametrize("name", ["grey δ"])
def test_the_figure_given_is_the_figure_returned_and_nothing_global_changes(name):
    plot, diagram, _ = FIGURES[name]
    before = dict(mpl.rcParams)
    figure = Figure((9, 5))
    assert plot(diagram, figure=figure, theme="dark") is figure
    assert dict(mpl.rcParams) == before


def test_colours_of_delta_are_even_around_nothing():
    figure = plot_delta(picture())
    drawn = figure.axes[1].images[0]
    assert drawn.norm.vmin == -drawn.norm.vmax == -2.5
    assert drawn.cmap(drawn.norm(0.0))[:3] == pytest.approx((1.0, 1.0, 1.0), abs=0.01)


def test_the_picture_of_delta_tells_by_how_much_it_is_amplified():
    words = [text.get_text() for text in drawn_texts(plot_delta(picture()))]
    assert any("drawn 0.4 × as strong as x" in each and "10.0 % of x + δ beyond" in each for each in words)
    assert any("δ = 0" in text.get_text() for text in drawn_texts(plot_delta(picture(zero=True))))


def test_a_metric_without_words_has_its_name():
    assert metric_axis("mmce").words == "mmce"
    assert metric_axis("nll").number(0.12345) == "0.123"


def test_a_picture_in_a_drawing_can_be_written(tmp_path):
    path = save_figure(plot_delta(picture()), tmp_path / "delta.svg")
    assert path.read_bytes().startswith(b"<?xml")
