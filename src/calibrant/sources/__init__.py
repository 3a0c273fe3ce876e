"""Where predictions come from and where they go: files, data frames and arrays; :func:`load` and :func:`save`.

Names say what numbers are (see :mod:`calibrant.sources.columns`); values are never looked at to find out.
"""

from calibrant.sources.load import load
from calibrant.sources.save import save

__all__ = ["load", "save"]
