"""Check that a network takes the samples and returns logits for their labels, in batches of any size."""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calibrant.checks import check_labels
from calibrant.errors import CalibrantWarning, InputError, in_a_line
from calibrant.inference.network import device_of, is_exported, logits_in
from calibrant.inference.samples import CalibrationSamples

__all__ = ["check_network", "first_inputs"]

_FEW = 16  # samples
# Logits of any real network would hardly be between 0 and 1 and sum to 1 for every sample, to this precision.
_SUMS_TO_ONE = 1e-3
# How far logits may differ with the batch, relative to their range: the effect of a GPU's rounding to ten bits on a
# deep network; or this many roundings of the inputs' or the logits' own type.
_ROUNDING, _ROUNDINGS = 1e-2, 8
_DYNAMIC_EXPORT = "torch.export.export(..., dynamic_shapes=({0: torch.export.Dim('n')},))."


def first_inputs(model: nn.Module, samples: CalibrationSamples) -> Tensor:
    """Return a few inputs on the network's device, (m, ...): at least two if there are, at most a batch."""
    most = min(_FEW, max(samples.batch_size or _FEW, 2))
    few = samples.batches(torch.arange(min(most, len(samples))), device=device_of(model), batch_size=most)
    return torch.cat([inputs for inputs, _ in few])


@torch.no_grad()
def check_network(model: nn.Module, samples: CalibrationSamples, *, batch_size: int | None = None) -> int:
    """Check a network on a few samples and return its number of classes.

    Args:
        model: Frozen, in evaluation mode.
        samples: Inputs and labels.
        batch_size: Batch size that will be used, where that is more than the samples' own.

    Raises:
        InputError: If the network cannot take the inputs, one alone and a batch, or gives no logits, or too few for the
            labels.

    Warns:
        CalibrantWarning: If the logits of a sample depend on the others in its batch.
    """
    if device_of(model).type == "meta":
        raise InputError(
            "the network must have weights; it is on the meta device, where there are none. Give it memory by "
            "model.to_empty(device='cpu'), and load its weights.",
            argument="model",
        )
    inputs = first_inputs(model, samples)
    logits = _logits_of_few(model, inputs)
    if not bool(logits.isfinite().all()):
        raise InputError(
            "the network's logits must be finite; got NaN or infinity. Check its weights and inputs.", argument="model"
        )
    precise = logits.double()
    tolerance = max(_SUMS_TO_ONE, torch.finfo(logits.dtype).eps)
    if bool((precise >= 0).all()) and bool(((precise.sum(dim=1) - 1).abs() < tolerance).all()):
        raise InputError(
            "the network must return logits; got probabilities (nothing below 0, and every row sums to 1). "
            "Leave out its last softmax, or let it return log_softmax.",
            argument="model",
        )
    check_labels(samples.labels, logits.shape[1])
    _check_other_sizes(model, samples, inputs, logits, batch_size)
    return logits.shape[1]


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    logits = logits_in(model(inputs.clone()))  # a copy, for networks that write into their input
    if len(logits) != len(inputs):
        raise InputError(
            f"the network must give one row of logits per input; got {len(logits)} for {len(inputs)}.", argument="model"
        )
    return logits


def _logits_of_few(model: nn.Module, inputs: Tensor) -> Tensor:
    try:
        return _logits(model, inputs)
    except InputError:
        raise
    except Exception as error:  # a network may raise anything
        own = (tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point())
        if (dtype := next(own, inputs.dtype)) != inputs.dtype:
            raise InputError(
                f"inputs must be of the network's own type, {dtype}; got {inputs.dtype}. Convert them to {dtype}, or "
                f"the network with model.to({inputs.dtype})."
            ) from error
        shape = f"(n, {', '.join(map(str, inputs.shape[1:]))})"
        advice = "It must take one tensor of that shape and nothing else: prepare the inputs alike, or wrap it."
        if is_exported(model):
            advice = (
                f"If it was exported for fewer, give a batch_size that it takes; else export it by {_DYNAMIC_EXPORT}"
            )
        raise InputError(
            f"the network must take inputs of shape {shape}; for {len(inputs)} it raised {in_a_line(error)}. {advice}",
            argument="model",
        ) from error


def _check_other_sizes(
    model: nn.Module, samples: CalibrationSamples, few: Tensor, logits: Tensor, batch_size: int | None
) -> None:
    """Check that one sample alone gets the same logits, and that the largest batch is taken."""
    if len(few) == 1:
        return
    try:
        alone = _logits(model, few[:1])
    except Exception as error:
        advice = _batch_norm_advice(model)
        raise InputError(
            f"the network must take any number of samples; it takes {len(few)}, and for one it raised "
            f"{in_a_line(error)}. {advice or f'Name the axes that it squeezes; if it is exported, {_DYNAMIC_EXPORT}'}",
            argument="model",
        ) from error
    tolerance = max(_ROUNDING, _ROUNDINGS * max(torch.finfo(tensor.dtype).eps for tensor in (logits, few)))
    if not float((alone - logits[:1]).abs().max()) <= tolerance * float(logits.max() - logits.min()):
        warnings.warn(
            "the logits of a sample must not depend on the others in its batch; these do, so δ and the head hold only "
            "for batches like those of the fit. "
            + (_batch_norm_advice(model) or "Look for what mixes samples, or for dropout that is always on."),
            CalibrantWarning,
            stacklevel=3,
        )
    for size in {None, batch_size}:
        batch, _ = next(samples.batches(device=few.device, batch_size=size))
        if len(batch) <= len(few):
            continue
        try:
            _logits(model, batch)
        except Exception as error:
            raise InputError(
                f"the network must take a batch of {len(batch)} samples; it takes {len(few)}, and for a batch it "
                f"raised {in_a_line(error)}. Give a smaller batch_size.",
                argument="model",
            ) from error


def _batch_norm_advice(model: nn.Module) -> str:
    """Return what to do about layers that normalise by the batch also in evaluation mode, if there are any."""
    names = [
        name for name, layer in model.named_modules() if isinstance(layer, _BatchNorm) and layer.running_mean is None
    ]
    if not names:
        return ""
    return (
        f"Its BatchNorm {names[0]!r} keeps no running statistics and normalises by the batch: train it with "
        "track_running_stats=True, or use GroupNorm."
    )
