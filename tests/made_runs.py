"""Folders of runs written by hand, as training would have left them, with logits whose truth is known."""

import json

import numpy as np
import torch
from safetensors.torch import save_file

from calibrant import catalogue
from calibrant.files import save
from calibrant.losses import loss_settings
from calibrant.predictions import Predictions
from calibrant.training import Recipe
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import RunSettings

CPU = torch.device("cpu")


def settings_of(loss="ce", seed=0, *, k=4, model="digits_cnn", split="holdout", class_names=None, **recipe):
    chosen = {"epochs": 3, "precision": "float32", "augmentation": "none"} | recipe
    return RunSettings(
        dataset="made",
        data_digest="0123456789abcdef",
        split=split,
        split_seed=0,
        model=model,
        loss=loss_settings(catalogue.parse_any_loss(loss)),
        recipe=Recipe(**chosen, seed=seed),
        input_shape=(1, 8, 8),
        n_words=None,
        class_names=class_names or tuple(f"class {j}" for j in range(k)),
        pixel_scale=None,
    )


def rows_of(n, part, *, k=4, scale=3.0, noise=0.0, seed=0):
    """Labels drawn from a softmax that is the same for all runs; logits too cold by ``scale``, and noisy by run."""
    chance = torch.Generator().manual_seed({"calibration": 1, "test": 2}[part])
    logits = 1.5 * torch.randn(n, k, generator=chance, dtype=torch.float64)
    labels = logits.softmax(1).multinomial(1, generator=chance)[:, 0]
    own = torch.Generator().manual_seed(1000 + seed)
    return Predictions.from_logits(
        scale * (logits + noise * torch.randn(n, k, generator=own, dtype=torch.float64)), labels
    )


def write_run(path, settings, calibration, test, *, records=(), learning=None):
    """A finished run's folder, as training would have left it."""
    RunFolder(path).begin(settings, CPU)
    for name, rows in (("calibration", calibration), ("test", test)):
        named = Predictions.from_logits(rows.logits, rows.labels, class_names=settings.class_names)
        save(named, path / f"{name}.npz")
    (path / "epochs.jsonl").write_text("".join(json.dumps(record.as_dict()) + "\n" for record in records))
    if learning is not None:
        epoch, logit = learning
        np.savez_compressed(
            path / "learning.npz",
            learned_epoch=np.asarray(epoch, dtype=np.int32),
            max_logit=np.asarray(logit, dtype=np.float32),
        )
    save_file({"weight": torch.zeros(1)}, str(path / "weights.safetensors"))
    return path
