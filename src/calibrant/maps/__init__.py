"""What a fitted calibrator is: an ``nn.Module`` from logits to logits. Many methods share few maps."""

from calibrant.maps.affine import Affine
from calibrant.maps.base import FitSummary, Map
from calibrant.maps.chain import ChainMap
from calibrant.maps.class_bins import ClassBins
from calibrant.maps.curve import BetaCurve, Curve, Line, Polynomial, Steps
from calibrant.maps.curved import OneVsRest, TopLabelMap, TwoClassMap
from calibrant.maps.identity import Identity
from calibrant.maps.mixture import LogMixture, Mixture
from calibrant.maps.order_preserving import MonotoneMap, OrderPreservingMap, Sees
from calibrant.maps.pooled import PooledMap
from calibrant.maps.proximity import ProximityMap
from calibrant.maps.scale import Scale
from calibrant.maps.surface import Bands, Surface, Table

__all__ = [
    "Affine",
    "Bands",
    "BetaCurve",
    "ChainMap",
    "ClassBins",
    "Curve",
    "FitSummary",
    "Identity",
    "Line",
    "LogMixture",
    "Map",
    "Mixture",
    "MonotoneMap",
    "OneVsRest",
    "OrderPreservingMap",
    "Polynomial",
    "PooledMap",
    "ProximityMap",
    "Scale",
    "Sees",
    "Steps",
    "Surface",
    "Table",
    "TopLabelMap",
    "TwoClassMap",
]
