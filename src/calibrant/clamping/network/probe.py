"""A first look at a network: does it take these inputs, and give logits for these labels?"""

import torch
from torch import Tensor, nn

from calibrant.clamping.network.device import device_of
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.network.outputs import logits_in
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.errors import InputError

__all__ = ["first_inputs", "looked_through"]

_FEW = 16  # rows
# Logits in any use would hardly be between 0 and 1 and add up to 1 in every row, to this precision.
_SUMS_TO_ONE = 1e-3
# What normalising in float32 may put outside the range, relative to its ends; far less than a step of 8 bits.
_ROUNDING = 1e-5


def first_inputs(model: nn.Module, rows: CalibrationRows) -> Tensor:
    """A few rows where the network is, (m, ...)."""
    inputs, _ = next(rows.batches(torch.arange(min(_FEW, len(rows))), device=device_of(model), batch_size=_FEW))
    return inputs


@torch.no_grad()
def looked_through(model: nn.Module, rows: CalibrationRows, space: InputSpace | None = None) -> int:
    """How many classes the network knows, once it is known to be usable.

    Args:
        model: Frozen, in evaluation mode.
        rows: Its inputs and their labels.
        space: What the inputs are said to be, if that is known.

    Raises:
        InputError: If the network cannot take the inputs, gives no logits, or too few for the labels; or if an input
            lies outside the space.
    """
    if space is not None:
        _check_inside(rows, space)
    inputs = first_inputs(model, rows)
    weight = next((each for each in model.parameters() if each.is_floating_point()), None)
    if weight is not None and weight.dtype != inputs.dtype and not torch.is_autocast_enabled(inputs.device.type):
        raise InputError(
            f"inputs must be of the network's own type, {weight.dtype}; got {inputs.dtype}. Convert them, or the "
            "network with model.float()."
        )
    try:
        output = model(inputs.clone())
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        raise InputError(
            f"the network must take inputs of shape (n, {', '.join(map(str, rows.input_shape))}); it said: {error}"
        ) from error
    logits = logits_in(output)
    if len(logits) != len(inputs):
        raise InputError(f"the network must give a row of logits an input; got {len(logits)} for {len(inputs)}.")
    if not bool(logits.isfinite().all()):
        raise InputError("the network's logits must be finite; got NaN or infinity. Look at its weights and inputs.")
    precise = logits.double()
    off = max(_SUMS_TO_ONE, torch.finfo(logits.dtype).eps)
    if bool((precise >= 0).all()) and bool(((precise.sum(dim=1) - 1).abs() < off).all()):
        raise InputError(
            "the network must return logits; got probabilities (nothing below 0, and every row adds up to 1). "
            "Leave out its last softmax, or let it return log_softmax."
        )
    n_classes = logits.shape[1]
    if int(rows.labels.max()) >= n_classes:
        raise InputError(
            f"labels must lie in 0..{n_classes - 1} ({n_classes} classes from logits); got {int(rows.labels.max())}."
        )
    return n_classes


def _check_inside(rows: CalibrationRows, space: InputSpace) -> None:
    for inputs, positions in rows.batches(device="cpu"):
        low, high = space.bounds(inputs[0])
        slack = max(_ROUNDING, 2 * torch.finfo(inputs.dtype).eps) * torch.maximum(low.abs(), high.abs()).amax()
        outside = ((inputs < low - slack) | (inputs > high + slack)).flatten(1).any(dim=1)
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            span = f"{float(inputs[row].min()):.4g} to {float(inputs[row].max()):.4g}"
            raise InputError(
                f"inputs must lie in the space's range, {float(low.min()):.4g} to {float(high.max()):.4g} as the "
                f"network takes them; row {int(positions[row])} goes from {span}. Give the low, high, mean and std "
                "that belong to these inputs."
            )
