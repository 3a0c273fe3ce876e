"""Runs of any training loop: a table that names their predictions, and a function that writes one of them.

A table is a csv file with the columns ``name``, ``calibration`` and ``test``, perhaps ``seed``, and any others as
options; or JSON, one object or a list of them, with the same keys, ``options`` as an object, and perhaps ``weights``,
the name of the weights in its files. Files are named from its folder.
"""

import csv
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from calibrant.atomic import atomic_text
from calibrant.checks import check_at_least, check_known
from calibrant.errors import FileError, InputError, reading
from calibrant.files import save
from calibrant.predictions import Predictions

__all__ = ["save_run"]

RUN_FILE: Final = "run.json"  # a table of one run, in the folder of that run
TABLE_ENDINGS: Final = (".csv", ".json")
_FILES = ("calibration", "test")
_COLUMNS = ("name", "seed", *_FILES)  # of a csv file; others are options
_WEIGHTS = "weights"


class TableRow(NamedTuple):
    """One run of a table: its name, its seed, other options, and the files of its predictions."""

    name: str
    seed: int
    options: dict[str, Any]
    calibration: Path
    test: Path
    weights: str | None


def save_run(
    folder: str | os.PathLike[str],
    *,
    name: str,
    calibration: Predictions,
    test: Predictions,
    seed: int = 0,
    options: Mapping[str, bool | int | float | str | None] | None = None,
) -> Path:
    """Write a run of your own training loop into a folder, for ``calibrant diagnose``.

    Args:
        folder: Folder of this run; it is made. ``calibrant diagnose`` reads it, or the folder that holds several.
        name: The way to train, such as ``"focal"``. Runs of one name and the same options differ in the seed alone.
        calibration: Predictions for samples that the network was not trained on, to fit maps on.
        test: Predictions for others, the same samples, and weights, in every run.
        seed: Random seed of the training.
        options: Other options of the training, by name.

    Returns:
        The folder.

    Example:
        >>> import tempfile, torch
        >>> from calibrant.diagnosis import read_runs
        >>> samples = Predictions.from_logits(torch.eye(3), [0, 1, 2])
        >>> with tempfile.TemporaryDirectory() as runs:
        ...     folder = save_run(f"{runs}/ce-0", name="ce", calibration=samples, test=samples, options={"lr": 0.1})
        ...     read_runs([folder])[0].options
        {'name': 'ce', 'lr': 0.1}
    """
    for part, predictions in (("calibration", calibration), ("test", test)):
        if not isinstance(predictions, Predictions):
            raise InputError(f"{part} must be Predictions of every class; got {type(predictions).__name__}.")
    check_at_least(seed, 0, "seed")
    target = Path(folder)
    if (target / "settings.json").exists():
        raise FileError(f"{target} must not be the folder of a run of calibrant train; it has a settings.json.")
    target.mkdir(parents=True, exist_ok=True)
    row: dict[str, Any] = {"name": name, "seed": seed, "options": dict(options or {})}
    if is_weighted := calibration.weights is not None or test.weights is not None:
        row[_WEIGHTS] = _WEIGHTS
    for part, predictions in (("calibration", calibration), ("test", test)):
        row[part] = f"{part}.npz"
        without = is_weighted and predictions.weights is None
        save(predictions.with_weights([1.0] * len(predictions)) if without else predictions, target / row[part])
    with atomic_text(target / RUN_FILE) as stream:  # last, so that a folder with it is whole
        json.dump(row, stream, indent=2)
    return target


def read_table(path: Path) -> list[TableRow]:
    """Read the runs of a table; a FileError names the row that lacks something, or a file that does not exist."""
    is_csv = path.suffix.lower() == ".csv"
    with reading(path, "CSV file" if is_csv else "JSON file"):
        rows = [_row(path, number, row) for number, row in enumerate(_csv(path) if is_csv else _json(path), 1)]
    if not rows:
        raise FileError(f"{path} must have a row for every run; it has none.")
    return rows


def _csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for row in csv.DictReader(stream):
            if None in row:
                raise FileError(f"{path} must have one heading for each value; a row has more values than headings.")
            known = {key: row.pop(key) for key in _COLUMNS if key in row}
            options = {key: _value(text) for key, text in row.items()}
            yield {**{key: text for key, text in known.items() if text}, "options": options}


def _json(path: Path) -> Iterator[dict[str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    for row in content if isinstance(content, list) else [content]:
        if not isinstance(row, dict) or not isinstance(row.get("options", {}), dict):
            raise FileError(f"{path} must hold objects, one for each run, whose options are an object; got {row!r}.")
        for key in row:
            check_known(key, (*_COLUMNS, "options", _WEIGHTS), "a key of a run")
        yield row


def _value(text: str | None) -> Any:
    """Return an option of a csv file: a whole number, a number, or text; None for an empty cell."""
    for read in (int, float):
        try:
            return read(text or "")
        except ValueError:
            continue
    return text or None


def _row(path: Path, number: int, row: Mapping[str, Any]) -> TableRow:
    missing = [key for key in ("name", *_FILES) if not isinstance(row.get(key), str) or not row[key]]
    if missing:
        raise FileError(
            f"{path} must give every run a name, and the files of its calibration and test predictions; run {number} "
            f"has no {missing[0]}."
        )
    try:
        seed = int(row.get("seed", 0))
    except (TypeError, ValueError):
        raise FileError(f"{path} must give seeds as whole numbers; run {number} has {row['seed']!r}.") from None
    files = {part: path.parent / row[part] for part in _FILES}
    for part, file in files.items():
        if not file.is_file():
            raise FileError(f"{path} must name files from its own folder; run {number} has no {part} file {file}.")
    return TableRow(row["name"], seed, dict(row.get("options", {})), **files, weights=row.get(_WEIGHTS))
