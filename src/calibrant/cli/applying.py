"""What ``calibrant apply`` does once torch may be loaded: read, check that the classes agree, calibrate, write."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from calibrant.calibrators import TemperatureScaling
from calibrant.catalogue import find_calibrator
from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import check_output, standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.reading import read_features, refuse_features
from calibrant.errors import CalibrantWarning, InputError
from calibrant.files import MapFile, read_map_file
from calibrant.files.load import Scores, load_scores, save_scores
from calibrant.files.map_file import heeds_offset
from calibrant.files.source import suffix_of
from calibrant.maps import Map, Scale
from calibrant.predictions import Predictions
from calibrant.shown_text import terminal_text

__all__ = ["run_apply"]

_IN_WORDS = {"logits": "logits", "probs": "probabilities"}
_SHOWN = 8


def run_apply(map_file: Path, file: Path, names: Names, features: str | None, out: Path) -> None:
    """Carry the request out."""
    suffix_of(out)
    temperature = _given_temperature(map_file)
    check_output(out, [file] if temperature else [map_file, file])
    err = standard_error()
    with warnings_shown(err), stages(err) as stage:
        stage(f"reading {file}")
        found = None if temperature else read_map_file(map_file)
        kind = names.kind  # the command line offers only these two
        given = load_scores(file, kind=kind, scores=names.scores, labels=names.labels)  # type: ignore[arg-type]
        if found is None:
            assert temperature is not None
            method = terminal_text(str(map_file))
            refuse_features(features, method)
            number = torch.tensor(temperature.value, dtype=torch.float64)
            stage(f"calibrating {len(given.predictions):,} rows")
            calibrated = Scale(number, n_classes=given.predictions.n_classes).transform(given.predictions)
        else:
            method, calibrated = _calibrated(found, given, features, stage, map_file=map_file, file=file)
        stage(f"writing {out}")
        left = (*given.left, *save_scores(replace(given, predictions=calibrated), out))
    what = _IN_WORDS[given.kind]
    labels = "with their labels" if given.labelled else "without labels, as the file has none"
    console = standard_output()
    console.print(f"Calibrated {len(given.predictions):,} rows with {method}: {what}, {labels}.")
    kept = [name for name in given.others if name not in left]
    if kept:
        console.print(f"Carried over as they were: {_listed(kept)}.")
    if left:
        console.print(f"Not carried over: {_listed(left)}.")
    console.print(f"Wrote {terminal_text(out)}", style="dim")


def _given_temperature(text: Path) -> TemperatureScaling | None:
    """The temperature that stands in the place of a map's file, if one does: a file of that name comes first."""
    if text.exists() or not str(text).startswith(f"{TemperatureScaling.name}("):
        return None
    method = find_calibrator(str(text))
    if not isinstance(method, TemperatureScaling) or method.value is None:
        raise InputError(
            f"only a temperature with a value can be applied without a fit, as temperature(value=1.5); got {text}. Fit "
            "others by `calibrant fit`."
        )
    return method


def _calibrated(
    found: MapFile, given: Scores, features: str | None, stage: Callable[[str], None], *, map_file: Path, file: Path
) -> tuple[str, Predictions]:
    """The method's name, and the predictions after its map."""
    _check_classes(found, given.predictions, map_file=map_file, file=file)
    method = terminal_text(found.document["method"] or found.document["map"]["kind"])
    if isinstance(found.map, Map):
        refuse_features(features, method)
        _warn_of_other_inputs(found, given, map_file=map_file, file=file)
        stage(f"calibrating {len(given.predictions):,} rows")
        return method, found.map.transform(given.predictions)
    seen = read_features(file, features, given.predictions)
    stage(f"calibrating {len(given.predictions):,} rows")
    return method, found.map.transform(given.predictions, seen)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(terminal_text, names[:_SHOWN])) + (f" and {more:,} more" if more > 0 else "")


def _warn_of_other_inputs(found: MapFile, given: Scores, *, map_file: Path, file: Path) -> None:
    """Warn if the map was fitted on logits and is given probabilities, or the reverse, and this changes its answers."""
    fitted_on, now = found.document.get("inputs"), _IN_WORDS[given.kind]
    if fitted_on in {None, now} or not isinstance(found.map, Map):
        return
    if heeds_offset(found.map, given.predictions.logits):
        warnings.warn(
            f"{map_file} was fitted on {fitted_on}, and {file} has {now}: this map answers the two differently, so "
            f"what it gives here is not what it was fitted to give. Apply it to {fitted_on}, or fit it on {now}.",
            CalibrantWarning,
            stacklevel=2,
        )


def _check_classes(found: MapFile, given: Predictions, *, map_file: Path, file: Path) -> None:
    """The map was fitted for these classes, in this order.

    Raises:
        InputError: If their number or their names differ.
    """
    if found.map.n_classes != given.n_classes:
        raise InputError(
            f"{file} must have the {found.map.n_classes} classes that {map_file} was fitted for; it has "
            f"{given.n_classes}. Fit a map on predictions of the same model."
        )
    theirs, ours = given.class_names, found.class_names
    if theirs is None or ours is None or theirs == ours:
        return
    place = next(number for number, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    same = "the same names in another order: reorder the scores" if set(ours) == set(theirs) else "other names"
    raise InputError(
        f"{file} must have the classes that {map_file} was fitted for; class {place} is {theirs[place]!r} in the one "
        f"and {ours[place]!r} in the other ({same})."
    )
