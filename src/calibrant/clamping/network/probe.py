"""A first look at a network: does it take these inputs, and give logits for these labels, whatever rows stand by?"""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calibrant.checks import check_labels
from calibrant.clamping.network.input_space import InputSpace
from calibrant.errors import CalibrantWarning, InputError, in_a_line
from calibrant.inference import CalibrationSamples, device_of, is_exported, logits_in

__all__ = ["check_network", "first_inputs"]

_FEW = 16  # rows
# Logits in any use would hardly be between 0 and 1 and add up to 1 in every row, to this precision.
_SUMS_TO_ONE = 1e-3
# How far logits may differ with the batch, relative to their spread: what a deep network makes of a GPU's rounding to
# ten bits; or this many roundings of the inputs' or the logits' own type.
_ROUNDING, _ROUNDINGS = 1e-2, 8
_FREE_EXPORT = "torch.export.export(..., dynamic_shapes=({0: torch.export.Dim('n')},))."


def first_inputs(model: nn.Module, rows: CalibrationSamples) -> Tensor:
    """A few rows where the network is, (m, ...): two or more where there are, and no more than a larger batch."""
    most = min(_FEW, max(rows.batch_size or _FEW, 2))
    few = rows.batches(torch.arange(min(most, len(rows))), device=device_of(model), batch_size=most)
    return torch.cat([inputs for inputs, _ in few])


@torch.no_grad()
def check_network(
    model: nn.Module, rows: CalibrationSamples, space: InputSpace | None = None, *, batch_size: int | None = None
) -> int:
    """How many classes the network knows, once it is known to be usable.

    Args:
        model: Frozen, in evaluation mode.
        rows: Its inputs and their labels.
        space: What the inputs are said to be, if that is known.
        batch_size: Rows that it will be given at a time, where that is more than a batch of the rows.

    Raises:
        InputError: If the network cannot take the inputs, one alone and a batch, or gives no logits, or too few for the
            labels; or if an input lies outside the space.

    Warns:
        CalibrantWarning: If the logits of a row depend on the rows beside it.
    """
    if device_of(model).type == "meta":
        raise InputError(
            "the network must have weights; it is on the meta device, where there are none. Give it memory by "
            "model.to_empty(device='cpu'), and load its weights.",
            argument="model",
        )
    if space is not None:
        for inputs, positions in rows.batches(device="cpu"):
            space.check_holds(inputs, positions)
    inputs = first_inputs(model, rows)
    logits = _logits_of_few(model, inputs)
    if not bool(logits.isfinite().all()):
        raise InputError(
            "the network's logits must be finite; got NaN or infinity. Look at its weights and inputs.",
            argument="model",
        )
    precise = logits.double()
    off = max(_SUMS_TO_ONE, torch.finfo(logits.dtype).eps)
    if bool((precise >= 0).all()) and bool(((precise.sum(dim=1) - 1).abs() < off).all()):
        raise InputError(
            "the network must return logits; got probabilities (nothing below 0, and every row adds up to 1). "
            "Leave out its last softmax, or let it return log_softmax.",
            argument="model",
        )
    check_labels(rows.labels, logits.shape[1])
    _check_other_sizes(model, rows, inputs, logits, batch_size)
    return logits.shape[1]


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    logits = logits_in(model(inputs.clone()))  # a copy, for networks that write into what they are given
    if len(logits) != len(inputs):
        raise InputError(
            f"the network must give a row of logits an input; got {len(logits)} for {len(inputs)}.", argument="model"
        )
    return logits


def _logits_of_few(model: nn.Module, inputs: Tensor) -> Tensor:
    try:
        return _logits(model, inputs)
    except InputError:
        raise
    except Exception as error:  # a network may raise anything
        own = (each.dtype for each in (*model.parameters(), *model.buffers()) if each.is_floating_point())
        if (dtype := next(own, inputs.dtype)) != inputs.dtype:
            raise InputError(
                f"inputs must be of the network's own type, {dtype}; got {inputs.dtype}. Convert them to {dtype}, or "
                f"the network with model.to({inputs.dtype})."
            ) from error
        shape = f"(n, {', '.join(map(str, inputs.shape[1:]))})"
        advice = "It must take one tensor of that shape and nothing else: prepare the inputs alike, or wrap it."
        if is_exported(model):
            advice = f"If it was exported for fewer, give a batch_size that it takes; else export it by {_FREE_EXPORT}"
        raise InputError(
            f"the network must take inputs of shape {shape}; of {len(inputs)} it said: {in_a_line(error)}. {advice}",
            argument="model",
        ) from error


def _check_other_sizes(
    model: nn.Module, rows: CalibrationSamples, few: Tensor, logits: Tensor, batch_size: int | None
) -> None:
    """One row alone gets the same logits, and the largest batch is taken."""
    if len(few) == 1:
        return
    try:
        alone = _logits(model, few[:1])
    except Exception as error:
        raise InputError(
            f"the network must take any number of rows; it takes {len(few)}, and of one it said: {in_a_line(error)}. "
            f"{_of_batch_norm(model) or f'Name the axes that it squeezes; if it is exported, do so by {_FREE_EXPORT}'}",
            argument="model",
        ) from error
    off = max(_ROUNDING, _ROUNDINGS * max(torch.finfo(each.dtype).eps for each in (logits, few)))
    if not float((alone - logits[:1]).abs().max()) <= off * float(logits.max() - logits.min()):
        warnings.warn(
            "the logits of a row must not depend on the rows beside it, and these do, so that δ and the head hold for "
            "batches like those of the fit only. "
            + (_of_batch_norm(model) or "Look for what mixes rows, or for dropout that is always on."),
            CalibrantWarning,
            stacklevel=3,
        )
    for size in {None, batch_size}:
        batch, _ = next(rows.batches(device=few.device, batch_size=size))
        if len(batch) <= len(few):
            continue
        try:
            _logits(model, batch)
        except Exception as error:
            raise InputError(
                f"the network must take a batch, {len(batch)} rows; it takes {len(few)}, and of a batch it said: "
                f"{in_a_line(error)}. Give a smaller batch_size.",
                argument="model",
            ) from error


def _of_batch_norm(model: nn.Module) -> str:
    """What to do about layers that normalise by the batch also in evaluation mode, if there are any."""
    names = [name for name, each in model.named_modules() if isinstance(each, _BatchNorm) and each.running_mean is None]
    if not names:
        return ""
    return (
        f"Its BatchNorm {names[0]!r} keeps no running statistics and normalises by the batch: train it with "
        "track_running_stats=True, or take GroupNorm."
    )
