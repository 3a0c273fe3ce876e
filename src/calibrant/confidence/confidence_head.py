"""The small network that tells from a classifier's features how likely its answer is right."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least
from calibrant.confidence.chosen_epoch import ChosenEpoch
from calibrant.errors import InputError
from calibrant.maps import FitSummary
from calibrant.numerics.fast import sigmoid
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions
from calibrant.top_label import TopLabel

__all__ = ["ConfidenceHead", "check_head_sizes"]

_ROWS = 1 << 14  # looked at together where many are


@final
class ConfidenceHead(nn.Module):
    """Features in, the log-odds of a right answer out, (n, d) -> (n,): linear layers with ReLU between them.

    It knows nothing of logits, and no prediction changes. :class:`~calibrant.confidence.LearnedConfidence` puts it
    behind the classifier.

    Args:
        n_features: d.
        layers: Linear ones, the last of which gives the one number.
        units: In each layer but the last.
        seed: Of the first weights; random numbers elsewhere are not moved.

    Raises:
        InputError: If a size is not a whole number from 1.

    Example:
        >>> head = ConfidenceHead(3, layers=2, units=8)
        >>> tuple(head(torch.zeros(5, 3)).shape)
        (5,)
    """

    def __init__(self, n_features: int, *, layers: int = 5, units: int = 400, seed: int = 0) -> None:
        super().__init__()
        self.n_features = check_at_least(n_features, 1, "n_features")
        self.units = check_at_least(units, 1, "units")
        check_at_least(layers, 1, "layers")
        sizes = [self.n_features, *[self.units] * (layers - 1), 1]
        # torch.manual_seed would also seed the GPUs, whose state fork_rng does not keep here.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.summary: FitSummary | None = None
        self.choice: ChosenEpoch | None = None

    def settings(self) -> dict[str, Any]:
        """What the constructor needs beside the weights."""
        return {"n_features": self.n_features, "layers": len(self.layers), "units": self.units}

    def forward(self, features: Tensor) -> Tensor:
        """Log-odds, (n, d) -> (n,), in the type of the head's weights."""
        if features.shape[-1] != self.n_features:
            raise InputError(
                f"this head was fitted on {self.n_features} features a row; got {features.shape[-1]}. Take them from "
                "the same layer of the same network."
            )
        values = features.to(next(self.parameters()).dtype)
        *hidden, last = self.layers
        for layer in hidden:
            values = layer(values).relu()
        return last(values).squeeze(-1)

    @torch.no_grad()
    def confidence(self, features: Tensor) -> Tensor:
        """Between 0 and 1, (n, d) -> (n,), float64: where float32 would round to 1.0, most rows still differ."""
        return sigmoid(self(features).double())

    @torch.no_grad()
    def top_label(self, predictions: Predictions, features: object) -> TopLabel:
        """The network's answers with this confidence in the place of the softmax's.

        Args:
            predictions: Of the classifier; only which of them are right is read.
            features: Of the same rows, from the layer the head was fitted on, (n, d).

        Raises:
            InputError: If the features are not finite, or not of these rows.
        """
        rows = as_features(features, rows=len(predictions)).to(next(self.parameters()).device)
        log_odds = torch.cat([self(part) for part in rows.split(_ROWS)]).double().to(predictions.logits.device)
        return TopLabel(sigmoid(log_odds), predictions.correct, log_odds)

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        return f"features={self.n_features}"


def check_head_sizes(weights: Mapping[str, Tensor], *, n_features: int, layers: int, units: int) -> None:
    """Stored weights are those of a head of these sizes; seen before a head is made, which could be of any size.

    Raises:
        InputError: If they are not.
    """
    check_at_least(layers, 1, "layers")
    sizes = [
        check_at_least(n_features, 1, "n_features"),
        *[check_at_least(units, 1, "units")] * min(layers - 1, len(weights)),
        1,
    ]
    wanted: dict[str, tuple[int, ...]] = {}
    for place, (a, b) in enumerate(pairwise(sizes)):
        wanted |= {f"layers.{place}.weight": (b, a), f"layers.{place}.bias": (b,)}
    if len(weights) != 2 * layers or {name: tuple(each.shape) for name, each in weights.items()} != wanted:
        raise InputError(
            f"the weights must be those of {layers} layers of {units} units on {n_features} features; got others."
        )
