"""Networks, each exposing ``features(x)`` and ``head``."""

from calibrant.models.digits_cnn import DigitsCNN

__all__ = ["DigitsCNN"]
