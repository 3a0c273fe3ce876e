"""Hugging Face: metrics and a fitted map in the Trainer, and calibrated logits in models and pipelines."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from torch import Tensor, nn

from calibrant import catalogue
from calibrant.errors import InputError
from calibrant.files import save_map
from calibrant.integrations import needed
from calibrant.integrations.logging import log_with_diagram
from calibrant.maps import Map
from calibrant.metrics import Metric, Tally
from calibrant.predictions import Predictions

with needed("transformers", "hf"):
    from transformers import TrainerCallback

IGNORED = -100  # label of tokens that do not count
_FILE = "map.safetensors"


@final
class Calibration(TrainerCallback):  # type: ignore[misc, unused-ignore]  # of a package that may be missing
    """Metrics of every evaluation, and a map beside every checkpoint: both ``compute_metrics`` and a callback.

    ``Trainer(…, compute_metrics=calibration, callbacks=[calibration])``. After each evaluation the metrics are among
    those of the Trainer (``eval_ece``, …). A checkpoint that is saved right after an evaluation gets a map fitted on
    its predictions, ``map.safetensors``. At the end the output folder gets the map of the model that the Trainer
    keeps: the best, with ``load_best_model_at_end``, else the last.

    Sequences (n, t, k) count token by token, without labels of -100. Calibration errors of two classes are of the
    predicted class, unlike those of reports.

    Args:
        method: Method of the catalogue, such as ``"temperature"`` or ``"auto"``.
        metrics: Metrics to compute.
        to: Experiment tracker that gets the evaluation with its reliability diagram at the end, as
            :func:`~calibrant.integrations.logging.log_evaluation` takes it.

    Attributes:
        fitted: The last map that was fitted.
        predictions: Predictions of the last evaluation.
    """

    def __init__(
        self,
        method: str = "temperature",
        *,
        metrics: Sequence[str | Metric] = ("accuracy", "ece", "nll", "brier"),
        to: Any = None,
    ) -> None:
        self.method = catalogue.parse_calibrator(method)
        self.metrics = list(map(catalogue.metrics.parse, metrics))
        self.to = to
        self.fitted: Map | None = None
        self.predictions: Predictions | None = None
        self._evaluated_at = -1

    def __call__(self, evaluated: Any) -> dict[str, float]:
        """Return the metrics of an ``EvalPrediction``, by name."""
        self.predictions = predictions_of(evaluated.predictions, evaluated.label_ids)
        return Tally(self.metrics).add(self.predictions).values()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ARG002
        self._evaluated_at = state.global_step

    def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ARG002
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and self._evaluated_at == state.global_step and folder.is_dir():
            self._save(folder)

    def on_train_end(self, args: Any, state: Any, control: Any, **_more: Any) -> None:  # noqa: ARG002
        if not state.is_world_process_zero:
            return
        best = Path(state.best_model_checkpoint or "") / _FILE
        Path(args.output_dir).mkdir(parents=True, exist_ok=True)
        if args.load_best_model_at_end and best.is_file():
            shutil.copyfile(best, Path(args.output_dir) / _FILE)
        else:
            self._save(Path(args.output_dir))
        if self.to is not None and self.predictions is not None:
            log_with_diagram(self.predictions, to=self.to, step=state.global_step)

    def _save(self, folder: Path) -> None:
        if self.predictions is None:
            raise InputError(
                "a map must be fitted on evaluated samples; there were none. Give the Trainer compute_metrics=…, this "
                "same object, an eval_dataset, and an eval_strategy."
            )
        self.fitted = self.method.fit(self.predictions)
        save_map(self.fitted, folder / _FILE, fitted_on=self.predictions)


def compute_metrics(*metrics: str | Metric) -> Any:
    """Return a function for ``Trainer(compute_metrics=…)`` that computes these metrics of the catalogue.

    Example:
        >>> from types import SimpleNamespace
        >>> evaluated = SimpleNamespace(predictions=np.array([[2.0, 0.0], [0.0, 1.0]]), label_ids=np.array([0, 0]))
        >>> {name: round(value, 3) for name, value in compute_metrics("ece", "nll")(evaluated).items()}
        {'ece': 0.425, 'nll': 0.72}
    """
    return Calibration(metrics=metrics).__call__


def predictions_of(logits: Any, labels: Any) -> Predictions:
    """Return the predictions of an evaluation: of samples (n, k), or of the tokens (n, t, k) whose label counts."""
    scores = np.asarray(logits[0] if isinstance(logits, tuple) else logits)
    classes = np.asarray(labels[0] if isinstance(labels, tuple) else labels)
    if scores.ndim < 2 or scores.shape[:-1] != classes.shape:
        raise InputError(
            "logits must have shape (n, k), or (n, t, k) for tokens, and labels the same without k; got "
            f"{scores.shape} and {classes.shape}. Regression and several labels per sample cannot be calibrated."
        )
    counted = classes != IGNORED
    return Predictions.from_logits(scores[counted], classes[counted])


def attach_map(model: nn.Module, fitted: Map) -> Any:
    """Let a model return calibrated logits, in the ``ModelOutput`` that it returns anyway.

    The model stays what it is, so that ``pipeline(…, model=model)`` takes it and gives calibrated probabilities. The
    loss that it computes from labels is that of its own logits, and in training mode nothing changes.

    Args:
        model: A model with one label per sample or token, such as ``AutoModelForSequenceClassification``.
        fitted: A map fitted on its logits.

    Returns:
        A handle, whose ``remove()`` restores the model.
    """
    config = getattr(model, "config", None)
    problem, n_labels = getattr(config, "problem_type", None), getattr(config, "num_labels", fitted.n_classes)
    if problem in {"regression", "multi_label_classification"} or n_labels != fitted.n_classes:
        raise InputError(
            f"the model must choose one of the map's {fitted.n_classes} classes; it has {n_labels} labels"
            f"{f' and is for {problem}' if problem else ''}. Fit the map on predictions of this model."
        )

    def calibrate(module: nn.Module, _inputs: Any, outputs: Any) -> Any:
        if module.training:
            return outputs
        if not isinstance(outputs, Mapping) or not isinstance(outputs.get("logits"), Tensor):
            raise InputError(
                f"the model must return a ModelOutput with logits; got {type(outputs).__name__}. Pass return_dict=True."
            )
        outputs["logits"] = fitted(outputs["logits"])  # type: ignore[index]
        return outputs

    return model.register_forward_hook(calibrate)


__all__ = ["Calibration", "attach_map", "compute_metrics", "predictions_of"]
