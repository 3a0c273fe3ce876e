"""Figures of a diagnosis: each function takes a record of it, and returns a figure."""

from calibrant.plots.diagnosis.calibratability import plot_calibratability
from calibrant.plots.diagnosis.coefficient import plot_coefficients
from calibrant.plots.diagnosis.densities import plot_densities
from calibrant.plots.diagnosis.figures import diagnosis_figures
from calibrant.plots.diagnosis.learned_epochs import plot_learned_epochs
from calibrant.plots.diagnosis.learned_loss import plot_learned_loss
from calibrant.plots.diagnosis.over_epochs import plot_over_epochs
from calibrant.plots.diagnosis.shift import plot_shift
from calibrant.plots.diagnosis.shifted_sets import plot_shifted_sets
from calibrant.plots.diagnosis.two_sided import plot_two_sided
from calibrant.plots.diagnosis.validation_size import plot_validation_sizes

__all__ = [
    "diagnosis_figures",
    "plot_calibratability",
    "plot_coefficients",
    "plot_densities",
    "plot_learned_epochs",
    "plot_learned_loss",
    "plot_over_epochs",
    "plot_shift",
    "plot_shifted_sets",
    "plot_two_sided",
    "plot_validation_sizes",
]
