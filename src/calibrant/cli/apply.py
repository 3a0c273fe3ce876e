"""``calibrant apply``: calibrate a file of predictions with a saved map."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli import options
from calibrant.cli.options import argument, option
from calibrant.errors import InputError, terminal_text, warn

if TYPE_CHECKING:
    from calibrant.calibrators import TemperatureScaling
    from calibrant.files import MapFile
    from calibrant.files.map_file import AnyMap
    from calibrant.files.save import Scores

EXAMPLES = """\
calibrant apply map.safetensors test.csv -o calibrated.csv
calibrant apply 'temperature(value=1.5)' test.npz -o calibrated.npz"""

_KINDS = {"logits": "logits", "probs": "probabilities"}
_MOST_NAMED = 8


_MAP = "Map written by `calibrant fit`, or a given temperature, as in 'temperature(value=1.5)'."


def apply(
    map_file: Annotated[Path, argument("MAP", _MAP)],
    file: options.PredictionsFile,
    out: Annotated[Path, option("FILE", "File to write; its ending decides the format.", names=("--out", "-o"))],
    features: options.Features = None,
    given: options.Scores = options.Scores(),
) -> None:
    """Calibrate predictions with a map.

    Logits give logits, and probabilities give probabilities, none of them 0. Labels are not needed; they are copied to
    the output, and so is everything else that the file has for each sample, such as features or weights, which change
    no sample: --weights only names a column that is no score. Columns keep their names and order.
    """
    from dataclasses import replace

    import torch

    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.files import load_features, read_map_file
    from calibrant.files.save import load_scores, save_scores, writable_suffix
    from calibrant.maps import Map, Scale

    writable_suffix(out)
    temperature = _given_temperature(map_file)
    options.check_output(out, [file] if temperature else [map_file, file])
    err = standard_error()
    with print_warnings(err), spinner(err) as stage:
        stage(f"reading {file}")
        saved = None if temperature else read_map_file(map_file)
        loaded = load_scores(file, given.as_options())
        predictions = loaded.predictions
        count = f"{len(predictions):,} sample{'s' * (len(predictions) != 1)}"
        fitted: AnyMap
        if saved is None:
            assert temperature is not None
            method = terminal_text(str(map_file))
            number = torch.tensor(temperature.value, dtype=torch.float64)
            fitted = Scale(number, n_classes=predictions.n_classes)
        else:
            _check_map(saved, loaded, map_file=map_file, file=file)
            method = terminal_text(saved.document["method"] or saved.document["map"]["kind"])
            fitted = saved.map
        stage(f"calibrating {count}")
        if isinstance(fitted, Map):
            options.refuse_features(features, method)
            calibrated = fitted.transform(predictions)
        else:
            values = load_features(file, name=features or "features", rows=len(predictions))
            calibrated = fitted.transform(predictions, values)
        stage(f"writing {out}")
        left = (*loaded.left, *save_scores(replace(loaded, predictions=calibrated), out))
    with_labels = "with their labels" if loaded.labelled else "without labels, as the file has none"
    console = standard_output()
    console.print(f"Calibrated {count} with {method}: {_KINDS[loaded.kind]}, {with_labels}.")
    copied = [name for name in loaded.others if name not in left]
    for text, names in (("Copied unchanged", copied), ("Not copied", list(left))):
        if names:
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            console.print(f"{text}: {', '.join(map(terminal_text, names[:_MOST_NAMED]))}{more}.")
    console.print(f"Wrote {terminal_text(out)}", style="dim")


def _given_temperature(text: Path) -> "TemperatureScaling | None":
    """Return the temperature given in place of a map; None if such a file exists, or it is not a temperature."""
    from calibrant import catalogue
    from calibrant.calibrators import TemperatureScaling

    if text.exists() or not str(text).startswith(f"{TemperatureScaling.name}("):
        return None
    method = catalogue.parse_calibrator(str(text))
    if not isinstance(method, TemperatureScaling) or method.value is None:
        raise InputError(
            f"only a temperature with a value can be applied without a fit, as temperature(value=1.5); got {text}. Fit "
            "others by `calibrant fit`."
        )
    return method


def _check_map(saved: "MapFile", given: "Scores", *, map_file: Path, file: Path) -> None:
    """Check that the map was fitted for these classes, in this order; warn if it was fitted on other scores."""
    from calibrant.files.map_file import depends_on_offset
    from calibrant.maps import Map

    predictions = given.predictions
    if saved.map.n_classes != predictions.n_classes:
        raise InputError(
            f"{file} must have the {saved.map.n_classes} classes that {map_file} was fitted for; it has "
            f"{predictions.n_classes}. Fit a map on predictions of the same model."
        )
    theirs, ours = predictions.class_names, saved.class_names
    if theirs is not None and ours is not None and theirs != ours:
        place = next(number for number, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        same = "the same names in another order: reorder the scores" if set(ours) == set(theirs) else "other names"
        raise InputError(
            f"{file} must have the classes that {map_file} was fitted for; class {place} is {theirs[place]!r} in the "
            f"one and {ours[place]!r} in the other ({same})."
        )
    fitted_on, now = saved.document.get("inputs"), _KINDS[given.kind]
    if fitted_on not in {None, now} and isinstance(saved.map, Map) and depends_on_offset(saved.map, predictions.logits):
        warn(
            f"{map_file} was fitted on {fitted_on}, and {file} has {now}: its result depends on which, so "
            f"these are not the numbers that it was fitted to give. Apply it to {fitted_on}, or fit it on {now}."
        )
