"""What ``calibrant apply`` does once torch may be loaded: read, check that the classes agree, calibrate, write."""

from dataclasses import replace
from pathlib import Path

from calibrant.cli.notes import warnings_shown
from calibrant.cli.options import Names
from calibrant.cli.output import check_output, standard_error, standard_output
from calibrant.cli.progress import stages
from calibrant.cli.reading import read_features, refuse_features
from calibrant.errors import InputError
from calibrant.maps import Map
from calibrant.predictions import Predictions
from calibrant.sources import MapFile, read_map_file
from calibrant.sources.formats import suffix_of
from calibrant.sources.scores import load_scores, save_scores

__all__ = ["run_apply"]


def run_apply(map_file: Path, file: Path, names: Names, features: str | None, out: Path) -> None:
    """Carry the request out."""
    suffix_of(out)
    check_output(out, [map_file, file])
    err = standard_error()
    with warnings_shown(err), stages(err) as stage:
        stage(f"reading {file}")
        found = read_map_file(map_file)
        kind = names.kind  # the command line offers only these two
        given = load_scores(file, kind=kind, scores=names.scores, labels=names.labels)  # type: ignore[arg-type]
        _check_classes(found, given.predictions, map_file=map_file, file=file)
        method = found.document["method"] or found.document["map"]["kind"]
        if isinstance(found.map, Map):
            refuse_features(features, method)
            stage(f"calibrating {len(given.predictions):,} rows")
            calibrated = found.map.transform(given.predictions)
        else:
            seen = read_features(file, features, given.predictions)
            stage(f"calibrating {len(given.predictions):,} rows")
            calibrated = found.map.transform(given.predictions, seen)
        stage(f"writing {out}")
        save_scores(replace(given, predictions=calibrated), out)
    what = {"logits": "logits", "probs": "probabilities"}[given.kind]
    labels = "with their labels" if given.labelled else "without labels, as the file has none"
    console = standard_output()
    console.print(f"Calibrated {len(given.predictions):,} rows with {method}: {what}, {labels}.")
    console.print(f"Wrote {out}", style="dim")


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
