"""``python -m experiments``: list, run, tabulate and check the studies of the papers."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from calibrant import catalogue
from calibrant.datasets import download
from calibrant.errors import InputError
from calibrant.text import accept_all_signs
from experiments.conclusions import PAGE, page_of_results
from experiments.dark_side.study import DARK_SIDE_STUDY
from experiments.earlier import EARLIER
from experiments.learned_confidence.study import LEARNED_CONFIDENCE_STUDY
from experiments.meta_regularization.study import META_REGULARIZATION_STUDY
from experiments.neural_clamping.study import NEURAL_CLAMPING_STUDY
from experiments.overconfidence.study import OVERCONFIDENCE_STUDY
from experiments.posthoc_maps.study import POSTHOC_MAPS_STUDY
from experiments.published import findings, read_published
from experiments.records import Record, Records
from experiments.refinement.study import REFINEMENT_STUDY
from experiments.reproduce import GUIDE, page_of_guide
from experiments.runner import Cell, Place, Study, finished, run_cells, selected

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        NEURAL_CLAMPING_STUDY,
        POSTHOC_MAPS_STUDY,
        DARK_SIDE_STUDY,
        META_REGULARIZATION_STUDY,
        OVERCONFIDENCE_STUDY,
        REFINEMENT_STUDY,
        LEARNED_CONFIDENCE_STUDY,
        *EARLIER,
    )
}
_ROOT = Path(__file__).parents[1]


def parser() -> argparse.ArgumentParser:
    """Return what reads the arguments."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_ in (
        ("list", "the cells of a study, and which of them have a record"),
        ("run", "run the cells that have no record"),
        ("table", "write the study's page and figures from its records"),
        ("check", "hold the numbers against the published ones"),
    ):
        command = commands.add_parser(name, help=help_)
        command.add_argument("paper", nargs="?" if name == "list" else None, choices=list(STUDIES))
        command.add_argument("--quick", action="store_true", help="the small grid, on bundled data")
        command.add_argument("--records", type=Path, help="JSONL file; default: the study's own")
        if name in {"list", "run"}:
            condition = command.add_argument("--only", action="append", default=[], metavar="NAME=VALUE")
            condition.help = "no other cells; values of one name add up; None: cells without that setting"
        if name == "table":
            command.add_argument("--out", type=Path, help="folder of the page; default: docs")
        if name == "run":
            command.add_argument("--data", type=Path, help="folder of the publishers' files")
            command.add_argument("--download", action="store_true", help="download missing files into --data first")
            command.add_argument(
                "--networks", type=Path, help="folder of trained networks; default: beside the records"
            )
            command.add_argument("--device", help="as torch names it; default: a GPU if there is one")
            command.add_argument("--workers", type=int, default=1, help="processes side by side")
            command.add_argument("--together", type=int, default=1, help="cells that a worker is given at once")
            command.add_argument("--minutes", type=float, default=float("inf"), help="begin no cell after these")
            command.add_argument("--commit", help="of the code, where git cannot be asked")
    commands.add_parser("results", help="write docs/results.md and its figures from the records of all studies")
    commands.add_parser("reproduce", help="write docs/reproduce.md: command, data and time of every table")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments and do what they ask; the exit status is 0 where everything is as it should be."""
    accept_all_signs(sys.stdout)
    given = parser().parse_args(arguments)
    try:
        _check_quick(given)
        status = _COMMANDS[given.command](given)
        sys.stdout.flush()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # its reader has seen enough, as in `list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which Python flushes at its end
        return 1
    return status


def _check_quick(given: argparse.Namespace) -> None:
    if getattr(given, "paper", None) and given.quick and not STUDIES[given.paper].cells(quick=True):
        small = ", ".join(name for name, study in STUDIES.items() if study.cells(quick=True))
        raise InputError(f"--quick needs a study with a small grid ({small}); {given.paper} has its records alone.")


def _list(given: argparse.Namespace) -> int:
    if given.only and not given.paper:
        raise InputError("--only must follow the study whose cells it names; got no study.")
    for study in [STUDIES[given.paper]] if given.paper else STUDIES.values():
        cells, done, strangers = _cells(study, given)
        print(f"{study.name}: {study.title}; {len(done)} of {len(cells)} cells have a record")
        if given.paper:
            for cell in selected(cells, given.only):
                print(f"  {'done   ' if cell.key in done else 'missing'} {cell}")
            for record in strangers:
                print(f"  no longer in the grid: {Cell(record['cell'])}")
    return 0


def _cells(study: Study, given: argparse.Namespace) -> tuple[list[Cell], dict[str, Record], list[Record]]:
    """Return the grid, its records by cell, and the records of other cells; note a torn line, which is none of them."""
    records = _records(study, given)
    cells, (parsed, torn) = study.cells(quick=given.quick), records.parsed()
    if torn:
        print(
            f"note: the last line of {records.path} is torn and not used; `run` drops it and runs its cell again",
            file=sys.stderr,
        )
    return cells, *finished(cells, parsed)


def _run(given: argparse.Namespace) -> int:
    options = {name: getattr(given, name) for name in ("data", "device", "commit") if getattr(given, name) is not None}
    study, records = STUDIES[given.paper], _records(STUDIES[given.paper], given)
    if given.download:
        _download(selected(study.cells(quick=given.quick), given.only), given.data)
    networks = given.networks or records.path.with_name(f"{records.path.stem}-networks")
    report = run_cells(
        study,
        records,
        Place(networks=networks, **options),
        quick=given.quick,
        only=given.only,
        workers=given.workers,
        together=given.together,
        seconds=60 * given.minutes,
        progress=lambda line: print(line, flush=True),
    )
    print(f"{report.done} cells done, {len(report.failed)} failed, {report.left} not begun")
    return 1 if report.failed or report.left else 0


def _download(cells: Sequence[Cell], folder: Path | None) -> None:
    """Download the data sets of the cells, but for files that are there."""
    if folder is None:
        raise InputError("--download must have a folder to put the files into, --data FOLDER; got none.")
    for name in dict.fromkeys(str(cell.settings["data"]) for cell in cells if "data" in cell.settings):
        reader = catalogue.datasets.parse(name)
        if not reader.remote and not reader.is_embedded:
            print(f"{name} cannot be downloaded: {reader.why_no_remote}; it must be in {folder}", flush=True)
            continue
        print(f"downloading {name} into {folder}, but for what is there", flush=True)
        download(reader, folder)


def _table(given: argparse.Namespace) -> int:
    study = STUDIES[given.paper]
    cells, done, strangers = _cells(study, given)
    if strangers:
        print(
            f"note: {len(strangers)} records are of cells that the grid does not have, such as "
            f"{Cell(strangers[0]['cell'])}; they are not used",
            file=sys.stderr,
        )
    if not done:
        raise InputError(
            f"there must be records of the {len(cells)} cells of {study.name} to tabulate; "
            f"{_records(study, given).path} has none. Run it first, or name your file by --records."
        )
    out = given.out or (_records(study, given).path.parent if given.quick else _ROOT / "docs")
    images = out / "images"
    page = out / study.page_name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(study.page(list(done.values()), images=images), encoding="utf-8")
    print(f"wrote {page}, with its figures under {images}")
    return 0


def _check(given: argparse.Namespace) -> int:
    """Missing cells and wrong verdicts; of a quick grid, and where nothing is published, missing cells alone.

    Records of one's own are held against what is published of them, and against the verdicts on ours.
    """
    study = STUDIES[given.paper]
    cells, done, strangers = _cells(study, given)
    numbers = study.numbers(list(done.values()))
    published = study.folder / "published.toml"
    entries = findings(read_published(published), numbers) if published.exists() and not given.quick else []
    if given.records is not None:
        entries = [entry for entry in entries if entry.number is not None]
    for entry in entries:
        print(entry)
    wrong = [entry for entry in entries if not entry.is_as_recorded]
    if given.records is not None:
        # Fewer seeds may leave a claim open, which contradicts nothing.
        wrong = [entry for entry in wrong if "open" not in (entry.verdict, entry.published.found)]
        wrong = [entry for entry in wrong if entry.published.found != "missing"]
    print(
        f"{study.name}: {len(done)} of {len(cells)} cells have a record, {len(strangers)} records are of other cells; "
        f"{len(entries)} published numbers and claims, {len(wrong)} not as published.toml says"
    )
    return 1 if wrong or (given.quick and len(done) < len(cells)) else 0


def _results(_given: argparse.Namespace) -> int:
    PAGE.write_text(page_of_results(images=PAGE.parent / "images"), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def _reproduce(_given: argparse.Namespace) -> int:
    GUIDE.write_text(page_of_guide(list(STUDIES.values())), encoding="utf-8")
    print(f"wrote {GUIDE}")
    return 0


def _records(study: Study, given: argparse.Namespace) -> Records:
    own = _ROOT / "build" / "experiments" / study.name if given.quick else study.folder
    return Records(given.records or own / "records.jsonl")


_COMMANDS = {"list": _list, "run": _run, "table": _table, "check": _check, "results": _results, "reproduce": _reproduce}

if __name__ == "__main__":
    sys.exit(main())
