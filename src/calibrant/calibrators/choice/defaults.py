"""The candidates worth trying for so many samples and classes, and the one to hold on to when in doubt."""

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.binning.isotonic import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.chain import Chain
from calibrant.calibrators.curves.venn_abers import VennAbers
from calibrant.calibrators.nothing import DoNothing
from calibrant.calibrators.scaling.beta import BetaCalibration
from calibrant.calibrators.scaling.ets import EnsembleTemperatureScaling
from calibrant.calibrators.scaling.odir import DirichletODIR
from calibrant.calibrators.scaling.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.scaling.platt import PlattScaling
from calibrant.calibrators.scaling.quadratic import QuadraticScaling
from calibrant.calibrators.scaling.sms import StructuredMatrixScaling
from calibrant.calibrators.scaling.svs import StructuredVectorScaling
from calibrant.calibrators.scaling.temperature import TemperatureScaling

__all__ = ["default_candidates", "steady_candidate", "steady_partner"]

# Up to this n k² a fit of structured matrix scaling takes a few seconds; six of them are then half a minute.
_MATRIX_WORK = 2e9
# Fewer samples for each of the k² weights leave a matrix to its penalty: then it is no better than a vector.
_SAMPLES_A_WEIGHT = 2
# Dirichlet calibration chooses its penalties by cross-validation, which needs more and takes longer.
_SAMPLES_A_SEARCHED_WEIGHT = 5
# With so few samples of so few classes no cross-validation tells methods apart; the steady ones are averaged.
_FEW_SAMPLES, _FEW_CLASSES = 500, 10
# A curve for each class needs samples of each, a network that sees which class is which as well.
_SAMPLES_A_CURVE = 20
_SAMPLES_A_SEEN_CLASS = 50

_POOLED_AFTER_TEMPERATURE = Chain((TemperatureScaling(), IsotonicPooled()))
# They have no numbers of their own for a class, so that one without samples is not driven out.
_ALIKE = (
    DoNothing(),
    TemperatureScaling(),
    EnsembleTemperatureScaling(),
    DiagonalOrderPreserving(),
    OrderInvariant(),
    IsotonicPooled(),
    _POOLED_AFTER_TEMPERATURE,
)


def default_candidates(n: int, k: int, *, absent: int = 0) -> tuple[Calibrator, ...]:
    """Methods that are the best somewhere: first the steady ones, from simple to complex, then their challengers.

    Steady are nothing, temperature, structured vector scaling and structured matrix scaling (where n k² is at most
    2·10⁹): each is the one before it as long as the samples do not show more. Challengers of two classes: Platt, beta,
    quadratic, ensemble temperature, isotonic, Venn-Abers. Of more: ensemble temperature, the diagonal function, pooled
    isotonic by itself and after a temperature, isotonic regression of each class (20 samples a class), the
    order-invariant network, the order-preserving one (50 a class), and Dirichlet calibration (5 a weight). With at most
    500 samples of ten classes there are none but Platt scaling: the lowest of many scores would be luck. Where a
    class has no samples, only those that treat all classes alike are left: the others would learn that it never occurs,
    and no held-out sample shows the harm.

    Args:
        n: Calibration samples.
        k: Classes.
        absent: How many of them have no samples.

    Example:
        >>> [method.name for method in default_candidates(5000, 2)]
        ['none', 'temperature', 'svs', 'sms', 'platt', 'beta', 'quadratic', 'ets', 'isotonic', 'venn_abers']
    """
    if _few(n, k) and not absent:
        return DoNothing(), TemperatureScaling(), steady_candidate(n, k), PlattScaling()
    matrix = (StructuredMatrixScaling(),) if n * k * k <= _MATRIX_WORK else ()
    steady = (DoNothing(), TemperatureScaling(), StructuredVectorScaling(), *matrix)
    candidates = (*steady, *(_challengers_of_two() if k == 2 else _challengers(n, k)))
    return tuple(each for each in candidates if each in _ALIKE) if absent else candidates


def steady_candidate(n: int, k: int, *, absent: int = 0) -> Calibrator:
    """The one of :func:`default_candidates` that cross-validation must speak against, or it is taken.

    Structured matrix scaling where there are two samples for each weight, else structured vector scaling; a temperature
    where a class has no samples. Their penalties let the samples decide how much is learned, so that they are seldom
    far behind the best, whatever the model; a hundred samples could not tell which method that is.

    Example:
        >>> steady_candidate(5000, 10).name, steady_candidate(5000, 100).name
        ('sms', 'svs')
    """
    if absent:
        return TemperatureScaling()
    wide = n < _SAMPLES_A_WEIGHT * k * k or n * k * k > _MATRIX_WORK
    return StructuredVectorScaling() if wide else StructuredMatrixScaling()


def steady_partner(n: int, k: int, *, absent: int = 0) -> Calibrator | None:
    """Return the method of :func:`default_candidates` that the steady one is averaged with, if there is one.

    Platt scaling with few samples: it looks at every class by itself, and errs where structured matrix scaling, which
    looks at all of them together, does not. With more samples Dirichlet calibration, the same kind of map with
    penalties that are searched for.

    Example:
        >>> steady_partner(100, 3).name, steady_partner(5000, 10).name, steady_partner(5000, 100)
        ('platt', 'dirichlet_odir', None)
    """
    if absent:
        return None
    if _few(n, k):
        return PlattScaling()
    return DirichletODIR() if k > 2 and _searched(n, k) else None


def _few(n: int, k: int) -> bool:
    return n <= _FEW_SAMPLES and k <= _FEW_CLASSES


def _searched(n: int, k: int) -> bool:
    """Whether there are samples enough to search the penalties of a matrix, and not too many."""
    return n >= _SAMPLES_A_SEARCHED_WEIGHT * k * k and n * k * k <= _MATRIX_WORK


def _challengers_of_two() -> tuple[Calibrator, ...]:
    scaled = (PlattScaling(), BetaCalibration(), QuadraticScaling(), EnsembleTemperatureScaling())
    return (*scaled, IsotonicRegression(), VennAbers())


def _challengers(n: int, k: int) -> tuple[Calibrator, ...]:
    allowed: list[tuple[Calibrator, bool]] = [
        (EnsembleTemperatureScaling(), True),
        (DiagonalOrderPreserving(), True),
        (IsotonicPooled(), True),
        (_POOLED_AFTER_TEMPERATURE, True),
        (IsotonicOneVsRest(), n >= _SAMPLES_A_CURVE * k),
        (OrderInvariant(), True),
        (OrderPreserving(), n >= _SAMPLES_A_SEEN_CLASS * k),
        (DirichletODIR(), _searched(n, k)),
    ]
    return tuple(method for method, enough in allowed if enough)
