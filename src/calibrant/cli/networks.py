"""The network that a command works on: made by a function of one's own, exported, or left by ``calibrant train``."""

import importlib
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from calibrant.bad_file import reading
from calibrant.checks import check_known
from calibrant.clamping import InputSpace
from calibrant.errors import FileError, InputError
from calibrant.sources.formats import existing_file
from calibrant.training import load_network
from calibrant.training.folder import RunFolder

__all__ = ["Network", "read_network"]

_KINDS = "package.module:factory, an archive of torch.export (.pt2), or a folder that calibrant train left"
_FEW = 3  # names in a message


@final
@dataclass(frozen=True, eq=False)
class Network:
    """A network in evaluation mode, and what is known about it."""

    model: nn.Module
    is_run: bool = False  # left by calibrant train: takes pixels as they are stored
    space: InputSpace | None = None  # of a run's pixels
    class_names: tuple[str, ...] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """What its inputs must be."""
        held = (*self.model.parameters(), *self.model.buffers())
        return next((each.dtype for each in held if each.is_floating_point()), torch.float32)


def read_network(text: str, weights: Path | None, device: torch.device) -> Network:
    """The network that a text names, on the device.

    Args:
        text: ``package.module:factory``, of which the module is looked for in the current folder too; the path of a
            ``.pt2`` archive; or a run's folder.
        weights: A safetensors file for what the factory makes; None for the weights it comes with.
        device: Where it is to compute.

    Raises:
        InputError: If there is no such network, or the factory makes something else.
        FileError: If a file or folder is not what it should be.
    """
    path = Path(text)
    is_archive = path.suffix.lower() == ".pt2"
    if weights is not None and (is_archive or path.is_dir()):
        raise InputError(f"--weights must be left out with --model {text}, which has its own.")
    if path.is_dir():
        return _of_run(path, device)
    if is_archive:
        return Network(_still(_exported(path, device)))
    if ":" not in text:
        raise InputError(f"--model must be {_KINDS}; got {text!r}, which is none of them.{_advice(path)}")
    model = _made(text)
    if weights is not None:
        _load_weights(model, weights)
    return Network(_still(model.to(device)))


def _advice(path: Path) -> str:
    if path.suffix == ".py":
        return f" Say which function in it makes the network: {path.stem}:NAME."
    return " Weights alone do not tell what the network is: give them as --weights." if path.is_file() else ""


def _still(model: nn.Module) -> nn.Module:
    # Not by eval(), which exported modules refuse.
    for module in model.modules():
        module.training = False
    return model


def _of_run(folder: Path, device: torch.device) -> Network:
    settings = RunFolder(folder).settings()
    scale = settings.pixel_scale
    space = None if scale is None else InputSpace(high=scale["peak"])
    return Network(load_network(folder).to(device), True, space, settings.class_names)


def _exported(path: Path, device: torch.device) -> nn.Module:
    file = existing_file(path, holding="an exported network")
    with reading(file, "archive of torch.export (.pt2)"), _silent("torch.export"):
        program = torch.export.load(file)
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
    _check_program(program, file)
    return program.module()


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Without what torch logs about a file that it cannot read, which is a page."""
    named = logging.getLogger(logger)
    before, named.disabled = named.disabled, True
    try:
        yield
    finally:
        named.disabled = before


def _check_program(program: torch.export.ExportedProgram, file: Path) -> None:
    """One tensor in, of any number of rows."""
    taken = set(program.graph_signature.user_inputs)
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in taken]
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise FileError(f"{file} must take one tensor of inputs; it takes {len(inputs)} inputs. Wrap it before export.")
    rows: Any = inputs[0].shape[0] if inputs[0].ndim else 1
    if isinstance(rows, int):
        raise FileError(
            f"{file} must take any number of rows; it was exported for {rows} at a time. Export it with "
            "dynamic_shapes=({0: torch.export.Dim('n')},)."
        )


def _made(text: str) -> nn.Module:
    """What the function makes, or the network itself that stands under that name."""
    module_name, _, name = text.partition(":")
    if not name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise InputError(f"--model must be {_KINDS}; got {text!r}.")
    found = _found(module_name, name)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise InputError(f"{text} must be a function that makes the network; it is of type {type(found).__name__}.")
    try:
        made = found()
    except Exception as error:
        raise InputError(
            f"{text} must make the network when called without arguments; it raised {_told(error)}. Wrap it in a "
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
        raise InputError(f"the module {module_name} could not be imported: {_told(error)}.") from error
    first = name.partition(".")[0]
    if not hasattr(module, first):
        own = [each for each, thing in vars(module).items() if getattr(thing, "__module__", "") == module_name]
        check_known(first, [each for each in own if not each.startswith("_")], f"what --model names in {module_name}")
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError as error:
        raise InputError(f"--model must name something in {module_name}; {error}.") from error


def _load_weights(model: nn.Module, path: Path) -> None:
    if path.suffix.lower() != ".safetensors":
        raise FileError(
            f"--weights must end in .safetensors; got {path}. Write them with "
            "safetensors.torch.save_model(network, path)."
        )
    from safetensors.torch import load_file

    file = existing_file(path, holding="a network's weights")
    with reading(file, "safetensors file"):
        stored = load_file(file)
    own = {name: values for name, values in model.state_dict().items() if isinstance(values, Tensor)}
    # Of weights that share memory the file format holds one.
    held = {own[name].data_ptr() for name in stored.keys() & own.keys()}
    missing = [name for name in own if name not in stored and own[name].data_ptr() not in held]
    others = [name for name in stored if name not in own]
    shapes = [name for name in own if name in stored and own[name].shape != stored[name].shape]
    told = [
        f"{len(names)} {what} ({_few(names)})"
        for names, what in ((missing, "missing"), (others, "not of it"), (shapes, "of another shape"))
        if names
    ]
    if told:
        raise FileError(f"{file} must hold the weights of this very network; {', '.join(told)}.")
    model.load_state_dict(stored, strict=False)  # the names were compared


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + ", …" * (len(listed) > _FEW)


def _told(error: Exception) -> str:
    """The kind of error and the first line of what it says."""
    said = (str(error).splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
