"""Other confidences than the softmax, on the networks trained with cross-entropy: do they separate errors better?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.confidence import ConfidNet, TrustScore
from calibrant.datasets import Dataset, Samples
from calibrant.datasets.dataset import split_dataset
from calibrant.metrics import aupr_error, aurc, auroc
from calibrant.predictions import Predictions, TopLabel
from calibrant.training import TrainingData, load_network

__all__ = ["confidence_lines"]

# Epochs by what ConfidNet learns from: the rows that trained the network, or those that it has not seen.
EPOCHS = {"train": 40, "meta": 200}


def confidence_lines(
    folders: Sequence[Path], dataset: Dataset, split: str, device: torch.device
) -> list[dict[str, Any]]:
    """AUROC, AUPR of errors and AURC on the test rows, by network, method and rows that it was fitted on."""
    data = TrainingData.of(dataset, split_dataset(dataset, split, seed=0))
    assert data.meta is not None, "the split has rows for learned losses"
    parts = {"train": data.training, "meta": data.meta, "test": data.held_out["test"]}
    lines = []
    for folder in folders:
        network = load_network(folder).to(device)
        seen = {name: _seen(network, part, device) for name, part in parts.items()}
        features, test = seen["test"]
        trust = TrustScore().fit(seen["train"][0], seen["train"][1].labels)
        judged = {("softmax", "none"): test.top, ("trust_score", "train"): trust.top_label(test, features)}
        for rows, epochs in EPOCHS.items():
            head = ConfidNet(epochs=epochs).fit_features(seen[rows][1], seen[rows][0])
            judged["confidnet", rows] = head.top_label(test, features)
        lines += [{"run": folder.name, "method": method, "rows": rows} | _ranked(top)
                  for (method, rows), top in judged.items()]  # fmt: skip
    return lines


@torch.no_grad()
def _seen(network: nn.Module, rows: Samples, device: torch.device) -> tuple[Tensor, Predictions]:
    """What the last layer sees of rows, and what it says."""
    standardise, model = network
    features = torch.cat([model.features(standardise(part.to(device))) for part in rows.inputs.split(1000)])
    return features, Predictions.from_logits(model.head(features), rows.labels.to(device))


def _ranked(top: TopLabel) -> dict[str, float]:
    return {metric.__name__: round(float(metric(top)), 6) for metric in (auroc, aupr_error, aurc)}
