"""Figures of a diagnosis: each function takes the record, or its panel of shifts, and returns a figure.

They draw on the ``figure`` given, or on a new one; ``theme`` is "light" or "dark", whose background the figure takes.
A figure that the record has no numbers for is an InputError.
"""

from matplotlib.figure import Figure

from calibrant.diagnosis import Diagnosis
from calibrant.plots.diagnosis.candidates import plot_calibratability, plot_densities, plot_two_sided
from calibrant.plots.diagnosis.curves import (
    plot_coefficients,
    plot_learned_epochs,
    plot_learned_loss,
    plot_over_epochs,
    plot_validation_sizes,
)
from calibrant.plots.diagnosis.shift import plot_shift, plot_shifted_sets
from calibrant.plots.layout import ThemeName

__all__ = [
    "diagnosis_figures", "plot_calibratability", "plot_coefficients", "plot_densities", "plot_learned_epochs",
    "plot_learned_loss", "plot_over_epochs", "plot_shift", "plot_shifted_sets", "plot_two_sided",
    "plot_validation_sizes",
]  # fmt: skip


def diagnosis_figures(diagnosis: Diagnosis, *, theme: ThemeName = "light") -> dict[str, Figure]:
    """Draw all figures for which a diagnosis has numbers.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        theme: "light" or "dark".

    Returns:
        Figures by name: calibratability, densities; and as far as there are numbers two_sided, coefficients,
        validation_sizes, epochs, learned_loss, learned_epochs, shift, shift_files, shifted_sets.
    """
    drawn = [
        ("calibratability", plot_calibratability, True),
        ("two_sided", plot_two_sided, len(diagnosis.candidates) > 1),
        ("densities", plot_densities, True),
        ("coefficients", plot_coefficients, bool(diagnosis.coefficients)),
        ("validation_sizes", plot_validation_sizes, bool(diagnosis.validation_sizes)),
        ("epochs", plot_over_epochs, bool(diagnosis.epochs)),
        ("learned_loss", plot_learned_loss, any(curve.learned for curve in diagnosis.epochs)),
        ("learned_epochs", plot_learned_epochs, bool(diagnosis.learned_epochs)),
    ]
    figures = {name: plot(diagnosis, theme=theme) for name, plot, exists in drawn if exists}
    panel = diagnosis.shift
    if panel is not None:
        sources = {level.source for level in panel.levels}
        if "corruption" in sources:
            figures["shift"] = plot_shift(panel, theme=theme)
        if "file" in sources:
            figures["shift_files"] = plot_shift(panel, source="file", theme=theme)
        if any(summary.source == "file" and summary.severity is None for summary in panel.sets):
            figures["shifted_sets"] = plot_shifted_sets(panel, theme=theme)
    return figures
