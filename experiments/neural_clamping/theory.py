"""The paper's statements as numbers: Lemma 3.1's condition, Theorem 3.2's gain, and clamping without a descent."""

import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.calibrators.base import gathered_warnings
from calibrant.checks import check_positive, check_seed
from calibrant.clamping import (
    ClampedModel,
    ClampingSummary,
    DataDrivenStart,
    InputSpace,
    NetworkPredictions,
    Start,
    caveats_of,
    entropy_gradient,
    unlabelled_samples,
)
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs, device_of, extract_logits, frozen, warn_if_training
from calibrant.predictions import Predictions

__all__ = ["EntropyGain", "efficient_clamping", "lemma_residual", "mean_entropy", "theorem_gain"]


def lemma_residual(model: nn.Module, data: object, *, delta: Tensor | None = None, temperature: float = 1.0) -> float:
    """Return how far a temperature is from meeting the last constraint of eq. 7, as Lemma 3.1's solution must.

    The distribution of largest entropy expects, over the samples, the logit of the label. That holds at the temperature
    of least log-loss and nowhere else: 0 there, below 0 where a larger temperature would do better, above 0 where a
    smaller one would. It is T times the derivative of the log-loss in ln T; divide it by T for a number that does not
    depend on the logits' scale. A focal loss has its optimum elsewhere, so the residual there is not 0.

    Formula: mean over samples of z_y − Σ_k z_k q_k, with q = softmax(z / T)

    Args:
        model: Network from inputs to the logits z; a clamped model, whose logits are divided by its T already; or
            ``nn.Identity()`` where there are only logits. It is restored afterwards.
        data: Inputs and labels, as ``NeuralClamping.fit`` takes them.
        delta: Added to every input; None for nothing.
        temperature: T, above 0.

    Raises:
        InputError: If the network does not take the inputs or gives no logits for the labels, δ has another shape, or
            the temperature is not above 0.

    Example:
        >>> logits, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).log1p(), torch.tensor([0, 0, 1])
        >>> abs(lemma_residual(nn.Identity(), (logits, labels))) < 1e-7  # softmax is (2/3, 1/3) here
        True

    Reference:
        Neural Clamping, eq. 7 and Lemma 3.1.
    """
    check_positive(temperature, "temperature")
    samples = LabelledInputs.of(data)
    delta = torch.zeros(samples.input_shape) if delta is None else delta
    _check_delta(delta, samples)
    total = torch.zeros((), dtype=torch.float64)
    for block in NetworkPredictions(model, samples).at(delta).blocks():
        logits = block.logits.double()
        expected = (logits * (logits / temperature).softmax(dim=1)).sum(dim=1)
        total += (logits.gather(1, block.labels[:, None])[:, 0] - expected).sum()
    return float(total) / len(samples)


class EntropyGain(NamedTuple):
    """What a perturbation should add to the mean entropy by the theorem, and what it does add, in nats."""

    predicted: float
    realised: float


def theorem_gain(model: nn.Module, data: object, *, delta: Tensor, temperature: float = 1.0) -> EntropyGain:
    """Return Theorem 3.2's first-order gain of entropy and the true one, in two passes.

    The two agree for small δ only, and the realised gain is a difference of two means: for a network in float32, gains
    below 1e-6 are rounding.

    Formula: δᵀg / n against mean H(x + δ) − mean H(x)

    Args:
        model: Network from inputs to logits; it is restored afterwards.
        data: Inputs, (n, ...), as labels play no part; or as ``NeuralClamping.fit`` takes them.
        delta: δ, of an input's shape.
        temperature: T, above 0; the same for both.

    Raises:
        InputError: If δ has another shape, the temperature is not above 0, or the logits are not finite.

    Example:
        >>> theorem_gain(nn.Linear(3, 2), torch.rand(20, 3), delta=torch.zeros(3))
        EntropyGain(predicted=0.0, realised=0.0)

    Reference:
        Neural Clamping, Theorem 3.2.
    """
    samples = unlabelled_samples(data)
    with_delta = mean_entropy(model, samples, delta=delta, temperature=temperature)
    without_delta = entropy_gradient(model, samples, temperature=temperature)
    predicted = float((delta.to(without_delta.gradient) * without_delta.gradient).sum()) / len(samples)
    return EntropyGain(predicted, with_delta - without_delta.entropy)


