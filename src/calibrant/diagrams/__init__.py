"""Numbers behind the figures, without a plotting library: small records of CPU tensors and floats."""

from calibrant.diagrams import calibration, comparison, separation, shift
from calibrant.diagrams.calibration import *  # noqa: F403
from calibrant.diagrams.comparison import *  # noqa: F403
from calibrant.diagrams.delta_picture import DeltaPicture, delta_picture
from calibrant.diagrams.separation import *  # noqa: F403
from calibrant.diagrams.shift import *  # noqa: F403

__all__ = ["DeltaPicture", "delta_picture"]
__all__ += calibration.__all__
__all__ += comparison.__all__
__all__ += separation.__all__
__all__ += shift.__all__
