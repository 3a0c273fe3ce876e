"""Neural Clamping of the small network that ``calibrant demo`` trains: what δ and T do, together and apart."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.clamping import (
    CLAMPED,
    NetworkPredictions,
    NeuralClamping,
    clamping_metrics,
    evaluate_clamping,
    save_clamped,
)
from calibrant.comparison import TEMPERATURE, UNCALIBRATED, MethodResult
from calibrant.diagrams import delta_picture
from calibrant.errors import caught_warnings, ours_in
from calibrant.evidence import estimate
from calibrant.maps import Scale
from calibrant.predictions import Predictions
from calibrant.report import to_html, to_plain
from calibrant.report.clamping import clamping_page
from calibrant.report.evaluation import plain_estimates
from calibrant.report.page import sentence
from calibrant.studio.workers import Progress
from calibrant.training import DIGITS, DIGITS_EPOCHS, train_on_digits

_STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)  # few, to save time; of weaker ones δ would dominate these images
_WRONG, _RIGHT = 6, 6  # samples shown


def clamp(
    *, strengths: list[float] | None = None, n_bins: int = 15, seed: int = 0, folder: str, progress: Progress
) -> dict[str, Any]:
    """Train the network on digits, clamp it, and evaluate it with neither, one, and both of δ and T.

    The ``parts`` are the network itself (``none``), temperature scaling (``temperature``), the network at x + δ without
    a temperature (``delta``) and the clamped network (``both``). The clamped network, with its weights, and its report
    are saved in ``folder``. A strength of None is an infinite one, δ = 0.
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
    shown = {
        name: (evaluation.predictions[method.name], method.metrics)
        for name, method in (("none", evaluation.find(UNCALIBRATED)), ("temperature", evaluation.find(TEMPERATURE)))
        if method is not None
    }
    moved = test.at(clamped.delta)
    shown["delta"] = moved, estimate(moved, clamping_metrics(n_bins), resamples=evaluation.resamples, seed=seed)
    shown["both"] = evaluation.predictions[CLAMPED], evaluation.clamped.metrics
    page = clamping_page(evaluation, network="calibrant.models:DigitsCNN")
    save_clamped(clamped, Path(folder) / "clamped.safetensors", with_weights=True)
    (Path(folder) / "report.html").write_text(to_html(page), encoding="utf-8")
    chosen, summary = _chosen(evaluation.predictions[UNCALIBRATED]), evaluation.summary
    picture, alone = delta_picture(clamped, network.test.images[chosen]), evaluation.find(TEMPERATURE)
    samples = [
        {
            "row": row,
            "label": int(network.test.labels[row]),
            "image": picture.inputs[place, 0].tolist(),
            "moved": picture.perturbed[place, 0].tolist(),
            "probs": {name: predictions[row : row + 1].probs[0].tolist() for name, (predictions, _) in shown.items()},
        }
        for place, row in enumerate(chosen.tolist())
    ]
    return {
        "verdict": {"headline": page.verdict.headline, "tone": page.tone},
        "classes": list(DIGITS),
        "parts": {name: plain_estimates(metrics) for name, (_, metrics) in shown.items()},
        "samples": samples,
        "delta": {"values": picture.maps[0].tolist()}
        | {name: getattr(picture, name) for name in ("factor", "limit", "norm", "low", "high")},
        "temperatures": {"both": evaluation.temperature, "alone": _temperature(alone)},
        "path": [{"strength": None, "change": 0.0, "standard_error": 0.0, "norm": 0.0}]
        + [asdict(trial) for trial in summary.trials],
        "strength": to_plain(summary.strength),
        "document": to_plain(page.data()),
        "notes": list(dict.fromkeys(map(sentence, (*ours_in(caught), *page.notes)))),
        "n": {"calibration": len(calibration), "test": len(test)},
        "files": {"clamped.safetensors": "clamped network", "report.html": "report"},
        "lines": _lines(strengths, n_bins=n_bins, seed=seed),
    }


def _temperature(method: MethodResult | None) -> float | None:
    return float(method.map.temperature) if method is not None and isinstance(method.map, Scale) else None


def _chosen(before: Predictions) -> Tensor:
    """Return test samples to show, of as many classes as possible: the surest that are wrong, and right ones."""
    order = before.top.confidence.argsort(descending=True, stable=True)
    wrong, right = (order[before.top.correct[order] == is_right].tolist() for is_right in (False, True))
    labels, found = before.labels.tolist(), []
    for places, count in ((wrong, _WRONG), (right, _RIGHT)):
        first = {labels[place]: place for place in reversed(places)}.values()  # the surest of each class
        others = (place for place in places if place not in first)
        found += [*sorted(first, key=places.index), *others][:count]
    return torch.tensor(found)


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
