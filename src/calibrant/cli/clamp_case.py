"""What ``calibrant clamp`` was asked for, and the network and rows that this means."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isinf
from pathlib import Path
from typing import Any, final

import torch

from calibrant.clamping import ForwardRuns, NeuralClamping, rows_digest
from calibrant.cli.clamp_method import MethodText, check_start
from calibrant.cli.clamp_space import SpaceText
from calibrant.cli.labelled_inputs import InputFile, blamed_on
from calibrant.cli.networks import Network, read_network
from calibrant.cli.writing import Reports
from calibrant.errors import InputError
from calibrant.inference import network_digest

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
    reports: Reports = field(default_factory=Reports)


@final
@dataclass(frozen=True, eq=False)
class ClampCase:
    """A network, the rows to fit on and those to judge by, and how."""

    network: Network
    calibration: ForwardRuns
    test: ForwardRuns
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
        stage("trying the network")
        runs = partial(
            ForwardRuns, network.model, space=space, batch_size=method.batch_size, class_names=network.class_names
        )
        with blamed_on(request.data, unless="model"):
            calibration = runs(rows[0])
        with blamed_on(request.test):
            shapes = [each.input_shape for each in rows]
            if shapes[0] != shapes[1]:
                wanted, got = (f"(n, {', '.join(map(str, shape))})" for shape in shapes)
                raise InputError(f"inputs must have the shape of those in {request.data}, {wanted}; got {got}.")
            test = runs(rows[1])
        return cls(network, calibration, test, method)

    def settings(self) -> dict[str, Any]:
        """What decides the result."""
        plain = self.method.settings()
        strength = plain["strength"]
        return {
            "network": network_digest(self.network.model),
            "data": rows_digest(self.calibration.samples),
            "test": rows_digest(self.test.samples),
            **plain,
            "strength": "inf" if isinstance(strength, float) and isinf(strength) else strength,
        }
