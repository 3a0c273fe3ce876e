"""The work of the studio as plain functions: values that JSON can hold go in and come out; no server is needed.

Files and their options are *sources*: see :mod:`calibrant.studio.sources`. An error has the control it is about.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from json import dumps, loads
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.checks import check_known
from calibrant.clamping import NetworkPredictions, NeuralClamping, evaluate_clamping, save_clamped
from calibrant.comparison import compare as compare_methods
from calibrant.comparison import default_methods
from calibrant.errors import CalibrantError, Caveat, FileError, InputError, caught_warnings, ours_in, reading
from calibrant.evaluation import evaluate as evaluate_predictions
from calibrant.evaluation import metrics_for
from calibrant.evidence import report_differences
from calibrant.files import read_map_file, save, save_map
from calibrant.files.choose import choose, suggested_columns
from calibrant.labels import Words
from calibrant.numerics.binning import ON_THE_EDGE
from calibrant.predictions import Predictions, TopLabel, as_risk
from calibrant.report import to_html, to_html_fragment, to_plain
from calibrant.report.clamping import clamping_page
from calibrant.report.comparison import comparison_page
from calibrant.report.evaluation import evaluation_page
from calibrant.report.interactive import comparison_charts, evaluation_charts
from calibrant.report.network_charts import CLAMPING_RECORD, clamping_charts, clamping_record
from calibrant.report.page import Page, sentence
from calibrant.slices import Slice, evaluate_slices, samples_with
from calibrant.studio.sources import (
    CONTROLS,
    EXAMPLES,
    SMALL,
    Parts,
    Source,
    as_probability_of_right,
    baseline_lines,
    in_known_names,
    lines_of,
    load_pair,
    load_parts,
    on_page,
    opened,
    option_words,
    reading_of,
    saved_words,
)
from calibrant.studio.workers import Progress
from calibrant.text import terminal_text, without_middle
from calibrant.training import DIGITS, DIGITS_EPOCHS, train_on_digits

_SHOWN_ROWS, _SHOWN_COLUMNS, _MOST_SAMPLES, _TOP = 5, 12, 200, 3
_STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)  # of δ: few, to save time; of weaker ones it would dominate these images
_LARGEST = 1 << 26  # bytes of a record
_RESAMPLES = 1000  # as on the command line


def preview(source: Source, *, progress: Progress) -> dict[str, Any]:
    """Return the columns of a file and its first rows, and what would be read with these options, or why nothing."""
    progress("training a small network on digits" if source["path"] == SMALL else "reading", None)
    names = ("path", "name", "written", "separator", "labels_file")
    deciding = {name: source[name] for name in names if name in source}
    suffix, is_example = Path(source["path"]).suffix, source["path"] in EXAMPLES
    shown: dict[str, Any] = {"name": source["name"], "is_split": is_example, "suffix": suffix, "controls": CONTROLS}
    shown |= {"names": [], "noun": "column", "columns": [], "error": ""}
    shown |= dict.fromkeys(("chosen", "suggested", "argument"))
    try:
        shown |= _about(dumps(deciding, sort_keys=True))
        chosen = choose(*reading_of(source))
        shown["chosen"] = to_plain(chosen)
        used = dict.fromkeys(name for name in (chosen.labels, chosen.scores[0], chosen.scores[-1]) if name is not None)
        if beyond := tuple(name for name in used if name in shown["names"][_SHOWN_COLUMNS:]):
            shown |= _about(dumps(deciding, sort_keys=True), beyond)
    except CalibrantError as error:
        failure = on_page(error, source)
        if not shown["names"] and failure.argument is None:  # no control would help
            raise failure from error
        if shown["chosen"] is None and shown["names"]:
            shown["suggested"] = to_plain(suggested_columns(opened(deciding)))
        shown |= {"error": str(failure), "argument": failure.argument}
    return shown


@lru_cache(maxsize=4)
def _about(text: str, beyond: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the first columns, after those beyond them that are in use; a worker keeps the last few."""
    source = loads(text)
    content = opened(source)
    shown = [*(name for name in beyond if name in content.names), *content.names[:_SHOWN_COLUMNS]]
    columns = []
    try:
        read = content.read(shown, None)
    except CalibrantError:  # text among them: one by one, each with its own error
        read = {}
    for column in shown:
        try:
            values = read[column] if column in read else content.read([column], column)[column]
        except CalibrantError as error:
            columns.append({"name": column, "error": str(on_page(error, source))})
            continue
        columns.append({"name": in_known_names(column, source), **_described(values)})
    names = [in_known_names(name, source) for name in content.names]
    return {"names": names, "noun": content.noun, "columns": columns}


