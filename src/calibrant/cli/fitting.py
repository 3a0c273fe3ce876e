"""What ``calibrant fit`` does once torch may be loaded: read, fit, write, and say what came of it."""

from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.table import Table
from torch import Tensor
from torch.nn import Module

from calibrant.calibrators import Auto, Calibrator, Chain
from calibrant.catalogue import find_any_calibrator
from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import check_output, standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.reading import read_features, read_predictions, refuse_features
from calibrant.files import MapFile, read_map_file, save_map
from calibrant.files.map_file import MAP_CONTAINER, AnyMap
from calibrant.maps import ChainMap, FitSummary, Identity, Map, Scale
from calibrant.method_text import AnyCalibrator
from calibrant.predictions import Predictions
from calibrant.shown_text import terminal_text

__all__ = ["run_fit"]

_FEW = 6  # learned numbers that are worth printing
_SMALL = 1e-4  # a gradient at which a search may be called converged


def run_fit(method: str, file: Path, names: Names, features: str | None, out: Path) -> None:
    """Carry the request out. All that can be wrong with it is found before the long work."""
    calibrator = find_any_calibrator(method)
    if isinstance(calibrator, Calibrator):
        refuse_features(features, method)
    MAP_CONTAINER.check_path(out)
    check_output(out, [file])
    err = standard_error()
    with warnings_shown(err) as said, stages(err) as stage:
        stage(f"reading {file}")
        predictions = read_predictions(file, names)
        seen = None if isinstance(calibrator, Calibrator) else read_features(file, features, predictions)
        stage(f"fitting {method} on {len(predictions):,} rows")
        fitted = _fit(calibrator, predictions, seen)
        stage(f"writing {out}")
        save_map(fitted, out, fitted_on=predictions, features=seen)
    console = standard_output()
    console.print(f"{calibrator.title} ({method}), fitted on {terminal_text(file.name)}", style="bold")
    console.print(_facts(calibrator, fitted))
    assert fitted.summary is not None
    for note in fitted.summary.notes:
        if note not in said:
            console.print(note)
    console.print(_numbers(read_map_file(out)))
    console.print(
        "These are the rows it was fitted on, which flatters it. Judge it on others: "
        f"calibrant apply {out} TEST -o CALIBRATED, then calibrant evaluate CALIBRATED.",
        style="dim",
    )
    console.print(f"Wrote {out}", style="dim")


def _fit(calibrator: AnyCalibrator, predictions: Predictions, features: Tensor | None) -> AnyMap:
    return calibrator.fit(predictions) if isinstance(calibrator, Calibrator) else calibrator.fit(predictions, features)


def _facts(calibrator: AnyCalibrator, fitted: AnyMap) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("rows", _rows(fitted))
    table.add_row("keeps", _kept(calibrator, fitted))
    for name, summary in _searches(fitted):
        table.add_row(name, _optimum(summary))
    for name, values in fitted.state_dict().items():
        if values.numel() <= _FEW:
            table.add_row(name, ", ".join(f"{value:.6g}" for value in values.reshape(-1).tolist()))
    return table


def _searches(fitted: AnyMap) -> Iterator[tuple[str, FitSummary]]:
    """The search for the optimum, or those of a chain's steps."""
    steps = [step.summary for step in fitted.maps if isinstance(step, Map)] if isinstance(fitted, ChainMap) else []
    fits = [summary for summary in steps if summary is not None]
    yield from ((f"{summary.method}'s optimum", summary) for summary in fits)
    if not fits and fitted.summary is not None:
        yield "optimum", fitted.summary


def _rows(fitted: AnyMap) -> str:
    assert fitted.summary is not None
    return f"{fitted.summary.rows:,}, {fitted.n_classes:,} classes, in {fitted.summary.seconds:.2g} s"


def _kept(calibrator: AnyCalibrator, fitted: AnyMap) -> str:
    steps: list[tuple[AnyCalibrator, Module]] = [(calibrator, fitted)]
    if isinstance(calibrator, Chain) and isinstance(fitted, ChainMap):
        steps = list(zip(calibrator.steps, fitted.maps, strict=True))
    if any(isinstance(step, Auto) and not isinstance(part, Identity | Scale) for step, part in steps):
        return "depends on the method chosen: see below"
    kept = {
        "the predicted class": all(
            step.preserves_accuracy or isinstance(part, Identity | Scale) for step, part in steps
        ),
        "the order of rows by confidence": all(step.preserves_ranking or _keeps_order(part) for step, part in steps),
    }
    sure = [what for what, is_kept in kept.items() if is_kept]
    lost = [what for what, is_kept in kept.items() if not is_kept]
    return "; ".join([" and ".join(sure) or "nothing for sure"] + [f"may change {' and '.join(lost)}"] * bool(lost))


def _keeps_order(part: Module) -> bool:
    """Whether the map, whatever method gave it, keeps the order of rows by confidence."""
    return isinstance(part, Identity) or (isinstance(part, Scale) and part.n_classes == 2)


def _optimum(summary: FitSummary) -> str:
    certificate = summary.certificate
    if certificate is None:
        return "computed, not searched for"
    passes = f"{certificate.passes:.1f} pass{'es' * (certificate.passes != 1)} over {summary.rows:,} rows"
    gradient = abs(certificate.gradient)
    if gradient <= _SMALL:
        return f"converged: gradient {gradient:.1g} after {passes}"
    return f"stopped at gradient {gradient:.1g} after {passes}" + ": see the note" * bool(summary.notes)


def _numbers(file: MapFile) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("on these rows", "before", "after"):
        table.add_column(heading, justify="left" if heading == "on these rows" else "right")
    for name, before in file.document["before"].items():
        table.add_row(name, f"{before:.4f}", f"{file.document['after'][name]:.4f}")
    return table
