"""Losses to train with: one file each, drop-in for ``nn.CrossEntropyLoss``."""

from calibrant.losses.avuc import AvUCLoss
from calibrant.losses.base import Loss, PenalisedLoss, Reduction, RowLoss, loss_settings
from calibrant.losses.brier import BrierLoss
from calibrant.losses.cross_entropy import CrossEntropyLoss
from calibrant.losses.dca import DCALoss
from calibrant.losses.dece import DECELoss, differentiable_ece
from calibrant.losses.dual_focal import DualFocalLoss
from calibrant.losses.entropy import EntropyRegularisedLoss
from calibrant.losses.focal import FocalLoss
from calibrant.losses.hooks import ChangesWithEpoch, NeedsSamples
from calibrant.losses.inverse_focal import InverseFocalLoss
from calibrant.losses.label_smoothing import LabelSmoothingLoss
from calibrant.losses.logit_norm import LogitNormLoss
from calibrant.losses.margin import MarginLoss, OverClasses
from calibrant.losses.mdca import MDCALoss
from calibrant.losses.meta.base import MetaLoss, MetaObjective
from calibrant.losses.meta.gamma_net import GammaNet
from calibrant.losses.meta.meta_focal import MetaFocalLoss
from calibrant.losses.meta.meta_l2 import L2Unit, MetaL2Loss
from calibrant.losses.meta.meta_smoothing import MetaSmoothingLoss, SmoothingUnit
from calibrant.losses.mmce import MMCELoss, MMCENormalisation
from calibrant.losses.pairwise import PairwiseConstraintsLoss
from calibrant.losses.ranking import CorrectnessNormalisation, CorrectnessRankingLoss, RankedScore
from calibrant.losses.sample_dependent_focal import SampleDependentFocalLoss, focal_gamma
from calibrant.losses.sb_ece import GapNorm, SBECELoss
from calibrant.losses.scheduled_focal import ScheduledFocalLoss
from calibrant.losses.sece import AccuracyKind, SECELoss, differentiable_sece
from calibrant.losses.soft_avuc import SoftAvUCLoss

__all__ = [
    "AccuracyKind",
    "AvUCLoss",
    "BrierLoss",
    "ChangesWithEpoch",
    "CorrectnessNormalisation",
    "CorrectnessRankingLoss",
    "CrossEntropyLoss",
    "DCALoss",
    "DECELoss",
    "DualFocalLoss",
    "EntropyRegularisedLoss",
    "FocalLoss",
    "GammaNet",
    "GapNorm",
    "InverseFocalLoss",
    "L2Unit",
    "LabelSmoothingLoss",
    "LogitNormLoss",
    "Loss",
    "MDCALoss",
    "MMCELoss",
    "MMCENormalisation",
    "MarginLoss",
    "MetaFocalLoss",
    "MetaL2Loss",
    "MetaLoss",
    "MetaObjective",
    "MetaSmoothingLoss",
    "NeedsSamples",
    "OverClasses",
    "PairwiseConstraintsLoss",
    "PenalisedLoss",
    "RankedScore",
    "Reduction",
    "RowLoss",
    "SBECELoss",
    "SECELoss",
    "SampleDependentFocalLoss",
    "ScheduledFocalLoss",
    "SmoothingUnit",
    "SoftAvUCLoss",
    "differentiable_ece",
    "differentiable_sece",
    "focal_gamma",
    "loss_settings",
]