def check(source: Source, *, baseline: Source | None = None, progress: Progress) -> dict[str, Any]:
    """Load the samples as they would be evaluated, and return how many there are, and how many rows are left out."""
    parts, _ = load_pair(source, baseline, progress)
    return {"n": _sizes(parts), "dropped": parts.dropped}


def _sizes(parts: Parts) -> dict[str, int | None]:
    return {"calibration": None if parts.calibration is None else len(parts.calibration), "test": len(parts.test)}


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


def evaluate(
    source: Source, *, baseline: Source | None = None, n_bins: int = 15, seed: int = 0, progress: Progress
) -> dict[str, Any]:
    """Evaluate the test samples, also against a baseline: report as HTML, its numbers, and what its charts need."""
    made = _evaluated(source, baseline, n_bins, seed, progress)
    if baseline is None:
        lines = lines_of(source, "evaluate", n_bins=n_bins, seed=seed)
    else:
        lines = baseline_lines(source, baseline, n_bins=n_bins, seed=seed, resamples=_RESAMPLES)
    return _answer(made.page, made.charts, made.notes, lines=lines, n=_sizes(made.parts))


def take_home(
    source: Source,
    *,
    baseline: Source | None = None,
    n_bins: int = 15,
    seed: int = 0,
    form: str = "png",
    folder: str,
    progress: Progress,
) -> dict[str, Any]:
    """Save the report of the test samples, its figures as png, svg or pdf, and the samples of a split or a pair."""
    from calibrant.plots import figures, save_figures, slice_figures  # loads matplotlib

    made, out = _evaluated(source, baseline, n_bins, seed, progress), Path(folder)
    parts = made.parts
    (out / "report.html").write_text(to_html(replace(made.page, charts=lambda: made.charts)), encoding="utf-8")
    saved = {"report.html": "report"}
    if parts.calibration is not None or made.other is not None:
        saved |= _save_parts(parts, out, made.other)
    progress("drawing the figures", None)
    drawn = figures(parts.test, n_bins=n_bins, seed=seed, name=source["name"])
    drawn |= slice_figures(parts.test, made.slices, parts.columns, n_bins=n_bins, name=source["name"])
    paths = save_figures(drawn, out, formats=[form])
    return {"files": saved | {path.name: path.stem.replace("_", " ") for path in paths}}


class _Evaluated(NamedTuple):
    parts: Parts
    other: Predictions | TopLabel | None  # of the baseline
    slices: list[Slice]
    page: Page
    charts: dict[str, Any]
    notes: list[str]


def _evaluated(source: Source, baseline: Source | None, n_bins: int, seed: int, progress: Progress) -> _Evaluated:
    def stage(words: str) -> None:
        progress(words, None)

    parts, other = load_pair(source, baseline, progress)
    by, slices, compared = parts.columns, list[Slice](), dict[str, Any]()
    with caught_warnings() as caught:
        if baseline is not None and other is not None:
            stage(f"comparing with {baseline['name']}")
            metrics = metrics_for(parts.test, n_bins=n_bins)
            differences = report_differences(other, parts.test, metrics, resamples=_RESAMPLES, seed=seed)
            compared = {"comparison": differences, "baseline": _title(baseline, source)}
        evaluation = evaluate_predictions(parts.test, n_bins=n_bins, resamples=_RESAMPLES, seed=seed, progress=stage)
        if by:
            slices = evaluate_slices(parts.test, by=by, n_bins=n_bins, resamples=_RESAMPLES, seed=seed, progress=stage)
    reading = " " + " ".join(option_words(as_probability_of_right(source)))  # of confidences
    page = evaluation_page(evaluation, source=source["name"], slices=slices, reading=reading, **compared)
    page, notes = _with_cautions(page, parts)
    charts = evaluation_charts(
        evaluation, parts.test, name=source["name"], slices=slices, by=by, other=other, **compared
    )
    return _Evaluated(parts, other, slices, page, charts, [*notes, *ours_in(caught)])


