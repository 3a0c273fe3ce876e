"""A diagnosis written by hand, whose every number is known: candidate i of seed j has values that i and j decide."""

import math
from dataclasses import replace

import pytest

from calibrant.diagnosis import (
    Band,
    Calibratability,
    CandidateSummary,
    CandidateVerdict,
    CoefficientCurve,
    CoefficientPoint,
    DensityCurves,
    Diagnosis,
    Direction,
    EpochCurves,
    LearnedEpochs,
    LearnedGroup,
    Refinement,
    RefinementRow,
    ShiftLevel,
    ShiftPanel,
    ShiftRow,
    ShiftSummary,
    SizePoint,
    ValidationSize,
    spread,
)
from calibrant.evidence import Difference

MAPS = ("uncalibrated", "temperature", "histogram", "svs")
NAMES = (
    "ce", "focal", "label_smoothing(0.05)", "label_smoothing(0.1)", "inverse_focal", "mmce", "ce mixup=0.2", "flsd",
    "meta_focal(objective=dece)", "meta_l2", "meta_smoothing(objective=sece)",
    "resnet50 meta_focal(objective=sece, learning_rate=0.001) batch_size=512",
)  # fmt: skip
# Raw, the first is best; after a temperature, the second.
ECE = {"uncalibrated": 0.05, "temperature": 0.02, "histogram": 0.03, "svs": 0.025}
GRID = tuple(j / 50 for j in range(51))


