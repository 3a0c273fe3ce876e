"""Compare other confidences with the softmax's own on the same test samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from calibrant.confidence.confidnet import LearnedConfidence
from calibrant.errors import InputError
from calibrant.evidence import Difference, Estimate, PairedBootstrap, apply_holm, estimate
from calibrant.inference import device_of, extract_logits, forward_errors, frozen, labelled_batches, sample_source
from calibrant.metrics import AURC, AUROC, FPR95, AUPRError
from calibrant.predictions import Predictions, TopLabel

SOFTMAX = "softmax"
METRICS = (AUROC(), AUPRError(), FPR95(), AURC())


@final
@dataclass(frozen=True)
class ConfidenceComparison:
    """How well confidences separate correct from wrong predictions of one network, beside its softmax."""

    n_samples: int
    n_wrong: int
    metrics: Mapping[str, Mapping[str, Estimate]]  # by confidence, the softmax first, then by metric
    differences: Mapping[str, Mapping[str, Difference]]  # from the softmax; corrected for the number of confidences

    @property
    def best(self) -> str:
        """The confidence that is to be used: the one that is clearly better than the softmax by most, else that."""
        better = {name: by["auroc"].value for name, by in self.differences.items() if by["auroc"].side == "better"}
        return max(better, key=lambda name: better[name]) if better else SOFTMAX

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**vars(self), "best": self.best}


def softmax_top_label(model: nn.Module, data: object, *, batch_size: int = 512) -> TopLabel:
    """Return a network's predictions for labelled inputs with its own confidence, in evaluation mode."""
    logits, labels = [], []
    with frozen(model), torch.no_grad():
        batches = labelled_batches(sample_source(data), device=device_of(model), batch_size=batch_size)
        for inputs, classes, _ in batches:
            with forward_errors(model, inputs):
                logits.append(extract_logits(model(inputs)))
            labels.append(classes)
    return Predictions.from_logits(torch.cat(logits), torch.cat(labels)).top


def compare_confidences(
    model: nn.Module,
    confidences: Mapping[str, LearnedConfidence],
    data: object,
    *,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ConfidenceComparison, dict[str, TopLabel]]:
    """Evaluate confidences of a network on samples that were used for nothing else, and return their top labels too.

    Args:
        model: The network.
        confidences: What ``ConfidNet.fit`` or ``TrustScore.fit_network`` made of it, by name.
        data: ``(inputs, labels)``, a ``Dataset`` or a ``DataLoader``.
        resamples: Bootstrap draws, the same for all confidences.
        seed: Random seed of the draws.
        progress: Called with the name of each stage as it begins.

    Example:
        >>> from calibrant.confidence import TrustScore
        >>> inputs, labels = torch.randn(200, 4, generator=torch.manual_seed(0)), torch.arange(200) % 2
        >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
        >>> trust = TrustScore().fit_network(network, (inputs, labels), layer="2")
        >>> compared, _ = compare_confidences(network, {"trust": trust}, (inputs, labels), resamples=100)
        >>> list(compared.metrics), list(compared.metrics["trust"])
        (['softmax', 'trust'], ['auroc', 'aupr_error', 'fpr95', 'aurc'])
    """
    if SOFTMAX in confidences:
        raise InputError(f"the name of a confidence must not be {SOFTMAX!r}, which is the network's own.")
    progress("running the network on the test samples")
    tops = {SOFTMAX: softmax_top_label(model, data)}
    for name, confidence in confidences.items():
        progress(f"evaluating {name}")
        tops[name] = confidence.top_label(data)
    bootstrap = PairedBootstrap(tops[SOFTMAX], METRICS, resamples=resamples, seed=seed)
    values = {name: bootstrap.values(top) for name, top in tops.items()}
    differences: dict[str, dict[str, Difference]] = {name: {} for name in confidences}
    for metric in METRICS:
        plain = {
            name: bootstrap.difference(metric, values[SOFTMAX][metric.name], values[name][metric.name])
            for name in confidences
        }
        for name, difference in apply_holm(metric, plain).items():
            differences[name][metric.name] = difference
    metrics = {name: estimate(top, METRICS, resamples=resamples, seed=seed) for name, top in tops.items()}
    correct = tops[SOFTMAX].correct
    return ConfidenceComparison(len(correct), int((~correct).sum()), metrics, differences), tops
