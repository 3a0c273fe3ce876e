"""Figures with matplotlib: each function takes predictions or the numbers of a diagram, and returns the axes or figure.

They share these arguments: ``name``, the name of the data for the title, such as their file; ``ax`` or ``figure`` to
draw on, a new one by default; ``theme``, "light" or "dark", whose background the figure takes too; ``other`` and
``set_names``, a second set to compare with and the names of both. Diagrams come from :mod:`calibrant.diagrams`.

Global style is neither changed nor relied on, and pyplot is not used.
"""

from calibrant.plots.comparison import comparison_figures, plot_comparison, plot_trend
from calibrant.plots.delta import plot_delta
from calibrant.plots.evaluation import figures, plot_bins_sweep, plot_bins_sweeps, plot_density, plot_risk_coverage
from calibrant.plots.layout import THEMES, Theme, ThemeName, method_title, save_figure, save_figures
from calibrant.plots.reliability import plot_classwise, plot_reliability, plot_slices, slice_figures
from calibrant.plots.risk import plot_decisions, plot_risk
from calibrant.plots.shift import plot_distribution, plot_proportions, shift_figures

__all__ = [
    "THEMES", "Theme", "ThemeName", "comparison_figures", "figures", "method_title", "plot_bins_sweep",
    "plot_bins_sweeps", "plot_classwise", "plot_comparison", "plot_decisions", "plot_delta", "plot_density",
    "plot_distribution", "plot_proportions", "plot_reliability", "plot_risk", "plot_risk_coverage", "plot_slices",
    "plot_trend", "save_figure", "save_figures", "shift_figures", "slice_figures",
]  # fmt: skip
