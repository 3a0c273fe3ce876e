"""The datasets of the papers and of the demonstration, read from their canonical files."""

from calibrant.datasets.digits import Digits, load_digits

__all__ = ["Digits", "load_digits"]
