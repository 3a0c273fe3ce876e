"""What a fitted calibrator is: an ``nn.Module`` from logits to logits. Many methods share few maps."""

from calibrant.maps.affine import Affine
from calibrant.maps.base import FitSummary, Map
from calibrant.maps.chain import ChainMap
from calibrant.maps.curve import BetaCurve, Curve, Line, Polynomial, Steps
from calibrant.maps.curved import OneVsRest, TopLabelMap, TwoClassMap
from calibrant.maps.identity import Identity
from calibrant.maps.mixture import Mixture
from calibrant.maps.scale import Scale

__all__ = [
    "Affine",
    "BetaCurve",
    "ChainMap",
    "Curve",
    "FitSummary",
    "Identity",
    "Line",
    "Map",
    "Mixture",
    "OneVsRest",
    "Polynomial",
    "Scale",
    "Steps",
    "TopLabelMap",
    "TwoClassMap",
]
