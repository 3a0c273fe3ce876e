"""Fig. 1a-c of the paper, and what of its sections 2.1 and 4 can be looked at without training a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from calibrant.calibrators import TemperatureScaling
from calibrant.datasets import load_resnet110
from calibrant.metrics import AUROC, ECE, refinement_terms
from experiments.dark_side.hypothetical import Side, hypothetical
from experiments.dark_side.learned import learned_confidence
from experiments.dark_side.results import numbers_of, page_of
from experiments.numbers import Number
from experiments.records import Record
from experiments.runner import Cell, Place, RunCells, Scalar, Settings, Study, one_by_one

__all__ = ["DarkSideStudy"]

# AUROC and ECE as the paper prints them under Fig. 1. On which side of calibration each lies is not printed.
HYPOTHETICAL: dict[str, tuple[float, float, Side]] = {
    "a": (0.774, 0.06, "overconfident"),
    "b": (0.9946, 0.18, "underconfident"),
    "c": (0.89, 0.08, "overconfident"),
}
DRAWN, QUICK_DRAWN = 100_000, 1_000
BINS = 100  # of the paper's assumption
HEAD: dict[str, Scalar] = {"units": 100, "epochs": 40, "learning_rate": 0.001}


@final
class DarkSideStudy(Study):
    """Hypothetical classifiers; overconfident bins of a real one, and ConfidNet behind it."""

    name: ClassVar[str] = "dark-side"
    title: ClassVar[str] = "On the Dark Side of Calibration, Singh et al. 2021"
    folder: ClassVar[Path] = Path(__file__).parent

    def cells(self, *, quick: bool) -> Sequence[Cell]:
        drawn = QUICK_DRAWN if quick else DRAWN
        grid: list[dict[str, Scalar]] = [
            {
                "what": "hypothetical",
                "panel": panel,
                "auroc": auroc,
                "ece": error,
                "side": side,
                "drawn": drawn,
                "seed": 0,
            }
            for panel, (auroc, error, side) in HYPOTHETICAL.items()
        ]
        grid += [
            {"what": "bins", "network": "resnet110", "map": name, "bins": BINS} for name in ("none", "temperature")
        ]
        head = HEAD | {"epochs": 3} if quick else HEAD
        grid += [
            {"what": "confidnet", "network": "resnet110", "inputs": inputs, "samples": samples, **head, "seed": seed}
            for seed in ((0,) if quick else (0, 1, 2))
            for samples in ((300,) if quick else (300, 750, 1500, 5000))
            for inputs in ("features", "log-probabilities")
        ]
        return [Cell(settings) for settings in grid]

    def prepare(self, place: Place, *, quick: bool) -> RunCells:  # noqa: ARG002  # nothing to load
        return one_by_one(_run)

    def numbers(self, records: Sequence[Record]) -> dict[str, Number]:
        return numbers_of(records)

    def page(self, records: Sequence[Record], *, images: Path | None) -> str:
        return page_of(records, images=images)


def _run(cell: Settings) -> dict[str, Any]:
    if cell["what"] == "confidnet":
        return learned_confidence(cell)
    if cell["what"] == "bins":
        calibration, test = load_resnet110()
        seen = TemperatureScaling().fit(calibration).transform(test) if cell["map"] == "temperature" else test
        terms = refinement_terms(seen, n_bins=int(cell["bins"]))
        return terms._asdict() | {"equation_9": terms.equation_9}
    classifier = hypothetical(float(cell["auroc"]), float(cell["ece"]), str(cell["side"]))  # type: ignore[arg-type]
    answers = classifier.draw(int(cell["drawn"]), seed=int(cell["seed"]))
    terms = refinement_terms(answers)
    return {
        "d": classifier.d,
        "q": classifier.q,
        "auroc": float(AUROC()(answers)),
        "ece": float(ECE()(answers)),
        "overconfident_bins": terms.overconfident_bins,
        "equation_9": terms.equation_9,
    }