def _title(baseline: Source, source: Source) -> str:
    """Return the name of the baseline's file, with its columns where both are of one file."""
    columns = next((baseline[name] for name in ("scores", "positive", "confidence") if baseline.get(name)), "")
    is_same_file = baseline["name"] == source["name"]
    return f"{baseline['name']} ({without_middle(columns)})" if columns and is_same_file else baseline["name"]


def _with_cautions(page: Page, parts: Parts) -> tuple[Page, list[str]]:
    """Return a page with the rows that were left out, and the other cautions of reading."""
    dropped = [caution for caution in parts.cautions if caution.caveat is Caveat.rows_dropped]
    return page.with_dropped(dropped, twice=parts.twice), [
        str(caution) for caution in parts.cautions if caution not in dropped
    ]


def _save_parts(parts: Parts, out: Path, other: Predictions | TopLabel | None = None) -> dict[str, str]:
    """Save calibration and test samples, and those of a baseline, as they were used; return the names of the files."""
    named = {"calibration": parts.calibration, "test": parts.test, "baseline": other}
    kept = {part: predictions for part, predictions in named.items() if predictions is not None}
    for part, predictions in kept.items():
        save(predictions, out / f"{part}.npz")
    return {f"{part}.npz": f"{part} samples" for part in kept}


def samples(  # noqa: PLR0913  # each is one way to choose samples
    source: Source,
    *,
    low: float = 0.0,
    high: float = 1.0,
    predicted: int | None = None,
    label: int | None = None,
    correct: bool | None = None,
    within: Mapping[str, str] | None = None,
    of_class: bool = False,
    progress: Progress,
) -> dict[str, Any]:
    """Return test samples with confidence in (low, high] (0 included), least calibrated first: wrong and sure.

    With ``of_class`` the range is of the probability of the second of two classes. ``within`` names a slice: a
    ``column`` that the source is sliced by, and its ``value``.
    """
    parts = load_parts(source, progress)
    test, top = parts.test, parts.test.top
    claims = as_risk(test) if of_class else top
    place = claims.confidence.double() - ON_THE_EDGE  # bins end a little above their edges
    chosen = (place <= high) & ((place > low) | (low == 0))
    if correct is not None:
        chosen &= top.correct == correct
    for wanted, given in ((predicted, "predicted"), (label, "labels")):
        if wanted is not None:
            if not isinstance(test, Predictions):
                raise InputError("only predictions of all classes have classes to select by; these have top labels.")
            chosen &= getattr(test, given) == wanted
    if within is not None:
        column, value = within["column"], within["value"]
        if column not in parts.columns:
            raise InputError(f"the samples must be sliced by {column!r} to be selected by it; they are not.")
        chosen &= samples_with(parts.columns[column], [value])[value]
    places = chosen.nonzero()[:, 0]
    confidence, occurred = claims.confidence[places], claims.correct[places]
    surprise = torch.where(occurred, 1 - confidence, confidence if of_class else 1 + confidence)
    places = places[surprise.argsort(descending=True, stable=True)]
    shown = [_sample(test, int(place), int(parts.places[place])) for place in places[:_MOST_SAMPLES]]
    return {"count": len(places), "correct": int(top.correct[places].sum()), "samples": shown}


