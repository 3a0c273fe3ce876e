"""What ``calibrant clamp`` was asked for, and the network and rows that this means."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isinf
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from calibrant.clamping import CalibrationRows, NeuralClamping
from calibrant.clamping.clamped.clamped_file import network_digest
from calibrant.clamping.network.device import device_of
from calibrant.clamping.network.frozen import frozen
from calibrant.clamping.network.outputs import logits_in
from calibrant.clamping.network.probe import looked_through
from calibrant.cli.clamp_folder import digest_of
from calibrant.cli.clamp_method import MethodText, check_start
from calibrant.cli.clamp_space import SpaceText
from calibrant.cli.labelled_inputs import InputFile, blamed_on
from calibrant.cli.networks import Network, read_network
from calibrant.cli.output import check_drawing
from calibrant.errors import InputError
from calibrant.numerics.precision import working
from calibrant.predictions import Predictions

__all__ = ["ClampCase", "ClampRequest"]


@final
@dataclass(frozen=True)
class ClampRequest:
    """What the person asked for."""

    model: str
    data: Path
    test: Path
    out: Path
    weights: Path | None = None
    inputs: str = "inputs"
    labels: str = "labels"
    pixels: bool = False
    space: SpaceText = field(default_factory=SpaceText)
    method: MethodText = field(default_factory=MethodText)
    device: str = "auto"
    n_bins: int = 15
    resamples: int = 500
    with_weights: bool = False
    json: Path | None = None
    markdown: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"

    def __post_init__(self) -> None:
        check_drawing(self.figure_format, self.theme)


@final
@dataclass(frozen=True, eq=False)
class ClampCase:
    """A network, the rows to fit on and those to judge by, and how."""

    network: Network
    calibration: CalibrationRows
    test: CalibrationRows
    method: NeuralClamping

    @classmethod
    def of(cls, request: ClampRequest, device: torch.device, stage: Callable[[str], None]) -> "ClampCase":
        """All that can be wrong with it is found here."""
        stage(f"loading the network {request.model}")
        network = read_network(request.model, request.weights, device)
        space = request.space.space(known=network.space, is_run=network.is_run, pixels=request.pixels)
        method = request.method.method(space)
        check_start(method)
        rows = []
        for path in (request.data, request.test):
            stage(f"reading {path}")
            file = InputFile(path, request.inputs, request.labels)
            rows.append(file.read(network, pixels=request.pixels, space=space))
        calibration, test = rows
        stage("trying the network")
        with frozen(network.model):
            with blamed_on(request.data, unless=("the network", "a network")):
                looked_through(network.model, calibration, space)
            with blamed_on(request.test):
                if test.input_shape != calibration.input_shape:
                    raise InputError(
                        f"inputs must have the shape of those in {request.data}, (n, "
                        f"{', '.join(map(str, calibration.input_shape))}); got (n, "
                        f"{', '.join(map(str, test.input_shape))})."
                    )
                looked_through(network.model, test, space)
        return cls(network, calibration, test, method)

    def settings(self) -> dict[str, Any]:
        """What decides the result."""
        plain = self.method.settings()
        strength = plain["strength"]
        return {
            "network": network_digest(self.network.model),
            "data": digest_of(self.calibration),
            "test": digest_of(self.test),
            **plain,
            "strength": "inf" if isinstance(strength, float) and isinf(strength) else strength,
        }

    def predictions(self, model: nn.Module, rows: CalibrationRows, path: Path) -> Predictions:
        """Of the network, or of the clamped one."""
        device, logits = device_of(model), []
        with frozen(model), torch.no_grad():
            for inputs, _ in rows.batches(device=device, batch_size=self.method.batch_size):
                # A copy, for networks that write into what they are given.
                logits.append(working(logits_in(model(inputs.clone()))).cpu())
        with blamed_on(path):
            names = self.network.class_names
            return Predictions.from_logits(torch.cat(logits), rows.labels, class_names=names)
