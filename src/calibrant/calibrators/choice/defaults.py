"""The candidates worth trying for so many rows and classes."""

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.curves.venn_abers import VennAbers
from calibrant.calibrators.nothing import DoNothing
from calibrant.calibrators.scaling.beta import BetaCalibration
from calibrant.calibrators.scaling.ets import EnsembleTemperatureScaling
from calibrant.calibrators.scaling.platt import PlattScaling
from calibrant.calibrators.scaling.quadratic import QuadraticScaling
from calibrant.calibrators.scaling.sms import StructuredMatrixScaling
from calibrant.calibrators.scaling.svs import StructuredVectorScaling
from calibrant.calibrators.scaling.temperature import TemperatureScaling

__all__ = ["default_candidates"]

# Up to this n k² a fit of structured matrix scaling takes a few seconds; six of them are then half a minute.
_MATRIX_WORK = 2e9


# They have no numbers of their own for a class, so that one without rows is not driven out.
_ALIKE = (DoNothing, TemperatureScaling, EnsembleTemperatureScaling)


def default_candidates(n: int, k: int, *, absent: int = 0) -> tuple[Calibrator, ...]:
    """Methods that are the best somewhere and seldom do harm, from simple to complex.

    Two classes: nothing, temperature, Platt, beta, quadratic, Venn-Abers. More: nothing, temperature, its ensemble,
    structured vector scaling, and structured matrix scaling where n k² is at most 2·10⁹ (25,000 rows of 280 classes;
    of 1000 classes, 2,000). Binning, isotonic and one-vs-rest methods are left out: among many classes their log-loss
    is the worst of all, and with few rows noise would sometimes choose them. Where a class has no rows, only nothing,
    temperature and its ensemble are left: the others would learn that it never occurs, and no held-out row shows it.

    Args:
        n: Calibration rows.
        k: Classes.
        absent: How many of them have no rows.

    Example:
        >>> [method.name for method in default_candidates(5000, 10)]
        ['none', 'temperature', 'ets', 'svs', 'sms']
    """
    candidates = _for_every_class(n, k)
    return tuple(each for each in candidates if isinstance(each, _ALIKE)) if absent else candidates


def _for_every_class(n: int, k: int) -> tuple[Calibrator, ...]:
    simple = (DoNothing(), TemperatureScaling())
    if k == 2:
        return (*simple, PlattScaling(), BetaCalibration(), QuadraticScaling(), VennAbers())
    matrix = (StructuredMatrixScaling(),) if n * k * k <= _MATRIX_WORK else ()
    return (*simple, EnsembleTemperatureScaling(), StructuredVectorScaling(), *matrix)
