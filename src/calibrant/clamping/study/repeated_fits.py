"""Several fits of one network on the same rows, each judged on the same others."""

import copy
import dataclasses
import math
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.neural_clamping import NeuralClamping, Progress
from calibrant.clamping.study.forward_runs import ForwardRuns
from calibrant.maps import Map, Scale
from calibrant.predictions import Predictions

__all__ = ["RepeatedFits", "SingleFit"]


class SingleFit(NamedTuple):
    """What one fit gave."""

    delta: Tensor
    head: Map  # on the CPU
    objective: float  # that it minimised, of its rows as they are
    strength: float
    fitted: Predictions  # calibrated, of the rows it was fitted on
    judged: Predictions  # calibrated, of the others

    @property
    def temperature(self) -> float:
        """T; NaN where the head is another map."""
        return float(self.head.temperature) if isinstance(self.head, Scale) else math.nan

    @property
    def norm(self) -> float:
        """‖δ‖."""
        return float(self.delta.double().norm())


@final
class RepeatedFits:
    """Fits variants of a method; where δ is 0 the network does not run again.

    A strength that the method cross-validates is chosen once, here, so that the variants differ in nothing else.

    Args:
        method: What the variants are variants of.
        model: From inputs to logits; comes back as it was.
        calibration: Rows to fit on.
        test: Rows to judge on.
        progress: Called with what is being done and how many passes over the rows the fit at hand took so far.
    """

    def __init__(
        self, method: NeuralClamping, model: nn.Module, calibration: object, test: object, progress: Progress | None
    ) -> None:
        self._model, self._progress = model, progress or (lambda _what, _passes: None)
        size = method.batch_size
        self._judges = ForwardRuns(model, test, space=method.space, batch_size=size)
        self._rows = ForwardRuns(model, calibration, space=method.space, batch_size=size)
        self._strength = self._chosen(method)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many rows are judged, and how many fitted."""
        return len(self._judges), len(self._rows)

    def fit(self, variant: NeuralClamping, told: str) -> SingleFit:
        """One variant; ``told`` stands before what its progress says."""
        if self._strength is not None:
            variant = dataclasses.replace(variant, strength=self._strength)
        if variant.strength == math.inf:
            self._progress(f"{told}: the head alone", 0.0)
            delta = torch.zeros(self._rows.rows.input_shape)
            still = self._rows.at(delta)
            gamma, strength = variant.gammas[0], math.inf
            head = HeadFit(variant.head, gamma).fit(still.logits, still.labels)
        else:
            clamped = variant.fit(
                self._model, self._rows.rows, progress=lambda what, passes: self._progress(f"{told}: {what}", passes)
            )
            assert clamped.summary is not None
            gamma, strength = clamped.summary.gamma, clamped.summary.strength
            delta, head = clamped.delta, copy.deepcopy(clamped.head).cpu()
        fitted, judged = (head.transform(runs.at(delta)) for runs in (self._rows, self._judges))
        objective = Objective(gamma, strength, variant.penalty, variant.clip)
        loss = float(objective.row_losses(fitted.logits.double(), fitted.labels).mean())
        penalty = objective.penalty_of(delta) if bool(delta.any()) else 0.0  # also of an infinite strength
        return SingleFit(delta, head, loss + penalty, strength, fitted, judged)

    def _chosen(self, method: NeuralClamping) -> float | None:
        """The strength for all, where the method would choose one by cross-validation."""
        several = method.strength == "path" or isinstance(method.strength, tuple)
        if not several or method.choose_by != "cross-validated-nll":
            return None
        chosen = method.fit(self._model, self._rows.rows, progress=self._progress)
        assert chosen.summary is not None
        return chosen.summary.strength
