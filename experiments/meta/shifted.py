"""The same networks and temperatures on corrupted test images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from judged import way_of
from records import IMAGES

from calibrant.calibrators import TemperatureScaling
from calibrant.comparison import UNCALIBRATED
from calibrant.datasets import Dataset
from calibrant.diagnosis import DiagnosedRun, ShiftPanel, corrupted_sets, evaluate_candidates, grouped, shift_panel
from calibrant.plots.diagnosis import plot_shift

__all__ = ["panel_of", "shift_figure", "shift_lines"]

CORRUPTIONS = ("gaussian_noise", "defocus_blur", "contrast", "brightness", "jpeg_compression")
SEVERITIES = (1, 3, 5)
_TOLD = ("accuracy", "ece", "gap", "auroc")


def panel_of(runs: Sequence[DiagnosedRun], dataset: Dataset, device: torch.device) -> tuple[ShiftPanel, dict[str, str]]:
    """Every network on every set; and the way of each candidate."""
    candidates = grouped(runs)
    judged = evaluate_candidates(candidates, maps=(TemperatureScaling(),))
    sets = corrupted_sets(runs, dataset, names=CORRUPTIONS, severities=SEVERITIES)
    panel = shift_panel(judged, sets, baseline="ce", device=device, progress=lambda *told: print(*told, flush=True))
    return panel, {each.name: way_of(Path(each.runs[0].path)) for each in candidates}


def shift_lines(panel: ShiftPanel, ways: dict[str, str]) -> list[dict[str, Any]]:
    """Means over the corruptions at each severity, 0 being the images as they are."""
    return [
        {
            "way": ways[level.candidate],
            "map": "none" if level.map == UNCALIBRATED else level.map,
            "severity": level.severity,
            **{name: [round(level.metrics[name].mean, 6), round(level.metrics[name].std, 6)] for name in _TOLD},
            "sides": {name: test.side for name, test in level.t_tests.items() if name in _TOLD},
        }
        for level in panel.levels
    ]


def shift_figure(panel: ShiftPanel) -> None:
    """Of the page."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    plot_shift(panel).savefig(IMAGES / "shift.png", dpi=90)
