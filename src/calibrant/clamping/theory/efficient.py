"""Neural Clamping without a descent: δ from one backward pass, and then the head alone."""

import time

from torch import nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import gathered_warnings
from calibrant.checks import check_seed
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingSummary, caveats_of
from calibrant.clamping.learning.passes import Passes
from calibrant.clamping.network.input_preparation import InputPreparation
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.network.probe import check_network
from calibrant.clamping.theory.starts import DataDrivenStart, Start
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples, frozen, warn_if_training
from calibrant.predictions import Predictions

__all__ = ["efficient_clamping"]


def efficient_clamping(
    model: nn.Module,
    data: object,
    *,
    space: InputSpace | None = None,
    head: Calibrator = TemperatureScaling(),  # noqa: B008  # frozen
    start: Start = DataDrivenStart(),  # noqa: B008  # frozen
    batch_size: int | None = None,
    seed: int = 0,
) -> ClampedModel:
    """The start of δ kept as it is, and the head fitted behind it: a forward and backward pass, and a forward one.

    δ̃ raises entropy, which a temperature does as well; nothing makes it lower the log-loss or leave the accuracy
    alone, so compare with the same head at ``ZeroStart()`` on other rows: unlike ``NeuralClamping.fit``, this never
    answers that δ does not help. The summary's strength is 0, as nothing holds δ back, or infinity where δ is 0 and
    this is the head alone; its notes say how δ came about.

    Args:
        model: From inputs to logits; comes back as it was, also after an error.
        data: A pair of inputs and labels, a Dataset or a DataLoader, of rows the network was not trained on.
        space: What the network's inputs are; the theorem needs it.
        head: Fitted to the logits of x + δ.
        start: Where δ is from.
        batch_size: Rows at a time; memory grows with it, and the answer depends on it by rounding only, unless the
            network mixes the rows of a batch, of which a warning tells. None: by their size.
        seed: Of what the start draws.

    Raises:
        InputError: If the data or the network is not what it must be, or inputs lie outside the space.
        FitError: If the head has no optimum on these rows.

    Warns:
        CalibrantWarning: If the start is 0 where it should not be, or the network is in training mode or mixes the rows
            of a batch.

    Example:
        >>> import torch
        >>> network, inputs = nn.Linear(2, 2).eval(), 0.1 + 0.8 * torch.rand(500, 2, generator=torch.manual_seed(0))
        >>> network.weight.data = 20 * torch.eye(2)
        >>> labels = torch.multinomial((network(inputs) / 2).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> clamped = efficient_clamping(network, (inputs, labels), space=InputSpace())
        >>> [f"{each:+.1f}" for each in clamped.delta.tolist()], clamped.temperature > 1
        (['+0.1', '-0.1'], True)

    Reference:
        Neural Clamping, Section 4.3, which leaves the details to an appendix.
    """
    for value, kind, name in (
        (head, Calibrator, "head"),
        (start, Start, "start"),
        (space, (InputSpace, type(None)), "space"),
    ):
        if not isinstance(value, kind):
            raise InputError(f"{name} must be one of its kind, such as its default; got {value!r}.")
    began = time.perf_counter()
    rows = CalibrationSamples.of(data, batch_size=batch_size)
    with gathered_warnings() as warned:
        warn_if_training(model)
        with frozen(model):
            check_network(model, rows, space)
            delta = start.delta(model, rows, space=space, seed=seed)
            # As the clamped model, which clips nothing where δ is 0.
            passes = Passes(model, rows, preparation=InputPreparation(space if delta.any() else None))
            logits = passes.logits(delta)
            passes.check_finite(logits)
            fitted = head.fit(Predictions.from_logits(logits, passes.labels))
    told = (
        f"δ was not learned: it is the {start.name} start as it is, with the head fitted behind it. Whether it helps "
        "was not asked; judge both this and the same head at ZeroStart() on other rows."
        if delta.any()
        else "δ is 0, so this is the head alone."
    )
    gamma = head.gamma if isinstance(head, TemperatureScaling) and head.criterion == "focal" else 0.0
    summary = ClampingSummary(
        settings={
            "method": "efficient",
            "head": {"method": head.name, **head.settings()},
            "start": start.settings(),
            "seed": check_seed(seed),
        },
        rows=len(rows),
        seconds=time.perf_counter() - began,
        certificate=None,  # nothing was minimised over δ; the head has its own
        strength=0.0 if delta.any() else float("inf"),
        gamma=gamma,
        notes=(told, *map(str, warned)),
        caveats=caveats_of(warned),
    )
    return ClampedModel(model, delta, fitted, space=space, summary=summary)
