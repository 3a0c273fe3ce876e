"""Predictions with their labels, the data that every function takes: of all classes, or of the top label alone."""

from calibrant.predictions.predictions import *  # noqa: F403
from calibrant.predictions.samples import *  # noqa: F403
from calibrant.predictions.scores import *  # noqa: F403
