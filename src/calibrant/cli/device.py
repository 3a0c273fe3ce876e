"""The device that a command computes on."""

import os

import torch

from calibrant.errors import InputError

__all__ = ["chosen_device"]


def chosen_device(name: str | None) -> torch.device:
    """The device of that name; a GPU if there is one, where none or ``auto`` is named.

    Raises:
        InputError: If torch cannot use it here.
    """
    if name is None or name == "auto":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device must be one that torch can use here, such as cpu; got {name!r}.") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    return device
