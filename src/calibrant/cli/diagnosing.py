"""What ``calibrant diagnose`` does once torch may be loaded: read the runs, judge, draw, write."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from rich.console import Console

from calibrant.calibrators import Calibrator
from calibrant.catalogue import find_calibrator
from calibrant.checks import check_known
from calibrant.cli.notes import warnings_shown
from calibrant.cli.output import standard_error, standard_output
from calibrant.cli.progress import counted
from calibrant.cli.shifting import ShiftRequest
from calibrant.cli.writing import Reports, write_json, write_page
from calibrant.diagnosis import MAPS, PAPER_MAPS, diagnose, grouped, read_runs
from calibrant.diagnosis.fitting import check_maps
from calibrant.errors import FileError, InputError
from calibrant.option_text import split_outside_brackets
from calibrant.plots.diagnosis import diagnosis_figures
from calibrant.report.diagnosis.document import diagnosis_to_document
from calibrant.report.diagnosis.markdown import diagnosis_to_markdown
from calibrant.report.diagnosis.terminal import diagnosis_to_terminal
from calibrant.training.folder import RunFolder

__all__ = ["DiagnosisRequest", "run_diagnosis"]

_READ = ("settings.json", "epochs.jsonl", "calibration.npz", "test.npz", "learning.npz", "weights.safetensors")
_MOST_NAMED = 3  # folders in a title


@final
@dataclass(frozen=True)
class DiagnosisRequest:
    """What the person asked for."""

    runs: tuple[Path, ...]
    reference: str | None = None
    maps: str | None = None
    shift: ShiftRequest = field(default_factory=ShiftRequest)
    n_bins: int = 15
    draws: int = 3
    resamples: int = 500
    seed: int = 0
    reports: Reports = field(default_factory=Reports)


def run_diagnosis(request: DiagnosisRequest) -> None:
    """Carry the request out. All that can be wrong with it is found before the long work."""
    out, err = standard_output(), standard_error()
    folders = list(_folders(request.runs, err))
    request.reports.check([*(folder / name for folder in folders for name in _READ), *request.shift.files])
    request.shift.check()
    maps = _maps(request.maps)
    with warnings_shown(err), counted(err) as count:
        count("reading the runs", 0, len(folders))
        runs = read_runs(folders)
        if request.reference is not None:
            check_known(request.reference, [each.name for each in grouped(runs)], "--reference")
        found = diagnose(
            runs,
            reference=request.reference,
            maps=maps,
            n_bins=request.n_bins,
            draws=request.draws,
            resamples=request.resamples,
            seed=request.seed,
            sets=request.shift.sets(runs, seed=request.seed),
            device=request.shift.chosen_device(),
            progress=count,
        )
        if request.reports.figures is not None:
            count("drawing", 0, 1)
        pictures = request.reports.save_pictures(lambda theme: diagnosis_figures(found, theme=theme))
    source = _source(request.runs)
    out.print(diagnosis_to_terminal(found, source=source))
    written = [
        *pictures,
        *write_json(request.reports.json, lambda: diagnosis_to_document(found)),
        *write_page(
            request.reports.markdown,
            pictures,
            lambda figures: diagnosis_to_markdown(found, source=source, figures=figures),
        ),
    ]
    if written:
        out.print("Wrote " + ", ".join(str(path) for path in written), style="dim")


def _folders(given: Sequence[Path], err: Console) -> Iterator[Path]:
    """The runs that were named, and the finished ones inside a folder that calibrant train left for several."""
    for path in given:
        if not path.is_dir():
            got = "it is a file" if path.exists() else "there is none of that name"
            raise FileError(f"{path} must be a folder that calibrant train has left; {got}.")
        inside = (
            [] if (path / "settings.json").exists() else sorted(file.parent for file in path.glob("*/settings.json"))
        )
        finished = [folder for folder in inside if RunFolder(folder).has_answers]
        for folder in inside if finished else ():
            if folder not in finished:
                err.print(f"note: {folder} was stopped before its end, and is left out.", style="yellow")
        yield from finished or inside or [path]


def _maps(text: str | None) -> tuple[Calibrator, ...]:
    """Those that were named; ``paper`` stands for several."""
    if text is None:
        return MAPS
    words = [word.strip() for word in split_outside_brackets(text, ",")]
    if not all(words):
        raise InputError(f"--maps must be paper, or names with commas between them; got {text!r}.")
    found = [each for word in words for each in (PAPER_MAPS if word == "paper" else [find_calibrator(word)])]
    check_maps(found, "--maps")
    return tuple(found)


def _source(given: Sequence[Path]) -> str:
    names = [path.resolve().name for path in given]
    return ", ".join(names) if len(names) <= _MOST_NAMED else f"{names[0]} and {len(names) - 1} more"