class Maker:
    """Records of so many candidates with so many seeds."""

    def __init__(self, candidates=3, seeds=2):
        self.names, self.seeds = NAMES[:candidates], seeds

    def over(self, value, step=0.01):
        return spread([value + step * seed for seed in range(self.seeds)])

    def ece(self, place, name):
        order = (place + 1) if name == "uncalibrated" else abs(place - 1) + 1
        return self.over(ECE[name] * order, 0.002)

    def against(self, side):
        return Difference(0.2, 0.1, -0.1, -0.2, 0.0, 0.01, 0.01, side, covers_seeds=True)

    def verdict(self, place, sides=("alike", "alike")):
        scaled, auroc = (self.against(side) for side in sides)
        alike = self.against("alike")
        return CandidateVerdict(
            self.names[place], self.names[0], alike, scaled, auroc, alike, "alike", self.seeds, self.seeds, 2
        )

    def calibratability(self, place):
        return Calibratability(
            self.names[place], tuple(range(self.seeds)), self.over(0.9), {name: self.ece(place, name) for name in MAPS},
            self.over(1.5), self.over(0.01 * (place + 1), 0.001), self.over(1.4), {}, {}, {}, (),
        )  # fmt: skip

    def refinement(self, place):
        right = tuple(math.exp(-(((t - 0.9) / 0.05) ** 2)) for t in GRID)
        wrong = tuple(math.exp(-(((t - 0.5) / 0.15) ** 2)) for t in GRID)
        density = DensityCurves(GRID, right, wrong, self.over(0.9, 0), self.over(0.5, 0))
        rows = [
            RefinementRow(name, {"auroc": self.over(0.8 + 0.01 * place)}, {}, None, {}, {}, (), density)
            for name in MAPS
        ]  # fmt: skip
        return Refinement(self.names[place], tuple(rows), {})

    def curve(self, values=(0.05, 0.1, 0.2)):
        points = [
            CoefficientPoint(
                value, f"label_smoothing({value})", {name: self.over(value * ECE[name]) for name in MAPS},
                self.over(0.001), self.over(1.0), self.over(0.9),
            )
            for value in values
        ]  # fmt: skip
        return CoefficientCurve("loss.smoothing", "label_smoothing", tuple(points))

    def sizes(self, place, rows=(100, 200, 500, 640)):
        points = [
            SizePoint(n, {name: self.over(ECE[name] * (1 + 50 / n), 0.001) for name in MAPS[1:]}, {}) for n in rows
        ]
        return ValidationSize(self.names[place], 3, self.ece(place, "uncalibrated"), tuple(points))

    def band(self, mean, reach=0.01):
        mean = tuple(mean)
        return Band(mean, tuple(value - reach for value in mean), tuple(value + reach for value in mean))

    def epochs(self, place, epochs=(1, 2, 3), learned=False):
        numbers = {
            "ece": self.band(0.02 * (place + epoch) for epoch in epochs),
            "optimal_ece": self.band((0.02 / epoch for epoch in epochs), 0.001),
            "temperature": self.band(0.5 + 0.5 * epoch for epoch in epochs),
        }
        told = {
            "gamma_mean": self.band(1.0 + 0.1 * epoch for epoch in epochs),
            "gamma_std": self.band((2.0 - 0.5 * epoch for epoch in epochs), 0),
            "gamma_clipped": self.band((0.0 for _ in epochs), 0),
        }
        return EpochCurves(
            self.names[place], "test", self.seeds, tuple(epochs), numbers, epochs[-1], 0.0, told if learned else {}
        )

    def learned(self, place):
        groups = (
            LearnedGroup(1, 1, 60, 0.6, 7.0, 1.0, (0, 10, 20, 30)),
            LearnedGroup(2, 4, 40, 0.4, 5.0, 1.0, (0, 30, 10, 0)),
            LearnedGroup(None, None, 0, 0.0, math.nan, math.nan, (0, 0, 0, 0)),
        )
        return LearnedEpochs(self.names[place], self.seeds, (0.0, 2.5, 5.0, 7.5, 10.0), groups, self.over(-0.4, 0))

    def shift_metrics(self, place, name, severity):
        worse = 1 + severity
        return {
            "ece": self.over(ECE[name] * worse), "accuracy": self.over(0.9 - 0.1 * severity, -0.01),
            "auroc": self.over(0.9 - 0.02 * severity - 0.01 * place), "gap": self.over(0.01 * worse, 0),
        }  # fmt: skip

    def shift(self, severities=(1, 2, 3), source="corruption", files=("photos",)):
        levels = [
            ShiftLevel(name, each, source, severity, ("noise", "blur") if severity else ("clean",),
                       self.shift_metrics(place, each, severity), {}, {})
            for place, name in enumerate(self.names) for each in MAPS for severity in (0, *severities)
        ]  # fmt: skip
        sets = [ShiftSummary("clean", "clean", None, 500), *(ShiftSummary(name, "file", None, 300) for name in files)]
        rows = [
            ShiftRow(name, each, of.shift, of.source, None, of.n, self.shift_metrics(place, each, 2 * (of != sets[0])),
                     {}, Direction(name, each, self.over(0.0), 0.0, 0.0, "neither", covers_seeds=False), {}, {})
            for of in sets for place, name in enumerate(self.names) for each in MAPS
        ]  # fmt: skip
        return ShiftPanel("ce", MAPS, tuple(sets), tuple(rows), tuple(levels) if severities else ())

    def diagnosis(self):
        places = range(len(self.names))
        seeds = tuple(range(self.seeds))
        return Diagnosis(
            candidates=tuple(CandidateSummary(name, name, seeds, (), 640) for name in self.names),
            baseline="ce",
            maps=MAPS,
            n=500,
            n_classes=10,
            n_bins=15,
            resamples=100,
            seed=0,
            verdicts=tuple(self.verdict(place) for place in places[1:]),
            calibratability=tuple(map(self.calibratability, places)),
            refinement=tuple(map(self.refinement, places)),
            directions=(),
            coefficients=(self.curve(),),
            validation_sizes=tuple(map(self.sizes, places)),
            epochs=tuple(self.epochs(place, learned=place == len(self.names) - 1) for place in places),
            learned_epochs=tuple(map(self.learned, places)),
            shift=self.shift(),
        )

    @staticmethod
    def bare(found):
        """Of runs that were not traced, not looked at, and alike in nothing."""
        return replace(found, coefficients=(), validation_sizes=(), epochs=(), learned_epochs=(), shift=None)


@pytest.fixture
def maker():
    return Maker
