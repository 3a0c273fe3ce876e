"""A network made by a function that the person names."""

import importlib
import sys
from functools import reduce
from pathlib import Path

from torch import nn

from calibrant.checks import check_known
from calibrant.errors import InputError, in_a_line

__all__ = ["KINDS", "made_by"]

KINDS = "package.module:factory, an archive of torch.export (.pt2), or a folder that calibrant train left"


def made_by(text: str) -> nn.Module:
    """What the function makes, or the network itself that stands under that name.

    Args:
        text: ``package.module:factory``; the module is looked for in the current folder, too.

    Raises:
        InputError: If there is no such function, it fails, or it makes something else.
    """
    module_name, _, name = text.partition(":")
    if not name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise InputError(f"--model must be {KINDS}; got {text!r}.")
    found = _found(module_name, name)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise InputError(f"{text} must be a function that makes the network; it is of type {type(found).__name__}.")
    try:
        made = found()
    except Exception as error:
        raise InputError(
            f"{text} must make the network when called without arguments; it raised {in_a_line(error)}. Wrap it in a "
            "function that gives it what it needs."
        ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{text} must make a torch.nn.Module; it gave something of type {type(made).__name__}.")
    return made


def _found(module_name: str, name: str) -> object:
    # The installed command does not look into the current folder by itself.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            where = f"neither in the folder {Path.cwd()} nor installed"
            raise InputError(f"--model must name a module that is there; {error.name} is {where}.") from error
        raise InputError(f"the module {module_name} could not be imported: {in_a_line(error)}.") from error
    first = name.partition(".")[0]
    if not hasattr(module, first):
        own = [each for each, thing in vars(module).items() if getattr(thing, "__module__", "") == module_name]
        check_known(first, [each for each in own if not each.startswith("_")], f"what --model names in {module_name}")
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError as error:
        raise InputError(f"--model must name something in {module_name}; {error}.") from error
