"""Inputs and their labels from a file, as a network takes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from calibrant.clamping import InputSpace
from calibrant.cli.networks import Network
from calibrant.errors import FileError, InputError
from calibrant.files.archives import open_npz
from calibrant.files.source import Words, existing_file
from calibrant.inference import CalibrationSamples

__all__ = ["InputFile", "blamed_on"]

_PEAK = 255  # of a pixel in eight bits


@contextmanager
def blamed_on(path: Path, *, unless: str | None = None) -> Iterator[None]:
    """Name the file in what is said about its numbers.

    Args:
        path: The file.
        unless: The argument of errors that are about something else.
    """
    try:
        yield
    except InputError as error:
        is_named = isinstance(error, FileError) or (unless is not None and error.argument == unless)
        raise error if is_named else FileError(f"{path}: ", *error.args) from error


@final
@dataclass(frozen=True)
class InputFile:
    """A NumPy archive of inputs and labels, and what the arrays are called.

    Args:
        path: Ends in ``.npz``.
        inputs: Name of the inputs, (n, ...).
        labels: Name of the labels, (n,).
    """

    path: Path
    inputs: str = "inputs"
    labels: str = "labels"

    def read(self, network: Network, *, pixels: bool, space: InputSpace | None) -> CalibrationSamples:
        """The rows, of the network's own type.

        Args:
            network: Takes them.
            pixels: Whether inputs are stored as whole numbers 0..255, to be scaled into the space's range and
                normalised. A run's network takes what was stored, and needs no such word.
            space: That range and normalisation; None for 0..1.

        Raises:
            FileError: If the file is no such archive, or its numbers cannot be fed to the network.
        """
        file = existing_file(self.path, holding="inputs and labels")
        if file.suffix.lower() != ".npz":
            raise FileError(f"a file of inputs must end in .npz; got {file}. Write one with numpy.savez.")
        content = open_npz(file)
        absent = [name for name in (self.inputs, self.labels) if name not in content.names]
        if absent:
            found = ", ".join(content.names) or "nothing"
            raise FileError(
                f"{file} must have {self.inputs!r} and {self.labels!r}; it has {found}. Name the arrays: --inputs "
                "NAME --labels NAME."
            )
        held = content.read((self.inputs, self.labels), None)
        inputs, labels = held[self.inputs], held[self.labels]
        with blamed_on(file):
            if isinstance(inputs, Words) or isinstance(labels, Words):
                name = self.inputs if isinstance(inputs, Words) else self.labels
                raise InputError(f"{name!r} must be numbers; it is text. Labels are class numbers from 0.")
            return CalibrationSamples.of((_fed(inputs, network, pixels=pixels, space=space), labels))


def _fed(inputs: Tensor, network: Network, *, pixels: bool, space: InputSpace | None) -> Tensor:
    """Inputs as the network takes them; whole numbers that are no pixels are refused where rows are checked."""
    stored = inputs.dtype == torch.uint8
    if pixels and not stored:
        raise InputError(f"inputs must be stored as uint8 for --pixels; got {inputs.dtype}. Leave --pixels out.")
    if network.is_run:
        return inputs.to(network.dtype) if stored or inputs.is_floating_point() else inputs
    if stored and not pixels:
        raise InputError(
            "inputs must be floating-point numbers as the network takes them; got uint8. Give --pixels to scale 0..255 "
            "into 0..1 (or --low and --high) and normalise them by --mean and --std, as in training."
        )
    if stored:
        return _scaled(inputs, space or InputSpace()).to(network.dtype)
    return inputs.to(network.dtype) if inputs.is_floating_point() else inputs


def _scaled(stored: Tensor, space: InputSpace) -> Tensor:
    if not len(stored):
        return stored.float()
    lowest, highest = space.bounds(stored[0].float())
    return torch.addcmul(lowest, stored.float().div_(_PEAK), highest - lowest)
