"""Every figure of a diagnosis for which there are numbers."""

from matplotlib.figure import Figure

from calibrant.diagnosis import Diagnosis, ShiftPanel
from calibrant.plots.diagnosis.calibratability import plot_calibratability
from calibrant.plots.diagnosis.coefficient import plot_coefficients
from calibrant.plots.diagnosis.densities import plot_densities
from calibrant.plots.diagnosis.learned_epochs import plot_learned_epochs
from calibrant.plots.diagnosis.learned_loss import plot_learned_loss
from calibrant.plots.diagnosis.over_epochs import plot_over_epochs
from calibrant.plots.diagnosis.shift import plot_shift
from calibrant.plots.diagnosis.shifted_sets import plot_shifted_sets
from calibrant.plots.diagnosis.two_sided import plot_two_sided
from calibrant.plots.diagnosis.validation_size import plot_validation_sizes
from calibrant.plots.style import ThemeName

__all__ = ["diagnosis_figures"]


def diagnosis_figures(diagnosis: Diagnosis, *, theme: ThemeName = "light") -> dict[str, Figure]:
    """Draw all that can be drawn of a diagnosis.

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
    made = {name: plot(diagnosis, theme=theme) for name, plot, there in drawn if there}
    return made if diagnosis.shift is None else made | _shift_figures(diagnosis.shift, theme)


def _shift_figures(panel: ShiftPanel, theme: ThemeName) -> dict[str, Figure]:
    sources = {level.source for level in panel.levels}
    made = {}
    if "corruption" in sources:
        made["shift"] = plot_shift(panel, theme=theme)
    if "file" in sources:
        made["shift_files"] = plot_shift(panel, source="file", theme=theme)
    if any(each.source == "file" and each.severity is None for each in panel.sets):
        made["shifted_sets"] = plot_shifted_sets(panel, theme=theme)
    return made
