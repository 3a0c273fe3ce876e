"""The network that a command works on: made by a function of one's own, exported, or left by ``calibrant train``."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from calibrant.bad_file import reading
from calibrant.clamping import InputSpace
from calibrant.cli.factory import KINDS, made_by
from calibrant.cli.weights import load_weights
from calibrant.errors import FileError, InputError
from calibrant.files.source import existing_file
from calibrant.inference import set_evaluating
from calibrant.training import load_network
from calibrant.training.folder import RunFolder

__all__ = ["Network", "read_network"]


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
        return Network(_evaluating(_exported(path, device)))
    if ":" not in text:
        raise InputError(f"--model must be {KINDS}; got {text!r}, which is none of them.{_advice(path)}")
    model = made_by(text)
    if weights is not None:
        load_weights(model, weights)
    return Network(_evaluating(model.to(device)))


def _advice(path: Path) -> str:
    if path.suffix == ".py":
        return f" Say which function in it makes the network: {path.stem}:NAME."
    return " Weights alone do not tell what the network is: give them as --weights." if path.is_file() else ""


def _evaluating(model: nn.Module) -> nn.Module:
    set_evaluating(model)
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
    """Without what torch logs about a file that it cannot read, which is a page, and warns of in its own reader."""
    named = logging.getLogger(logger)
    before, named.disabled = named.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")  # of torch 2.11
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
