"""Losses to train with: drop-in replacements for ``nn.CrossEntropyLoss``, and meta-learned ones."""

from calibrant.losses import base, calibration_error, confidence_accuracy, focal, meta, regularised
from calibrant.losses.base import *  # noqa: F403
from calibrant.losses.calibration_error import *  # noqa: F403
from calibrant.losses.confidence_accuracy import *  # noqa: F403
from calibrant.losses.focal import *  # noqa: F403
from calibrant.losses.meta import *  # noqa: F403
from calibrant.losses.regularised import *  # noqa: F403

__all__: list[str] = []
__all__ += base.__all__
__all__ += calibration_error.__all__
__all__ += confidence_accuracy.__all__
__all__ += focal.__all__
__all__ += meta.__all__
__all__ += regularised.__all__
