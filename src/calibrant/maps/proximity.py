"""The map that looks at features beside logits: a row far from all calibration rows deserves another confidence."""

from typing import ClassVar, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known
from calibrant.errors import InputError
from calibrant.maps.base import FitSummary, Setting, as_result
from calibrant.maps.learned import Learned, require
from calibrant.maps.log_odds import top_log_odds, with_top_log_odds
from calibrant.maps.surface import Surface
from calibrant.numerics.neighbours import (
    Closeness,
    as_features,
    blocks_of,
    closeness_of,
    nearest_distances,
    unit_rows,
)
from calibrant.numerics.precision import working
from calibrant.predictions import Predictions

__all__ = ["ProximityMap"]


@final
class ProximityMap(Learned):
    """Logits and features in, calibrated logits out; the prediction never changes.

    It holds the features of all calibration rows, in the type they came in, to find each row's nearest neighbours
    among them: 25,000 rows of 2,048 float32 features are 200 MB. A call looks up all its rows at once; of large arrays
    :meth:`transform` takes pieces.

    Built by keyword from ``n_classes``, its buffer, its settings and its part, as maps are.

    Args:
        reference: Features of the calibration rows, of length one, (r, d).
        surface: From log-odds and proximity to log-odds.
        n_classes: Length of a row of logits.
        neighbours: How many count.
        closeness: How their distances become a proximity.
    """

    kind: ClassVar[str] = "proximity"
    reference: Tensor

    def __init__(
        self,
        reference: Tensor,
        surface: Surface,
        *,
        n_classes: int,
        neighbours: int = 10,
        closeness: Closeness = "exp_mean_distance",
    ) -> None:
        super().__init__()
        check_known(closeness, get_args(Closeness), "closeness")
        self.n_classes, self.neighbours, self.closeness = n_classes, neighbours, closeness
        self.surface = surface
        self.summary: FitSummary | None = None
        self.register_buffer("reference", reference.detach())

    def settings(self) -> dict[str, Setting]:
        """What the constructor needs beside the buffer and the part."""
        return {"neighbours": self.neighbours, "closeness": self.closeness}

    def check_numbers(self) -> None:
        rows = len(self.reference) if self.reference.ndim == 2 else 0
        require(rows > 0 and self.reference.shape[1] > 0, "reference must have shape (rows, features)", self.reference)
        if check_at_least(self.neighbours, 1, "neighbours") > rows:
            raise InputError(f"neighbours must be at most the {rows} rows there are; got {self.neighbours}.")
        # Of length one, at least in float32, or of zeros.
        slack = (self.reference.shape[1] + 4) * torch.finfo(torch.float32).eps
        lengths = self.reference.double().square().sum(dim=1)
        require((lengths <= 1 + slack).all(), "rows of the reference must have the length one", lengths)

    def proximity(self, features: Tensor) -> Tensor:
        """How close each row lies to the calibration rows, in 0..1, (..., d) -> (...)."""
        d = self.reference.shape[1]
        if features.shape[-1] != d:
            raise InputError(
                f"this map was fitted on {d} features a row; got {features.shape[-1]}. Take them from the same layer."
            )
        rows = unit_rows(features).to(self.reference).reshape(-1, d)
        distances = nearest_distances(rows, self.reference, self.neighbours)
        return closeness_of(distances, self.closeness).reshape(features.shape[:-1])

    def forward(self, logits: Tensor, features: Tensor) -> Tensor:
        """Calibrated log-probabilities, (..., k) and (..., d) -> (..., k) of the logits' type, or float32."""
        if logits.shape[-1] != self.n_classes:
            raise InputError(
                f"this map was fitted for {self.n_classes} classes; got logits of {logits.shape[-1]}. "
                "Fit it on predictions of the same model."
            )
        if logits.shape[:-1] != features.shape[:-1]:
            raise InputError(
                f"logits and features must describe the same rows; got shapes {tuple(logits.shape)} and "
                f"{tuple(features.shape)}."
            )
        precise = working(logits)
        top = top_log_odds(precise)
        changed = self.surface(top.log_odds.squeeze(-1), self.proximity(features).to(precise))
        return as_result(with_top_log_odds(top, changed.unsqueeze(-1)), logits, keeps_predicted=True)

    @torch.no_grad()
    def transform(self, predictions: Predictions, features: object) -> Predictions:
        """The same rows and labels with calibrated logits.

        Args:
            predictions: Of the model the map was fitted for.
            features: Of the same rows, from the same layer, (n, d).

        Raises:
            InputError: If classes, features or rows do not fit.
        """
        given = as_features(features, rows=len(predictions)).to(predictions.logits.device)
        blocks = blocks_of(len(predictions), self.reference, self.neighbours)
        calibrated = torch.cat([self(predictions.logits[rows], given[rows]) for rows in blocks])
        return predictions.with_logits(calibrated, normalised=True)

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        return f"classes={self.n_classes}, rows={len(self.reference)}, neighbours={self.neighbours}, {self.closeness}"
