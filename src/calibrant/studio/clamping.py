"""Neural Clamping in the studio: of the small network that ``calibrant demo`` trains, and as a folder records it."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from calibrant.clamping import NetworkPredictions, NeuralClamping, evaluate_clamping, save_clamped
from calibrant.errors import FileError, InputError, caught_warnings, ours_in, reading
from calibrant.report import to_html
from calibrant.report.clamping import clamping_page
from calibrant.report.network_charts import CLAMPING_RECORD, clamping_charts, clamping_record
from calibrant.report.page import sentence
from calibrant.studio.workers import Progress
from calibrant.training import DIGITS, DIGITS_EPOCHS, train_on_digits

_STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)  # few, to save time; of weaker ones δ would dominate these images
_LARGEST = 1 << 26  # bytes of a record


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
        "lines": _lines(strengths, n_bins=n_bins, seed=seed),
    }


def clamped(source: Mapping[str, Any], *, progress: Progress) -> dict[str, Any]:
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
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or record.get("schema") != CLAMPING_RECORD:
            raise InputError(f"a record must have the schema {CLAMPING_RECORD}; this one has another.")
    file = f"{name}/clamped.safetensors"
    python = ("from calibrant.clamping import load_clamped", f"clamped = load_clamped({file!r}, model)  # your network")
    cli = f"calibrant evaluate {quote(f'{name}/after.npz')} --baseline {quote(f'{name}/before.npz')}"
    return record | {"files": {}, "lines": {"cli": cli, "python": "\n".join(python)}}


def _lines(strengths: Sequence[float], *, n_bins: int, seed: int) -> dict[str, str]:
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
