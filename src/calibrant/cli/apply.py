"""``calibrant apply``: calibrate a file of predictions with a saved map."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from calibrant.cli import options
from calibrant.cli.inputs import Files, Source
from calibrant.cli.options import argument, option
from calibrant.cli.scale import ScaleOptions
from calibrant.errors import Caveat, InputError, warn
from calibrant.text import counted, terminal_text

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.calibrators import TemperatureScaling
    from calibrant.files import MapFile
    from calibrant.files.choose import LoadOptions
    from calibrant.files.save import Applied
    from calibrant.files.save import Scores as ScoresFile

EXAMPLES = """\
calibrant apply map.safetensors test.csv -o calibrated.csv
calibrant apply 'temperature(value=1.5)' test.npz -o calibrated.npz
calibrant apply map.safetensors 'preds/*.parquet' -o calibrated --workers 4"""

_KINDS = {"logits": "logits", "probs": "probabilities"}
_MOST_NAMED = 8


_OUT = "File to write, whose ending decides the format; of several files the folder for them."
_MAP = "Map written by `calibrant fit`, or a given temperature, as in 'temperature(value=1.5)'."


def apply(
    map_file: Annotated[Path, argument("MAP", _MAP)],
    files: Files,
    out: Annotated[Path, option("PATH", _OUT, names=("--out", "-o"))],
    features: options.Features = None,
    given: options.ScoreOptions = options.ScoreOptions(),
    scale: ScaleOptions = ScaleOptions(),
) -> None:
    """Calibrate predictions with a map.

    Logits give logits, and probabilities give probabilities, none of them 0. Labels are not needed; they are copied to
    the output, and so is everything else that the file has for each sample, such as features or weights, which change
    no sample: --weights only names a column that is no score. Columns keep their names and order. Of several files,
    each gives one of the same name in a folder.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output

    if given.missing == "drop":
        raise InputError("--missing must be refuse or keep for apply, whose rows keep their places; got drop.")
    is_one = len(files) == 1 and _is_one_source(files[0])
    if not is_one or (files[0].is_file() and scale.streams(Source.find(files))):
        _apply_to_many(map_file, files, out, features, given, scale, is_one=is_one)
        return
    from calibrant.files import load_features
    from calibrant.files.save import load_scores, save_score_batches, writable_suffix
    from calibrant.maps import Map

    file = files[0]
    writable_suffix(out)
    temperature = _given_temperature(map_file)
    options.check_output(out, [file] if temperature else [map_file, file])
    err = standard_error()
    with print_warnings(err, except_for=Caveat.floored_labels), spinner(err) as stage:
        stage(f"reading {file}")
        chosen = _ChosenMap.read(map_file, temperature)
        loaded = load_scores(file, _reading(given))
        predictions, fitted, method = loaded.predictions, chosen.map_for(loaded, file), chosen.method
        stage(f"calibrating {counted(len(predictions), 'sample')}")
        if isinstance(fitted, Map):
            options.refuse_features(features, method)
            calibrated = fitted.transform(predictions)
        else:
            if loaded.kept is not None:
                raise InputError(f"every row must have scores for {method}, which uses features; some have none.")
            values = load_features(file, name=features or "features", rows=len(predictions))
            calibrated = fitted.transform(predictions, values)
        stage(f"writing {out}")
        applied = save_score_batches(iter([replace(loaded, predictions=calibrated)]), out)
    _print_outcome(standard_output(), counted(applied.samples, "sample"), method, applied)
    standard_output().print(f"Wrote {terminal_text(out)}", style="dim")


