"""What images the networks of runs can take."""

import torch

from calibrant.checks import are_images, check_labels
from calibrant.datasets import Examples
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import InputError

__all__ = ["check_sees_images", "check_suits", "peak_of"]

_IMAGE = 3  # axes: channels, rows, columns


def check_sees_images(run: DiagnosedRun) -> None:
    """A run whose inputs can be shifted: pictures, and not words.

    Raises:
        InputError: If it is of texts, or of plain numbers.
    """
    settings = run.settings
    if settings.n_words is not None or len(settings.input_shape) != _IMAGE:
        kind = "texts" if settings.n_words is not None else f"inputs of shape {settings.input_shape}"
        raise InputError(
            f"a network that is judged on shifted images must take images; {run.path} was trained on {kind} "
            f"({settings.dataset}), which no corruption is made for. Diagnose it without a shift."
        )


def check_suits(examples: Examples, run: DiagnosedRun, what: str) -> None:
    """Images that a run's network can take, with labels that it can give.

    Raises:
        InputError: If they are not.
    """
    check_sees_images(run)
    images, shape = examples.inputs, run.settings.input_shape
    if not are_images(images) or tuple(images.shape[1:]) != shape or images.dtype != torch.uint8 or not len(images):
        raise InputError(
            f"images of a shifted set must be of the size and channels that the networks take, {shape} in uint8, at "
            f"least one; {what} has shape {tuple(images.shape)} in {images.dtype}, and {run.path} cannot take it. "
            "Resize them, or diagnose without them."
        )
    peak = peak_of(run)
    if (most := int(images.max())) > peak:
        raise InputError(
            f"images of a shifted set must lie in 0..{peak}, as the pixels of {run.settings.dataset} do; {what} has "
            f"{most}. Scale them as those are."
        )
    try:
        check_labels(examples.labels, len(run.settings.class_names))
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


def peak_of(run: DiagnosedRun) -> int:
    """What full is, of the pixels that a run saw."""
    scale = run.settings.pixel_scale
    return 255 if scale is None else int(scale["peak"])
