"""A Lightning callback: evaluate every validation, and leave a fitted map beside the checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.files import save_map
from calibrant.integrations import needed
from calibrant.integrations.logging import log_with_diagram
from calibrant.maps import Map
from calibrant.metrics import Metric, Tally
from calibrant.predictions import Predictions

with needed("lightning", "lightning"):
    try:
        from lightning.pytorch.callbacks import Callback
    except ModuleNotFoundError:  # the same under its older name
        from pytorch_lightning.callbacks import Callback

Scores: TypeAlias = Callable[[Any, Any], tuple[Tensor, Tensor]]


@final
class CalibrationCallback(Callback):  # type: ignore[misc, unused-ignore]  # of a package that may be missing
    """Logs metrics of every validation; at the end fits a map, saves it, and logs the evaluation with its diagram.

    The map is fitted on the validation predictions of the checkpoint that is best, and saved beside it as
    ``NAME.map.safetensors``; without checkpoints on those of the last epoch, as ``map.safetensors`` in the trainer's
    folder. The samples of one epoch are kept in memory, on the CPU, and those of the best one. With several processes
    they are gathered; a sampler that repeats samples to even out the processes makes them count twice. The calibration
    errors of two classes that every validation logs are of the predicted class; those of the evaluation are not.

    Args:
        method: Method of the catalogue, such as ``"temperature"`` or ``"auto"``.
        metrics: Metrics that are logged after every validation, with ``prefix`` before their names.
        prefix: Beginning of the names.
        scores: Function from what ``validation_step`` returned, and the batch, to logits (n, k) and labels (n,). By
            default the step returns the logits, or a dictionary with ``logits`` and, unless the labels are the second
            entry of the batch, ``labels``.

    Attributes:
        fitted: The map, after the fit.
        path: Path of its file.
    """

    def __init__(
        self,
        method: str = "temperature",
        *,
        metrics: Sequence[str | Metric] = ("ece", "nll", "brier"),
        prefix: str = "val_",
        scores: Scores | None = None,
    ) -> None:
        super().__init__()
        self.method = catalogue.parse_calibrator(method)
        self.metrics = list(map(catalogue.metrics.parse, metrics))
        self.prefix, self.scores = prefix, scores or logits_and_labels
        self.fitted: Map | None = None
        self.path: Path | None = None
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._last: Predictions | None = None
        self._best: Predictions | None = None
        self._best_path = ""

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._remember_best(trainer)
        self._batches = []

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_place: int) -> None:  # noqa: ARG002
        logits, labels = self.scores(outputs, batch)
        self._batches.append((logits.detach().float().cpu(), labels.detach().cpu()))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking or not self._batches:
            return
        batches, self._batches = _gathered(self._batches), []
        logits, labels = (torch.cat(columns) for columns in zip(*batches, strict=True))
        self._last = Predictions.from_logits(logits, labels)
        for name, value in Tally(self.metrics).add(self._last).values().items():
            pl_module.log(f"{self.prefix}{name}", value, rank_zero_only=True)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        self._remember_best(trainer)
        chosen = self._last if self._best is None else self._best
        if chosen is None:
            raise InputError(
                "a map must be fitted on validation samples; none were seen. Give the trainer validation data, and a "
                "validation_step that returns logits."
            )
        self.fitted = self.method.fit(chosen)
        if self._best is None:
            self.path = Path(trainer.default_root_dir) / "map.safetensors"
        else:
            self.path = Path(self._best_path).with_suffix(".map.safetensors")
        if trainer.is_global_zero:
            save_map(self.fitted, self.path, fitted_on=chosen)
            if trainer.logger is not None:
                log_with_diagram(chosen, to=trainer.logger, step=trainer.global_step)

    def _remember_best(self, trainer: Any) -> None:
        """Keep the predictions of the last validation if its weights have become the best checkpoint."""
        path = getattr(trainer.checkpoint_callback, "best_model_path", "") or ""
        if path != self._best_path:
            self._best_path, self._best = path, self._last


def logits_and_labels(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Return logits and labels from what a validation step returned and its batch."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else outputs
    labels = outputs.get("labels") if isinstance(outputs, Mapping) else None
    if labels is None:
        labels = (
            batch.get("labels") if isinstance(batch, Mapping) else batch[1] if isinstance(batch, Sequence) else None
        )
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not isinstance(labels, Tensor):
        raise InputError(
            "validation_step must return logits (n, k), or a dictionary with 'logits' and 'labels'; got "
            f"{type(outputs).__name__}. Return them, or give scores=…, a function of its result and the batch."
        )
    return logits, labels


def _gathered(batches: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Return the batches of all processes, in the order of their ranks."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return batches
    everyones: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyones, batches)
    return [batch for one in everyones for batch in one]
