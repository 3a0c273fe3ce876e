"""Fitted calibrators: modules from logits to logits. Many methods share few maps."""

from calibrant.maps.base import Affine, ChainMap, FitSummary, Identity, LogMixture, Map, Mixture, Scale
from calibrant.maps.curves import (
    BetaCurve,
    ClassBins,
    Curve,
    Line,
    OneVsRest,
    Polynomial,
    PooledMap,
    Steps,
    TopLabelMap,
    TwoClassMap,
)
from calibrant.maps.order_preserving import MonotoneMap, OrderPreservingMap, Sees
from calibrant.maps.proximity import Bands, ProximityMap, Surface, Table

__all__ = [
    "Affine", "Bands", "BetaCurve", "ChainMap", "ClassBins", "Curve", "FitSummary", "Identity", "Line", "LogMixture",
    "Map", "Mixture", "MonotoneMap", "OneVsRest", "OrderPreservingMap", "Polynomial", "PooledMap", "ProximityMap",
    "Scale", "Sees", "Steps", "Surface", "Table", "TopLabelMap", "TwoClassMap",
]  # fmt: skip
