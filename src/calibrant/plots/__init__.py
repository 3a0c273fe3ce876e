"""Figures with matplotlib: each function takes diagram numbers and optional axes, and returns the axes.

Global style is neither changed nor relied on, and pyplot is not used.
"""

from calibrant.plots.bins_sweep import plot_bins_sweep
from calibrant.plots.classwise import plot_classwise
from calibrant.plots.delta_picture import plot_delta
from calibrant.plots.density import plot_density
from calibrant.plots.figures import figures
from calibrant.plots.leaderboard import plot_leaderboard
from calibrant.plots.reliability import plot_reliability
from calibrant.plots.risk_coverage import plot_risk_coverage
from calibrant.plots.save import save_figure, save_figures
from calibrant.plots.style import THEMES, Theme, ThemeName

__all__ = [
    "THEMES",
    "Theme",
    "ThemeName",
    "figures",
    "plot_bins_sweep",
    "plot_classwise",
    "plot_delta",
    "plot_density",
    "plot_leaderboard",
    "plot_reliability",
    "plot_risk_coverage",
    "save_figure",
    "save_figures",
]
