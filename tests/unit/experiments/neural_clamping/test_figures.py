"""The figures of the Neural Clamping study: readable whatever the numbers are, and in both themes."""

import doctest
import math

import matplotlib as mpl
import pytest
import torch
from experiments.neural_clamping import ablation as ablation_module
from experiments.neural_clamping import sweeps, theory
from experiments.neural_clamping.ablation import AblationDiagram, AblationPanel
from experiments.neural_clamping.figures import plot_ablation, plot_gamma_sweep, plot_start_spread
from experiments.neural_clamping.sweeps import GammaSweep, StartSpread
from figure_words import check_words, drawn_texts
from matplotlib.figure import Figure

from calibrant.diagrams import Dot

NAMES = ("none", "TS", "TS (focal)", "δ* only", "T* only", "joint", "TS on δ*")


def sweep(m=21, *, nothing=False):
    x = torch.linspace(0, 1, m, dtype=torch.float64) if m > 1 else torch.tensor([0.5], dtype=torch.float64)
    same = torch.full_like(x, 0.3)
    return GammaSweep(
        gamma=x, ece=0.02 + 0.03 * (x - 0.3).abs(), ece_low=0 * x, ece_high=0.06 + 0 * x, ece_floor=0.015 + 0 * x,
        calibration_ece=0.01 + 0.05 * (x - 0.2).abs(), objective=same if nothing else 1 - 0.4 * x,
        entropy=same if nothing else 0.4 + x, nll=0.5 + x, accuracy=same, temperature=1 + x, norm=x, strength=same,
        n=5000, n_calibration=1000,
    )  # fmt: skip


def spread(seeds=5, starts=2, scale=1e-3):
    values = 0.03 + scale * torch.randn(starts, seeds, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    names = ("random", "data-driven", "zero")[:starts]
    metrics = {name: values.abs() for name in ("entropy", "ece", "ace", "sce", "nll", "accuracy")}
    return StartSpread(names, tuple(range(seeds)), metrics, values, values, 5000)


def ablation(dots=None, panels=3):
    dots = dots or tuple(Dot(0.1 + 0.05 * place, 0.08 + 0.05 * place, 0.13 + 0.05 * place) for place in range(7))
    names, better = ("nll", "ece", "accuracy", "entropy")[:panels], (True, True, False, None)
    made = tuple(AblationPanel(name, lower, dots) for name, lower in zip(names, better, strict=False))
    return AblationDiagram(NAMES[: len(dots)], (1.0, 2.0, 3.0, 1.0, 2.5, 2.5, None)[: len(dots)], "TS", made, 1.5, 5000)


FAR_OFF = (Dot(9.0, 8.0, 10.0, "worse"), *[Dot(0.1, 0.09, 0.11)] * 6)
UNSURE = tuple([Dot(0.1, math.nan, math.nan)] * 7)
FIGURES = {
    "γ": (plot_gamma_sweep, sweep(), "light"),
    "one γ that does nothing": (plot_gamma_sweep, sweep(1, nothing=True), "dark"),
    "starts": (plot_start_spread, spread(), "dark"),
    "three starts without spread": (plot_start_spread, spread(seeds=1, starts=3, scale=0.0), "light"),
    "ablation": (plot_ablation, ablation(), "light"),
    "ablation by one metric of few rows": (plot_ablation, ablation(UNSURE, panels=1), "light"),
    "ablation by four metrics far off": (plot_ablation, ablation(FAR_OFF, panels=4), "dark"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_and_its_words_stay_inside(name):
    plot, diagram, theme = FIGURES[name]
    check_words(plot(diagram, theme=theme))


@pytest.mark.parametrize("name", ["γ", "starts", "ablation"])
def test_the_figure_given_is_the_figure_returned_and_nothing_global_changes(name):
    plot, diagram, _ = FIGURES[name]
    before = dict(mpl.rcParams)
    figure = Figure((9, 5))
    assert plot(diagram, figure=figure, theme="dark") is figure
    assert dict(mpl.rcParams) == before


def test_the_sweep_names_the_gamma_that_the_rule_chooses_and_that_of_least_log_loss():
    words = " ".join(text.get_text() for text in drawn_texts(plot_gamma_sweep(sweep())))
    assert "least calibration-set ECE at γ = 0.2" in words
    assert "ECE 2.3 % on 5,000 test samples" in words
    assert "least test log-loss at γ = 0" in words


def test_every_fit_has_its_mark():
    figure = plot_start_spread(spread(), metrics=("ece",))
    (panel,) = figure.axes[1:]
    marks = [line for line in panel.lines if line.get_marker() in {"o", "s"}]
    assert [len(line.get_ydata()) for line in marks] == [5, 5]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["random", "data-driven"]


def test_rows_stand_from_the_top_with_their_temperatures():
    figure = plot_ablation(ablation())
    figure.draw_without_rendering()
    labels = figure.axes[1].get_yticklabels()
    assert [label.get_text() for label in labels][0::5] == ["none   T = 1.00", "joint   T = 2.50"]
    assert labels[-1].get_text() == "TS on δ*"
    heights = [label.get_window_extent().y0 for label in labels]
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize("module", [ablation_module, sweeps, theory])
def test_the_examples_in_the_docstrings_run(module):
    assert doctest.testmod(module).attempted
    assert doctest.testmod(module).failed == 0
