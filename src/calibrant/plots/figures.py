"""Every figure about one set of predictions."""

from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant.diagrams import bins_sweep, classwise_reliability, confidence_density, reliability, risk_coverage
from calibrant.plots.bins_sweep import plot_bins_sweep
from calibrant.plots.classwise import plot_classwise
from calibrant.plots.density import plot_density
from calibrant.plots.reliability import plot_reliability
from calibrant.plots.risk_coverage import plot_risk_coverage
from calibrant.plots.style import ThemeName
from calibrant.predictions import Predictions, TopLabel

__all__ = ["figures"]


def figures(
    predictions: Predictions | TopLabel, *, n_bins: int = 15, theme: ThemeName = "light", seed: int = 0
) -> dict[str, Figure]:
    """Draw all that can be drawn of these predictions.

    Args:
        predictions: Either record; the figure by class needs the probability of every class.
        n_bins: Number of equal-width bins of the reliability diagrams.
        theme: "light" or "dark".
        seed: Of the noise floor's redraws.

    Returns:
        Figures by name: reliability, classwise (only from :class:`Predictions`), density, risk_coverage, bins_sweep.
    """
    made = {"reliability": _figure_of(plot_reliability(reliability(predictions, n_bins=n_bins), theme=theme))}
    if isinstance(predictions, Predictions):
        made["classwise"] = plot_classwise(classwise_reliability(predictions, n_bins=n_bins), theme=theme)
    made["density"] = _figure_of(plot_density(confidence_density(predictions), theme=theme))
    made["risk_coverage"] = _figure_of(plot_risk_coverage(risk_coverage(predictions), theme=theme))
    made["bins_sweep"] = _figure_of(plot_bins_sweep(bins_sweep(predictions, seed=seed), theme=theme))
    return made


def _figure_of(ax: Axes) -> Figure:
    return cast("Figure", ax.figure)  # axes made here are in no subfigure
