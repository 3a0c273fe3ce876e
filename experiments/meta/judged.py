"""Each run measured as in the paper's Table 1; and each way to train, by ``calibrant diagnose``'s own functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from records import IMAGES

from calibrant.calibrators import TemperatureScaling
from calibrant.diagnosis import DiagnosedRun, Diagnosis, Spread, diagnose
from calibrant.metrics import ACE, AUROC, ECE, MCE, NLL, SCE, Accuracy
from calibrant.plots.diagnosis import diagnosis_figures
from calibrant.predictions import Predictions
from calibrant.report.diagnosis.wording import words_of_verdict

__all__ = ["diagnosed", "figures_of", "run_lines", "way_lines", "way_of"]

MEASURED = (Accuracy(), NLL(), ECE(), MCE(), ACE(), SCE(), AUROC())
SHOWN = ("two_sided", "calibratability", "learned_loss")


def run_lines(runs: Sequence[DiagnosedRun]) -> list[dict[str, Any]]:
    """The paper's numbers of every run, as it is and after temperature scaling."""
    return [_measured(run) for run in runs]


def diagnosed(runs: Sequence[DiagnosedRun]) -> Diagnosis:
    """All runs held against cross-entropy."""
    return diagnose(runs, progress=lambda what, done, of: print(what, done, of, flush=True))


def way_lines(found: Diagnosis) -> list[dict[str, Any]]:
    """What maps leave of the error, and how it compares; in the order of the candidates."""
    words = {each.candidate: words_of_verdict(found, each)[0] for each in found.verdicts}
    lines = []
    for summary, row, ranked in zip(found.candidates, found.calibratability, found.refinement, strict=True):
        raw = ranked.rows[0]
        lines.append(
            {
                "way": way_of(Path(summary.folders[0])),
                "candidate": summary.name,
                "ece": {name: _spread(each) for name, each in row.ece.items()},
                "optimal_ece": _spread(row.optimal_ece),
                "sides": {name: each.side for name, each in row.differences.items()},
                "auroc": _spread(raw.metrics["auroc"]),
                "auroc_side": raw.auroc_difference.side if raw.auroc_difference else "alike",
                "nll_rest": _spread(ranked.splits["nll"].refinement),
                "verdict": words.get(summary.name),
            }
        )
    return lines


def figures_of(found: Diagnosis) -> None:
    """Those of the page."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, figure in diagnosis_figures(found).items():
        if name in SHOWN:
            figure.savefig(IMAGES / f"{name}.png", dpi=90)


def way_of(folder: Path) -> str:
    """The name of the way to train, without the seed."""
    return folder.name.rpartition("-")[0]


def _measured(run: DiagnosedRun) -> dict[str, Any]:
    fitted = TemperatureScaling().fit(run.calibration)
    return {
        "way": way_of(run.path),
        "seed": run.seed,
        "epochs": run.settings.recipe.epochs,
        "batch_size": run.settings.recipe.batch_size,
        "none": _numbers(run.test),
        "ts": _numbers(fitted.transform(run.test)),
        "T": round(float(fitted.temperature), 4),
        "learned": [
            {name: round(value, 6) for name, value in record.learned.items()} | {"epoch": record.epoch}
            for record in run.records
            if record.learned
        ],
    }


def _numbers(predictions: Predictions) -> dict[str, float]:
    return {metric.name: round(float(metric(predictions)), 6) for metric in MEASURED}


def _spread(each: Spread) -> list[float]:
    return [round(each.mean, 6), round(each.std, 6)]