def mean_entropy(model: nn.Module, data: object, *, delta: Tensor, temperature: float = 1.0) -> float:
    """Return the mean entropy of ``softmax(f(x + δ) / T)`` over the samples, in nats.

    Args:
        model: Network from inputs to logits; it is restored afterwards.
        data: As in :func:`theorem_gain`.
        delta: δ, of an input's shape; zeros for the network itself.
        temperature: T, above 0.

    Raises:
        InputError: If δ has another shape, the temperature is not above 0, or the logits are not finite.

    Example:
        >>> network = nn.Linear(1, 2)
        >>> _ = nn.init.zeros_(network.weight), nn.init.zeros_(network.bias)
        >>> round(mean_entropy(network, torch.tensor([[2.0], [4.0]]), delta=torch.zeros(1)), 4)  # ln 2
        0.6931
    """
    check_positive(temperature, "temperature")
    samples = unlabelled_samples(data)
    _check_delta(delta, samples)
    with frozen(model), torch.no_grad():
        device = device_of(model)
        entropies = torch.zeros(len(samples), dtype=torch.float64, device=device)
        for inputs, positions in samples.batches(device=device):
            # Not inputs + delta, by which -0 becomes 0.
            logits = extract_logits(model(inputs - (0 - delta.to(inputs)))).double()
            log_probs = (logits / temperature).log_softmax(dim=1)
            entropies[positions.to(device)] = -(log_probs.exp() * log_probs).sum(dim=1)
    bad = (~entropies.isfinite()).nonzero()
    if len(bad):
        raise InputError(f"the network's logits must be finite; they are not at row {int(bad[0])}.")
    return float(entropies.mean())


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
    """Keep the start of δ and fit the head behind it: a forward and backward pass, and a forward one.

    δ̃ raises entropy, which a temperature does as well; nothing makes it lower the log-loss or keep the accuracy, so
    compare with the same head at ``ZeroStart()`` on other samples: unlike ``NeuralClamping.fit``, this never answers
    that δ does not help. The summary's strength is 0, as nothing penalises δ, or infinity where δ is 0 and this is the
    head alone; its notes say where δ is from.

    Args:
        model: Network from inputs to logits; it is restored afterwards, also after an error.
        data: A pair of inputs and labels, a Dataset or a DataLoader, of samples the network was not trained on.
        space: Range and normalisation of the network's inputs; the theorem needs it.
        head: Fitted to the logits at x + δ.
        start: The start of δ.
        batch_size: Samples per batch; None to derive it from their size.
        seed: Random seed of the start.

    Raises:
        InputError: If the data or the network is not what it must be, or inputs lie outside the space.
        FitError: If the head has no optimum on these samples.

    Warns:
        CalibrantWarning: If the start is 0 where it should not be, or the network is in training mode or mixes the
            samples of a batch.

    Example:
        >>> network, inputs = nn.Linear(2, 2).eval(), 0.1 + 0.8 * torch.rand(500, 2, generator=torch.manual_seed(0))
        >>> network.weight.data = 20 * torch.eye(2)
        >>> labels = torch.multinomial((network(inputs) / 2).softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> clamped = efficient_clamping(network, (inputs, labels), space=InputSpace())
        >>> [f"{entry:+.1f}" for entry in clamped.delta.tolist()], clamped.temperature > 1
        (['+0.1', '-0.1'], True)

    Reference:
        Neural Clamping, Section 4.3, which leaves the details to an appendix.
    """
    if not isinstance(head, Calibrator):
        raise InputError(f"head must be a Calibrator; got {head!r}.")
    if not isinstance(start, Start):
        raise InputError(f"start must be a Start; got {start!r}.")
    if space is not None and not isinstance(space, InputSpace):
        raise InputError(f"space must be an InputSpace or None; got {space!r}.")
    began = time.perf_counter()
    samples = LabelledInputs.of(data, batch_size=batch_size)
    with gathered_warnings() as warned:
        warn_if_training(model)
        runs = NetworkPredictions(model, samples, space=space)
        with frozen(model):
            delta = start.delta(model, samples, space=space, seed=seed)
        at_delta = runs.at(delta)
        fitted = head.fit(Predictions.from_logits(at_delta.logits.to(delta.device), at_delta.labels.to(delta.device)))
    note = (
        f"δ was not learned: it is the {start.name} start, with the head fitted behind it. Whether it helps was not "
        "tested; evaluate both this and the same head at ZeroStart() on other samples."
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
        n_samples=len(samples),
        seconds=time.perf_counter() - began,
        certificate=None,  # nothing was minimised over δ; the head has its own
        strength=0.0 if delta.any() else float("inf"),
        gamma=gamma,
        notes=(note, *map(str, warned)),
        caveats=caveats_of(warned),
        head_is_optimal=not isinstance(head, TemperatureScaling) or head.criterion == "nll",
    )
    return ClampedModel(model, delta, fitted, space=space, summary=summary)


def _check_delta(delta: Tensor, samples: LabelledInputs) -> None:
    if delta.shape != samples.input_shape:
        raise InputError(
            f"delta must have the shape of one input, {tuple(samples.input_shape)}, without a batch axis; "
            f"got {tuple(delta.shape)}."
        )
