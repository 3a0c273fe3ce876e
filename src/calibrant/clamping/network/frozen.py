"""A network that stands still while something around it is fitted, and then comes back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from calibrant.errors import InputError

__all__ = ["frozen"]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Within the block: evaluation mode, and no parameter asks for a gradient.

    Afterwards every module's mode and every parameter's ``requires_grad`` are what they were, also if the block ends
    by an exception, and also if the block changed them. Gradients already in ``.grad`` are not touched. A BatchNorm
    without running statistics normalises by the batch in any mode, so that its logits depend on the batch size.

    Args:
        model: Any network; parameters that it shares are frozen wherever they are used.

    Raises:
        InputError: If this is no ``nn.Module``.

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
    try:
        # Not by eval(): exported modules refuse it, and where it is overridden (weights merged, parts switched) train()
        # need not undo what it did.
        for module, _ in modes:
            module.training = False
        for parameter, _ in wanted:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, requires_grad in wanted:
            parameter.requires_grad_(requires_grad)
