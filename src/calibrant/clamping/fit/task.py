"""All that the parts of a fit share: the network, its rows, and how δ and the head may vary."""

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from calibrant.calibrators import Calibrator
from calibrant.clamping.learning.descent import Descent
from calibrant.clamping.learning.freedom import Basis
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.passes import Passes, Precision
from calibrant.clamping.network.first_layer import FirstLayer
from calibrant.clamping.network.input_preparation import InputPreparation
from calibrant.inference import CalibrationSamples
from calibrant.maps import Map
from calibrant.numerics.curvature_memory import CurvatureMemory

__all__ = ["ClampingTask"]


@final
@dataclass(frozen=True, eq=False)
class ClampingTask:
    """A frozen network and the rows to calibrate it on."""

    model: nn.Module
    rows: CalibrationSamples
    basis: Basis
    head: Calibrator
    n_classes: int
    nothing: Tensor  # δ = 0, where the network is
    preparation: InputPreparation
    first_layer: FirstLayer | None
    batch_size: int | None
    precision: Precision

    def passes(self, chosen: Tensor | None = None) -> Passes:
        """Over all rows, or those chosen by position."""
        return Passes(
            self.model,
            self.rows,
            chosen,
            preparation=self.preparation,
            batch_size=self.batch_size,
            precision=self.precision,
            first_layer=self.first_layer,
        )

    def descent(
        self,
        gamma: float,
        chosen: Tensor | None = None,
        *,
        start: Tensor | None = None,
        known: CurvatureMemory | None = None,
    ) -> Descent:
        """A descent on these rows, from δ = 0 unless another start is given."""
        start = self.nothing if start is None else start
        return Descent(self.passes(chosen), self.basis, HeadFit(self.head, gamma), start, known=known)

    def best_head(self, delta: Tensor, gamma: float) -> Map:
        """The head fitted to all rows as they are, moved by δ, in full precision.

        Raises:
            FitError: If it has no optimum there.
        """
        passes = self.passes()
        logits = passes.precise_logits(delta)
        return HeadFit(self.head, gamma).fit(logits, passes.labels, is_moved=bool(delta.any()))

    @property
    def sees_rows_plainly(self) -> bool:
        """Whether δ is learned on the rows as they are, in full precision."""
        return self.preparation.n_views == 1 and self.preparation.augmentation == "none" and self.precision == "float32"