def _apply_to_many(
    map_file: Path,
    files: list[Path],
    out: Path,
    features: str | None,
    given: options.ScoreOptions,
    scale: ScaleOptions,
    *,
    is_one: bool,
) -> None:
    """Calibrate files one by one, in other processes if asked to, and large ones some rows at a time."""
    import hashlib

    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.maps import Map
    from calibrant.scale.apply import Target, apply_to_shards, targets

    source = Source.find(files)
    if source.are_states:
        raise InputError("a map must be applied to predictions; got a state, which holds sums.")
    if scale.checkpoint is not None:
        raise InputError("--checkpoint must be left out of apply: run it again, and finished files are left.")
    temperature = _given_temperature(map_file)
    inputs = [*source.paths, *([] if temperature else [map_file])]
    if is_one:
        options.check_output(out, inputs)
        files_out = [Target(source.shards[0], out)]
    else:
        options.check_folder(out)
        files_out = targets(source.shards, out, sources=files)
    err, console = standard_error(), standard_output()
    with print_warnings(err), spinner(err) as stage:
        stage(f"reading {source.name}")
        chosen = _ChosenMap.read(map_file, temperature)
        method = chosen.method
        if chosen.saved is not None and not isinstance(chosen.saved.map, Map):
            raise InputError(f"{method} must be applied to one file in memory, with its features; these are several.")
        options.refuse_features(features, method)
        content = str(map_file).encode() if temperature else map_file.read_bytes()
        reading = replace(_reading(given), labels_needed=False)
        with scale.started() as engine:
            plan, identity = scale.plan(source.shards, reading, None, "test"), hashlib.sha256(content).hexdigest()
            how: dict[str, Any] = {"allow_missing": scale.allow_missing, "engine": engine, "progress": stage}
            applied = apply_to_shards(files_out, chosen.map_for, plan, identity=f"{identity}/{reading}", **how)
        if applied is None:
            raise typer.Exit
        for note in applied.notes:
            warn(note)
    if applied.samples:
        count = f"{counted(applied.samples, 'sample')} of {source.name}"
        _print_outcome(console, count, method, applied)
    for name in applied.missing:
        console.print(f"missing: {terminal_text(name)}", style="yellow")
    if applied.skipped:
        console.print(f"Left as they were, from an earlier run: {counted(len(applied.skipped), 'file')}.")
    console.print(f"Wrote {terminal_text(out)}", style="dim")


def _reading(given: options.ScoreOptions) -> "LoadOptions":
    return replace(replace(given, missing="refuse").as_options(), missing=given.missing)  # type: ignore[arg-type]


def _is_one_source(path: Path) -> bool:
    """Whether a path means one source: a file, also one that is not there, or a folder of Hugging Face datasets."""
    if path.is_dir():
        return any((path / name).is_file() for name in ("state.json", "dataset_info.json", "dataset_dict.json"))
    return path.is_file() or not any(mark in str(path) for mark in "*?[")


@final
@dataclass(frozen=True)
class _ChosenMap:
    """The map that was named: that of a file, or a temperature in its place."""

    name: Path
    saved: "MapFile | None"
    temperature: "TemperatureScaling | None"

    @classmethod
    def read(cls, name: Path, temperature: "TemperatureScaling | None") -> "_ChosenMap":
        from calibrant.files import read_map_file

        return cls(name, None if temperature else read_map_file(name), temperature)

    @property
    def method(self) -> str:
        document = None if self.saved is None else self.saved.document
        return terminal_text(self.name if document is None else document["method"] or document["map"]["kind"])

    def map_for(self, loaded: "ScoresFile", file: Path) -> Any:
        """Return the map for the scores of a file, checked against them; a warning if it was fitted on other scores."""
        import torch

        from calibrant.files.map_file import depends_on_offset
        from calibrant.maps import Map, Scale

        predictions = loaded.predictions
        if self.saved is None:
            assert self.temperature is not None
            number = torch.tensor(self.temperature.value, dtype=torch.float64)
            return Scale(number, n_classes=predictions.n_classes)
        fitted = self.saved.map
        if fitted.n_classes != predictions.n_classes:
            raise InputError(
                f"{file} must have the {fitted.n_classes} classes that {self.name} was fitted for; it has "
                f"{predictions.n_classes}. Fit a map on predictions of the same model."
            )
        fitted_on, now = self.saved.document.get("inputs"), _KINDS[loaded.kind]
        if fitted_on not in {None, now} and isinstance(fitted, Map) and depends_on_offset(fitted, predictions.logits):
            warn(
                f"{self.name} was fitted on {fitted_on}, and {file} has {now}: its result depends on which, so "
                f"these are not the numbers that it was fitted to give. Apply it to {fitted_on}, or fit it on {now}."
            )
        return fitted


def _print_outcome(console: "Console", count: str, method: str, applied: "Applied") -> None:
    with_labels = "with their labels" if applied.labelled else "without labels, as the file has none"
    console.print(f"Calibrated {count} with {method}: {_KINDS[applied.kind]}, {with_labels}.")
    if applied.unscored:
        kept = "kept its place" if applied.unscored == 1 else "kept their places"
        console.print(f"{counted(applied.unscored, 'row')} without scores {kept}, without scores.")
    for text, names in (("Copied unchanged", applied.copied), ("Not copied", applied.left)):
        if names:
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            console.print(
                f"{text}: {', '.join(terminal_text(name) or repr(name) for name in names[:_MOST_NAMED])}{more}."
            )


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
