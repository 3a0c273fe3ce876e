"""A network that stands still while something around it is fitted, and then comes back as it was."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from calibrant.errors import CalibrantWarning, InputError

__all__ = ["evaluating", "frozen", "is_exported", "is_training", "set_evaluating", "warn_of_training"]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Within the block: evaluation mode, no parameter asks for a gradient, and δ can, also under ``inference_mode``.

    Afterwards every module's mode and every parameter's ``requires_grad`` are what they were, also if the block ends
    by an exception, and also if the block changed them. Gradients already in ``.grad`` are not touched. A BatchNorm
    without running statistics normalises by the batch in any mode, so that its logits depend on the batch size.

    Args:
        model: Any network; parameters that it shares are frozen wherever they are used.

    Raises:
        InputError: If this is no ``nn.Module``, or its weights were made under ``inference_mode``.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
        >>> with frozen(model):
        ...     print(model[1].training, model[0].weight.requires_grad)
        False False
        >>> print(model[1].training, model[0].weight.requires_grad)
        True True
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be an nn.Module; got {type(model).__name__}. Wrap a function in a module; of an exported "
            "program take .module()."
        )
    modes = [(module, module.training) for module in model.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    if any(each.is_inference() for each in (*model.parameters(), *model.buffers())):
        raise InputError(
            "the network's weights must let gradients through to its inputs; these were made under "
            "torch.inference_mode, and never do. Make the network outside of it."
        )
    gradients = torch.is_grad_enabled()
    try:
        set_evaluating(model)
        for parameter, _ in wanted:
            parameter.requires_grad_(False)
        # Leaving inference_mode alone would switch gradients on.
        with torch.inference_mode(mode=False), torch.set_grad_enabled(gradients):
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in wanted:
            parameter.requires_grad_(requires_grad)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within the block: evaluation mode. Afterwards the modules that were in training mode, and no others, are again.

    Args:
        model: Any network.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(3).eval(), nn.Dropout())
        >>> with evaluating(model):
        ...     print(model[1].training)
        False
        >>> print(model[0].training, model[1].training)
        False True
    """
    in_training = [module for module in model.modules() if module.training]
    try:
        for module in in_training:
            module.training = False
        yield
    finally:
        for module in in_training:
            module.training = True


def set_evaluating(model: nn.Module) -> None:
    """Put every module into evaluation mode.

    Not by ``eval()``: exported modules refuse it, and where it is overridden (weights merged, parts switched)
    ``train()`` need not undo what it did.
    """
    for module in model.modules():
        module.training = False


def is_training(model: nn.Module) -> bool:
    """Whether it is in training mode; what torch.export made has the mode of its export, whatever its flag says."""
    return model.training and not is_exported(model)


def is_exported(model: nn.Module) -> bool:
    """Whether torch.export made it."""
    return isinstance(model, torch.fx.GraphModule) and "train" in vars(model)  # which torch puts there, to refuse it


def warn_of_training(model: nn.Module) -> None:
    """Tell whoever calibrates a network in training mode that it will answer otherwise than it was calibrated.

    Warns:
        CalibrantWarning: If it is in training mode.
    """
    if isinstance(model, nn.Module) and is_training(model):
        warnings.warn(
            "the network is in training mode, and is left so; it was calibrated in evaluation mode. Call eval() on the "
            "clamped model before you use it.",
            CalibrantWarning,
            stacklevel=4,
        )
