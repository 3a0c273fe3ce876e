"""Neural Clamping without a descent: δ from one backward pass, and then the head alone."""

import time

from torch import nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import gathered_warnings
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingSummary
from calibrant.clamping.learning.passes import Passes
from calibrant.clamping.network.device import device_of
from calibrant.clamping.network.frozen import frozen
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.network.probe import looked_through
from calibrant.clamping.network.showing import Showing
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.clamping.theory.starts import DataDrivenStart, Start
from calibrant.errors import InputError
from calibrant.predictions import Predictions

__all__ = ["efficient_clamping"]


def efficient_clamping(
    model: nn.Module,
    data: object,
    *,
    space: InputSpace | None,
    head: Calibrator = TemperatureScaling(),  # noqa: B008  # frozen
    start: Start = DataDrivenStart(),  # noqa: B008  # frozen
    seed: int = 0,
) -> ClampedModel:
    """The start of δ kept as it is, and the head fitted behind it: a forward and backward pass, and a forward one.

    δ̃ raises entropy, which a temperature does as well; nothing makes it lower the log-loss or leave the accuracy
    alone, so compare with the same head at ``ZeroStart()`` on other rows. The summary's strength is 0, as nothing holds
    δ back, or infinity where δ is 0 and this is the head alone.

    Args:
        model: From inputs to logits. Its parameters are not touched; as a part of what is returned, it is in evaluation
            mode from then on.
        data: A pair of inputs and labels, a Dataset or a DataLoader, of rows the network was not trained on.
        space: What the network's inputs are; the theorem needs it.
        head: Fitted to the logits of x + δ.
        start: Where δ is from.
        seed: Of what the start draws.

    Raises:
        InputError: If the data, the space or the network is not what it must be.
        FitError: If the head has no optimum on these rows.

    Example:
        >>> import torch
        >>> network, inputs = nn.Linear(2, 2), 0.1 + 0.8 * torch.rand(500, 2, generator=torch.manual_seed(0))
        >>> network.weight.data = 20 * torch.eye(2)
        >>> labels = torch.multinomial((network(inputs) / 2).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> clamped = efficient_clamping(network, (inputs, labels), space=InputSpace())
        >>> [f"{each:+.1f}" for each in clamped.delta.tolist()], clamped.temperature > 1
        (['+0.1', '-0.1'], True)

    Reference:
        Neural Clamping, Section 4.3, which leaves the details to an appendix.
    """
    for value, kind, name in ((head, Calibrator, "head"), (start, Start, "start")):
        if not isinstance(value, kind):
            raise InputError(f"{name} must be a {kind.__name__}, such as its default; got {value!r}.")
    began = time.perf_counter()
    rows, device = CalibrationRows.of(data), device_of(model)
    with gathered_warnings() as warned, frozen(model):
        looked_through(model, rows)
        delta = start.delta(model, rows, space=space, seed=seed, device=device)
        passes = Passes(model, rows, showing=Showing(space))
        fitted = head.fit(Predictions.from_logits(passes.logits(delta), passes.labels))
    gamma = head.gamma if isinstance(head, TemperatureScaling) and head.criterion == "focal" else 0.0
    summary = ClampingSummary(
        settings={
            "method": "efficient",
            "head": {"method": head.name, **head.settings()},
            "start": start.settings(),
            "seed": seed,
        },
        rows=len(rows),
        seconds=time.perf_counter() - began,
        certificate=None,  # nothing was minimised over δ; the head has its own
        strength=0.0 if delta.any() else float("inf"),
        gamma=gamma,
        notes=tuple(warned),
    )
    return ClampedModel(model, delta, fitted, space=space, summary=summary)