def _sample(test: Predictions | TopLabel, place: int, row: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "row": row,
        "confidence": float(test.top.confidence[place]),
        "correct": bool(test.top.correct[place]),
    }
    if isinstance(test, Predictions):
        probs = test[place : place + 1].probs[0]
        largest = probs.topk(min(_TOP, len(probs)))
        classes = [_class_name(test, int(index)) for index in largest.indices]
        described |= {"label": _class_name(test, int(test.labels[place])),
                  "top": [[name, float(p)] for name, p in zip(classes, largest.values, strict=True)]}  # fmt: skip
    return described


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
    """Fit methods on the calibration samples, and evaluate them on the test samples; in folds, if there is no split.

    Confidences are calibrated as the probability of being right. Saved in ``folder``: a map per method, the report,
    the figures, and the samples as they were used.
    """
    parts = load_parts(source, progress)
    if isinstance(parts.test, TopLabel):
        source = as_probability_of_right(source)
        parts = load_parts(source, progress)
    from calibrant.plots import comparison_figures, save_figures  # loads matplotlib

    test, in_folds = parts.test, parts.calibration is None
    calibration = test if in_folds else parts.calibration
    assert isinstance(calibration, Predictions), "as the test samples"
    assert isinstance(test, Predictions), "confidences have become probabilities"
    chosen = [catalogue.parse_calibrator(name) for name in methods or ()] or default_methods(calibration)
    with caught_warnings() as caught:
        comparison = compare_methods(
            calibration, None if in_folds else test, chosen, n_bins=n_bins, seed=seed,
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
    fitted_on, words = Path("calibration.npz"), saved_words(source)
    if in_folds:
        fitted_on, words = Path(source["name"]), option_words(source)
    reading = "".join(f" {word}" for word in words)
    page, notes = _with_cautions(
        comparison_page(comparison, calibration=fitted_on, test=Path("test.npz"), reading=reading), parts
    )
    charts = comparison_charts(comparison, test)
    (out / "report.html").write_text(to_html(replace(page, charts=lambda: charts)), encoding="utf-8")
    return _answer(
        page,
        comparison_charts(comparison, test, shown=[method.name for method in comparison.fitted]),
        [*notes, *ours_in(caught)],
        lines=lines_of(source, "compare", n_bins=n_bins, seed=seed, methods=methods or ()),
        n=_sizes(parts),
        files=files | {"report.html": "report"},
        recommended=comparison.recommended.name,
    )


def clamp(
    *, strengths: list[float] | None = None, n_bins: int = 15, seed: int = 0, folder: str, progress: Progress
) -> dict[str, Any]:
    """Train the network on digits, clamp it, and evaluate it with neither, one, and both of δ and T.

    The answer has the fields of :func:`~calibrant.report.network_charts.clamping_charts`. The clamped network, with its
    weights, and its report are saved in ``folder``.
    """
    strengths = strengths or list(_STRENGTHS)
    method, epochs = NeuralClamping(strength=tuple(strengths), seed=seed), itertools.count(1)

    def after_epoch() -> None:
        progress("training a small network on digits", next(epochs) / DIGITS_EPOCHS)

    with caught_warnings() as caught:
        network = train_on_digits(seed, after_epoch=after_epoch)
        clamped = method.fit(network.model, network.calibration, progress=lambda what, _passes: progress(what, None))
        progress("evaluating", None)
        calibration, test = (
            NetworkPredictions(network.model, part, class_names=DIGITS) for part in (network.calibration, network.test)
        )
        evaluation = evaluate_clamping(
            clamped, calibration.at_zero(), test.at_zero(), test.predictions_of(clamped), n_bins=n_bins, seed=seed
        )
    charts, out = clamping_charts(evaluation, clamped, test), Path(folder)
    page = replace(clamping_page(evaluation, network="calibrant.models:DigitsCNN"), charts=lambda: charts)
    save_clamped(clamped, out / "clamped.safetensors", with_weights=True)
    (out / "report.html").write_text(to_html(page), encoding="utf-8")
    record = clamping_record(page, charts)
    return record | {
        "notes": list(dict.fromkeys((*map(sentence, ours_in(caught)), *record["notes"]))),
        "files": {"clamped.safetensors": "clamped network", "report.html": "report"},
        "lines": _clamping_lines(strengths, n_bins=n_bins, seed=seed),
    }


def clamped(source: Source, *, progress: Progress) -> dict[str, Any]:
    """Return what ``calibrant clamp`` has recorded in its folder; its network is not needed.

    Raises:
        FileError: If the folder has no such record, or one that cannot be read.
    """
    name, path = source["name"], Path(source["path"]) / "charts.json"
    progress(f"reading {name}", None)
    if not path.is_file():
        raise FileError(
            f"{name} must hold charts.json; it does not, as of a fit that did not end or an earlier version. Run the "
            "same calibrant clamp command again: what was fitted is kept."
        )
    with reading(f"{name}/charts.json", "record of calibrant clamp"):
        if path.stat().st_size > _LARGEST:
            raise InputError(f"a record must have at most {_LARGEST:,} bytes; it has {path.stat().st_size:,}.")
        record = loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or record.get("schema") != CLAMPING_RECORD:
            raise InputError(f"a record must have the schema {CLAMPING_RECORD}; this one has another.")
    file = f"{name}/clamped.safetensors"
    python = ("from calibrant.clamping import load_clamped", f"clamped = load_clamped({file!r}, model)  # your network")
    cli = f"calibrant evaluate {quote(f'{name}/after.npz')} --baseline {quote(f'{name}/before.npz')}"
    return record | {"files": {}, "lines": {"cli": cli, "python": "\n".join(python)}}


def _clamping_lines(strengths: Sequence[float], *, n_bins: int, seed: int) -> dict[str, str]:
    """Return command and Python lines that fit and evaluate the same; the demo saves the network and its images."""
    files = "--weights demo/digits-weights.safetensors --data demo/digits-calibration-images.npz"
    given = ",".join(f"{strength:g}" for strength in strengths)
    network = f"calibrant clamp --model calibrant.models:DigitsCNN {files} --test demo/digits-test-images.npz"
    cli = (f"calibrant demo --seed {seed}", f"{network} --strength {given} --bins {n_bins} --seed {seed} -o clamped")
    python = (
        "from calibrant.clamping import NeuralClamping",
        "from calibrant.training import train_on_digits",
        f"network = train_on_digits(seed={seed})",
        f"method = NeuralClamping(strength={tuple(strengths)!r}, seed={seed})",
        "clamped = method.fit(network.model, network.calibration)",
    )
    return {"cli": "\n".join(cli), "python": "\n".join(python)}


def export(*, map_file: str, suffix: str = ".onnx", folder: str, progress: Progress) -> dict[str, Any]:
    """Write a map that a comparison has saved as an ONNX graph or a NumPy module, which run without calibrant."""
    kinds = {".onnx": "ONNX", ".py": "NumPy"}
    check_known(suffix, kinds, "suffix")
    progress("writing", None)
    from calibrant.integrations.onnx import ScoreKind
    from calibrant.integrations.onnx import export as export_map

    saved, out = read_map_file(map_file), Path(folder) / f"{Path(map_file).stem}{suffix}"
    inputs: ScoreKind = saved.document.get("inputs") or "logits"
    export_map(saved.map, out, inputs=inputs, class_names=saved.class_names)
    python = [
        "from calibrant import load_map",
        "from calibrant.integrations.onnx import export",
        f"export(load_map({Path(map_file).name!r}), {out.name!r}, inputs={inputs!r})",
    ]
    cli = f"calibrant export {Path(map_file).name} -o {out.name}"
    return {"files": {out.name: kinds[suffix]}, "lines": {"cli": cli, "python": "\n".join(python)}}


def methods(*, progress: Progress) -> dict[str, Any]:
    """Return the names and titles of all calibration methods."""
    progress("listing", None)
    return {name: method.title for name, method in catalogue.calibrators.items() if name != "chain"}


def _answer(page: Page, charts: dict[str, Any], notes: list[str], **more: Any) -> dict[str, Any]:
    html = to_html_fragment(replace(page, charts=lambda: charts), styled=False)
    return {"html": html, "document": to_plain(page.data()), "charts": charts, "notes": notes, **more}
