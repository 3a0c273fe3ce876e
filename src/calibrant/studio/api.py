"""The work of the studio as plain functions: values that JSON can hold go in and come out; no server is needed.

A *source* is a dictionary: ``path`` of the file, the ``name`` to show, when it was last ``written`` (a worker keeps
what it has read), the options of :func:`calibrant.files.load` (``kind``, ``scores``, ``labels``, ``confidence``,
``correct``), and how to ``split`` its samples:

- absent: all samples are test samples;
- ``{"by": "half", "seed": 0}``: a random half to calibrate on, the other to evaluate;
- ``{"by": "column", "column": "split", "calibration": "val", "test": "test"}``: by the values of a column;
- ``{"by": "file", "source": {...}}``: another source to calibrate on, with the same options unless it has its own.

The examples of :data:`EXAMPLES` have no path on the disk, and are split already, whatever ``split`` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from json import dumps, loads
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import existing_file
from calibrant.comparison import compare as compare_methods
from calibrant.comparison import default_methods
from calibrant.datasets import load_resnet110
from calibrant.errors import CalibrantError, FileError, InputError, caught_warnings, ours_in, terminal_text
from calibrant.evaluation import evaluate as evaluate_predictions
from calibrant.files import load, save, save_map
from calibrant.files.choose import LoadOptions, choose
from calibrant.files.load import OPENERS, suffix_of
from calibrant.files.source import Content, open_mapping
from calibrant.labels import Words
from calibrant.predictions import Predictions, TopLabel
from calibrant.report import to_html, to_html_fragment, to_plain
from calibrant.report.comparison import comparison_page
from calibrant.report.evaluation import evaluation_page
from calibrant.report.interactive import comparison_charts, evaluation_charts
from calibrant.report.page import Page
from calibrant.studio import clamping
from calibrant.studio.workers import Progress
from calibrant.training import DIGITS, predict, train_on_digits

RESNET110, SMALL = "example:resnet110", "example:digits"
EXAMPLES = {RESNET110: "ResNet-110 on CIFAR-100 (example)", SMALL: "Small network on digits (example)"}
clamp, clamped = clamping.clamp, clamping.clamped  # tasks like those below
Source: TypeAlias = Mapping[str, Any]
_OPTIONS = ("kind", "scores", "labels", "confidence", "correct")
_SHOWN_ROWS, _SHOWN_COLUMNS, _MOST_SAMPLES, _TOP = 5, 12, 200, 3
_FEWEST = 10  # samples of a part


class Parts(NamedTuple):
    """The samples of a source: to calibrate on, if it is split, and to evaluate."""

    calibration: Predictions | TopLabel | None
    test: Predictions | TopLabel
    places: Tensor  # (n,) row of each test sample in its file


def preview(source: Source, *, progress: Progress) -> dict[str, Any]:
    """Return the columns of a file, its first rows, and for every kind of scores what would be read, or why not."""
    path, name = source["path"], source["name"]
    progress("training a small network on digits" if path == SMALL else "reading", None)
    try:
        content = _opened(path)
    except CalibrantError as error:
        raise FileError(_without_path(str(error), path, name)) from error
    kinds: dict[str, Any] = {}
    for kind in ("logits", "probs", "top-label"):
        try:
            chosen = choose(content, LoadOptions(kind=kind))
        except CalibrantError as error:
            kinds[kind] = {"error": _without_path(str(error), path, name)}
        else:
            kinds[kind] = {"scores": list(chosen.scores), "labels": chosen.labels}
    shown = content.names[:_SHOWN_COLUMNS]
    columns = []
    try:
        read = content.read(shown, None)
    except CalibrantError:  # text among them: one by one, each with its own error
        read = {}
    for column in shown:
        try:
            values = read[column] if column in read else content.read([column], column)[column]
        except CalibrantError as error:
            columns.append({"name": column, "error": _without_path(str(error), path, name)})
            continue
        columns.append({"name": column, **_described(values)})
    return {
        "name": name,
        "is_split": path in EXAMPLES,
        "names": list(content.names),
        "noun": content.noun,
        "class_names": None if content.class_names is None else list(content.class_names),
        "columns": columns,
        "kinds": kinds,
        "recognised": next((kind for kind, found in kinds.items() if "error" not in found), None),
    }


def _opened(path: str) -> Content:
    if path in EXAMPLES:
        _, test = _example(path)
        return open_mapping({"logits": test.logits, "labels": test.labels, "class_names": test.class_names})
    return OPENERS[suffix_of(path)](existing_file(path))


@cache
def _example(path: str) -> tuple[Predictions, Predictions]:
    """Return the calibration and test samples of an example."""
    if path == RESNET110:
        return load_resnet110()
    network = train_on_digits(seed=0)
    calibration, test = (
        Predictions.from_logits(predict(network.model, images), labels, class_names=DIGITS)
        for images, labels in (network.calibration, network.test)
    )
    return calibration, test


def _described(values: Words | Tensor) -> dict[str, Any]:
    """Return shape, kind and first rows of a column; of a short list of values, all."""
    if isinstance(values, Words):
        words = [values.distinct[code] for code in values.codes[:_SHOWN_ROWS].tolist()]
        return {"shape": [len(values.codes)], "type": "text", "first": words, "values": list(values.distinct[:20])}
    first = values[:_SHOWN_ROWS].flatten(1)[:, :_SHOWN_COLUMNS] if values.ndim > 1 else values[:_SHOWN_ROWS]
    distinct = values.unique() if values.ndim == 1 and bool((values == values.long()).all()) else values.new_empty(0)
    return {
        "shape": list(values.shape),
        "type": str(values.dtype).removeprefix("torch."),
        "first": to_plain(first.tolist()),
        "values": distinct.long().tolist() if len(distinct) <= 20 else [],  # also of a CSV file, which has floats only
    }


def evaluate(source: Source, *, n_bins: int = 15, seed: int = 0, progress: Progress) -> dict[str, Any]:
    """Evaluate the test samples: report as HTML, its numbers, and what its charts need."""
    parts = _load(source, progress)
    page, notes, charts = _evaluated(parts, source, n_bins, seed, progress)
    return _answer(
        page, charts, notes,
        lines=_lines(source, "evaluate", n_bins=n_bins, seed=seed),
        n={"calibration": None if parts.calibration is None else len(parts.calibration), "test": len(parts.test)},
    )  # fmt: skip


def take_home(
    source: Source, *, n_bins: int = 15, seed: int = 0, form: str = "png", folder: str, progress: Progress
) -> dict[str, Any]:
    """Save the report of the test samples, its figures as png, svg or pdf, and the samples of both parts of a split."""
    from calibrant.plots import figures, save_figures  # loads matplotlib

    parts, out = _load(source, progress), Path(folder)
    page, _, charts = _evaluated(parts, source, n_bins, seed, progress)
    (out / "report.html").write_text(to_html(replace(page, charts=lambda: charts)), encoding="utf-8")
    saved = {"report.html": "report"} | (_save_parts(parts, out) if parts.calibration is not None else {})
    progress("drawing the figures", None)
    drawn = figures(parts.test, n_bins=n_bins, seed=seed, name=source["name"])
    paths = save_figures(drawn, out, formats=[form])
    return {"files": saved | {path.name: path.stem.replace("_", " ") for path in paths}}


def _evaluated(
    parts: Parts, source: Source, n_bins: int, seed: int, progress: Progress
) -> tuple[Page, list[str], dict[str, Any]]:
    with caught_warnings() as caught:
        evaluation = evaluate_predictions(
            parts.test, n_bins=n_bins, seed=seed, progress=lambda stage: progress(stage, None)
        )
    page = evaluation_page(evaluation, source=source["name"])
    return page, ours_in(caught), evaluation_charts(evaluation, parts.test, name=source["name"])


def _save_parts(parts: Parts, out: Path) -> dict[str, str]:
    """Save calibration and test samples as they were used; return the names of the files."""
    for part, predictions in (("calibration", parts.calibration), ("test", parts.test)):
        if predictions is not None:
            save(predictions, out / f"{part}.npz")
    return {"calibration.npz": "calibration samples", "test.npz": "test samples"}


def samples(
    source: Source,
    *,
    low: float = 0.0,
    high: float = 1.0,
    predicted: int | None = None,
    label: int | None = None,
    correct: bool | None = None,
    progress: Progress,
) -> dict[str, Any]:
    """Return test samples with confidence in (low, high] (0 included), least calibrated first: wrong and sure."""
    parts = _load(source, progress)
    test, top = parts.test, parts.test.top
    chosen = (top.confidence <= high) & ((top.confidence > low) | (low == 0))
    if correct is not None:
        chosen &= top.correct == correct
    for wanted, given in ((predicted, "predicted"), (label, "labels")):
        if wanted is not None:
            if not isinstance(test, Predictions):
                raise InputError("only predictions of all classes have classes to select by; these have top labels.")
            chosen &= getattr(test, given) == wanted
    places = chosen.nonzero()[:, 0]
    surprise = torch.where(top.correct[places], 1 - top.confidence[places], 1 + top.confidence[places])
    places = places[surprise.argsort(descending=True, stable=True)]
    shown = [_sample(test, int(place), int(parts.places[place])) for place in places[:_MOST_SAMPLES]]
    return {"count": len(places), "correct": int(top.correct[places].sum()), "samples": shown}


def _sample(test: Predictions | TopLabel, place: int, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "row": row,
        "confidence": float(test.top.confidence[place]),
        "correct": bool(test.top.correct[place]),
    }
    if isinstance(test, Predictions):
        probs = test[place : place + 1].probs[0]
        largest = probs.topk(min(_TOP, len(probs)))
        classes = [_class_name(test, int(index)) for index in largest.indices]
        found |= {"label": _class_name(test, int(test.labels[place])),
                  "top": [[name, float(p)] for name, p in zip(classes, largest.values, strict=True)]}  # fmt: skip
    return found


def _class_name(test: Predictions, index: int) -> str:
    return terminal_text(test.class_names[index]) if test.class_names else str(index)


def compare(
    source: Source,
    *,
    methods: list[str] | None = None,
    n_bins: int = 15,
    seed: int = 0,
    folder: str,
    progress: Progress,
) -> dict[str, Any]:
    """Fit methods on the calibration samples, and evaluate them on the test samples.

    Saved in ``folder``: a map per method, the report, the figures, and the two parts as they were used.
    """
    from calibrant.plots import comparison_figures, save_figures  # loads matplotlib

    parts = _load(source, progress)
    calibration, test = parts.calibration, parts.test
    if not isinstance(calibration, Predictions) or not isinstance(test, Predictions):
        raise InputError(
            "calibration needs scores of all classes, split into calibration and test samples; "
            + ("choose a split." if calibration is None else "these are top labels only.")
        )
    chosen = [catalogue.parse_calibrator(name) for name in methods or ()] or default_methods(calibration)
    with caught_warnings() as caught:
        comparison = compare_methods(
            calibration, test, chosen, n_bins=n_bins, seed=seed,
            progress=lambda name, done, total: progress(name, done / max(total, 1)),
        )  # fmt: skip
    progress("saving maps and figures", 1.0)
    out = Path(folder)
    files = _save_parts(parts, out)
    for number, method in enumerate(comparison.fitted):
        if method.map is not None:
            save_map(method.map, out / f"map-{number}.safetensors", fitted_on=calibration)
            files[f"map-{number}.safetensors"] = method.name
    drawn = comparison_figures(comparison, test, n_bins=n_bins, name=source["name"])
    files |= {path.name: path.stem.replace("_", " ") for path in save_figures(drawn, out)}
    page = comparison_page(comparison, calibration=Path("calibration.npz"), test=Path("test.npz"))
    charts = comparison_charts(comparison, test)
    (out / "report.html").write_text(to_html(replace(page, charts=lambda: charts)), encoding="utf-8")
    return _answer(
        page,
        comparison_charts(comparison, test, shown=[method.name for method in comparison.fitted]),
        ours_in(caught),
        lines=_lines(source, "compare", n_bins=n_bins, seed=seed, methods=methods or ()),
        n={"calibration": len(calibration), "test": len(test)},
        files=files | {"report.html": "report"},
        recommended=comparison.recommended.name,
    )


def methods(*, progress: Progress) -> dict[str, Any]:
    """Return the names and titles of all calibration methods."""
    progress("listing", None)
    return {name: method.title for name, method in catalogue.calibrators.items() if name != "chain"}


def _answer(page: Page, charts: dict[str, Any], notes: list[str], **more: Any) -> dict[str, Any]:
    html = to_html_fragment(replace(page, charts=lambda: charts), styled=False)
    return {"html": html, "document": to_plain(page.data()), "charts": charts, "notes": notes, **more}


def _load(source: Source, progress: Progress) -> Parts:
    progress("training a small network on digits" if source["path"] == SMALL else f"reading {source['name']}", None)
    try:
        return _loaded(dumps(source, sort_keys=True))
    except CalibrantError as error:
        message = str(error)
        for one in [source, *filter(None, [(source.get("split") or {}).get("source")])]:
            message = _without_path(message, one["path"], one["name"])
        raise FileError(message) from error


@lru_cache(maxsize=4)
def _loaded(text: str) -> Parts:
    """Load and split a source; a worker keeps the last few, since most requests are about the same."""
    source = loads(text)
    if source["path"] in EXAMPLES:
        example = _example(source["path"])
        return Parts(*example, torch.arange(len(example[1])))
    options = {name: source.get(name) for name in _OPTIONS if source.get(name)}
    whole = load(source["path"], **options)
    split, everything = source.get("split"), torch.arange(len(whole))
    if not split:
        return Parts(None, whole, everything)
    if split["by"] == "file":
        other = options | split["source"]
        return Parts(_loaded(dumps(other, sort_keys=True)).test, whole, everything)
    if split["by"] == "half":
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(int(split.get("seed", 0))))
        middle = len(whole) // 2
        calibration, test = order[:middle].sort().values, order[middle:].sort().values
    elif split["by"] != "column":
        raise InputError(f"a split must be by half, column or file; got {split['by']!r}.")
    else:
        calibration, test = (_rows_with(source, split["column"], split[part]) for part in ("calibration", "test"))
    for part, rows in (("calibration", calibration), ("test", test)):
        if len(rows) < _FEWEST:
            raise InputError(f"the split must leave at least {_FEWEST} {part} samples; it leaves {len(rows)}.")
    return Parts(whole[calibration], whole[test], test)


def _rows_with(source: Source, column: str, value: str) -> Tensor:
    """Return the rows where a column has a value, compared as text."""
    content = _opened(source["path"])
    if column not in content.names:
        raise InputError(f"the file must have the {content.noun} {column!r} to split by; it has {len(content.names)}.")
    values = content.read([column], column)[column]
    if isinstance(values, Words):
        codes = [code for code, word in enumerate(values.distinct) if word == value]
        return torch.isin(values.codes, torch.tensor(codes, dtype=torch.int64)).nonzero()[:, 0]
    if values.ndim != 1:
        raise InputError(f"{column!r} must hold one value per sample to split by; its shape is {tuple(values.shape)}.")
    matches = {number for number in values.unique().tolist() if value in {str(number), f"{number:.17g}"}}
    return torch.isin(values, torch.tensor(sorted(matches), dtype=values.dtype)).nonzero()[:, 0]


def _lines(source: Source, function: str, *, n_bins: int, seed: int, methods: Iterable[str] = ()) -> dict[str, str]:
    """Return command and Python lines that give the same numbers.

    They read the user's files where these can be split so, else the parts as they can be downloaded.
    """
    given = {name: source[name] for name in _OPTIONS if source.get(name)}
    split, names = source.get("split") or {}, ",".join(methods)
    both = ("calibration", "test") if function == "compare" else ("test",)
    files = [source["name"]]
    before: list[str] = []  # commands
    if source["path"] in EXAMPLES:
        start = "demo/resnet110/" if source["path"] == RESNET110 else "demo/digits-"
        given, files, before = {}, [f"{start}{part}.npz" for part in both], ["calibrant demo"]
    elif split.get("by") == "file":
        files = [split["source"]["name"], source["name"]][-len(both) :]
    elif split:
        given, files, before = {}, [f"{part}.npz" for part in both], [f"# {_DOWNLOADED}"]
    words = [f"--{value}" if name == "kind" else f"--{name} {quote(value)}" for name, value in given.items()]
    words += [f"--methods {quote(names)}"] if names else []
    cli = ["calibrant", function, *map(quote, files), *words, f"--bins {n_bins}", f"--seed {seed}"]
    chosen = f", [{', '.join(f'catalogue.parse_calibrator({name!r})' for name in methods)}]" if names else ""
    python = [
        f"from calibrant import {'catalogue, ' * bool(names)}{function}, load",
        *_loading_lines(source, both),
        f"{function}({', '.join(both)}{chosen}, n_bins={n_bins}, seed={seed})",
    ]
    return {"cli": "\n".join([*before, " ".join(cli)]), "python": "\n".join(python)}


_DOWNLOADED = "calibration.npz and test.npz are under Take home."


def _loading_lines(source: Source, parts: Sequence[str]) -> list[str]:
    """Return Python lines that load the parts named; calibration samples come first, if at all."""
    given = {name: source[name] for name in _OPTIONS if source.get(name)}
    split, options = source.get("split") or {}, "".join(f", {name}={value!r}" for name, value in given.items())
    whole = f"load({source['name']!r}{options})"
    if source["path"] == RESNET110:
        return ["from calibrant.datasets import load_resnet110", "calibration, test = load_resnet110()"]
    if source["path"] == SMALL:
        return [
            "from calibrant import Predictions",
            "from calibrant.training import DIGITS, predict, train_on_digits",
            "model, *parts = train_on_digits(seed=0)",
            "calibration, test = (",
            "    Predictions.from_logits(predict(model, images), labels, class_names=DIGITS)",
            "    for images, labels in parts",
            ")",
        ]
    if split.get("by") == "half":
        return [
            "import torch",
            f"whole = {whole}",
            f"order = torch.randperm(len(whole), generator=torch.Generator().manual_seed({int(split.get('seed', 0))}))",
            "calibration, test = (whole[half.sort().values] for half in order.tensor_split([len(whole) // 2]))",
        ]
    if split.get("by") == "column":
        return [f"# {_DOWNLOADED}", *(f"{part} = load('{part}.npz')" for part in parts)]
    lines = [f"test = {whole}"]
    if split.get("by") == "file" and len(parts) > 1:
        own = {**given, **{name: split["source"][name] for name in _OPTIONS if split["source"].get(name)}}
        options = "".join(f", {name}={value!r}" for name, value in own.items())
        lines.insert(0, f"calibration = load({split['source']['name']!r}{options})")
    return lines


def _without_path(message: str, path: str, name: str) -> str:
    """Return a message with the name that the user knows in place of the path of the stored copy."""
    return message.replace(path, name)
