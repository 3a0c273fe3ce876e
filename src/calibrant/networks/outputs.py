"""The logits in what a network returns, be it a tensor, a tuple or an output with names."""

from collections.abc import Mapping

from torch import Tensor

from calibrant.errors import InputError

__all__ = ["logits_in"]

_ADVICE = "Wrap the network in a module that returns them."


def logits_in(output: object) -> Tensor:
    """The logits, (n, k), as the network gave them.

    A tensor is taken to be them; of a mapping or an output with names (Hugging Face's ModelOutput, torchvision's named
    tuples) it is ``logits``; of a tuple or a list it is the first tensor. Their values are not looked at, so
    probabilities pass.

    Args:
        output: What ``network(inputs)`` returned.

    Raises:
        InputError: If there is no such tensor, or it is not of floating point or not of shape (n, k) with k >= 2.

    Example:
        >>> import torch
        >>> logits_in({"loss": None, "logits": torch.zeros(5, 3)}).shape
        torch.Size([5, 3])
    """
    logits = _found(output)
    if not isinstance(logits, Tensor):
        raise InputError(
            "a network must return logits: a tensor, a tuple whose first tensor they are, or an output with the name "
            f"'logits'; got {_told(output)}. {_ADVICE}"
        )
    if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
        single = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
        advice = "Where it gives one logit z a row, wrap it to give the columns 0 and z." if single else _ADVICE
        raise InputError(
            "a network's logits must be real numbers of shape (n, k), a row an input, with at least two classes; got "
            f"{logits.dtype} of shape {tuple(logits.shape)}. {advice}"
        )
    return logits


def _found(output: object) -> object:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return output.get("logits")
    # Before the tuple: the first of a named one need not be the logits.
    if hasattr(output, "logits"):
        return output.logits
    if isinstance(output, tuple | list):
        return next((each for each in output if isinstance(each, Tensor)), None)
    return None


def _told(output: object) -> str:
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"{kind} of {', '.join(map(repr, output)) or 'nothing'}"
    if isinstance(output, tuple | list) and not hasattr(output, "logits"):
        return f"{kind} of {', '.join(type(each).__name__ for each in output) or 'nothing'}"
    return kind
