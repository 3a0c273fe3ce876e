"""The paper's two statements as numbers that can be looked at: Lemma 3.1's condition, and Theorem 3.2's promise."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from calibrant.checks import check_positive
from calibrant.clamping.learning.passes import Passes
from calibrant.clamping.network.probe import check_network
from calibrant.clamping.theory.entropy import entropy_gradient, mean_entropy
from calibrant.clamping.theory.unlabelled import check_delta, rows_of
from calibrant.inference import CalibrationSamples, frozen
from calibrant.predictions import Predictions

__all__ = ["EntropyGain", "lemma_residual", "theorem_gain"]


def lemma_residual(model: nn.Module, data: object, *, delta: Tensor | None = None, temperature: float = 1.0) -> float:
    """How far a temperature is from meeting the last constraint of eq. 7, which Lemma 3.1's solution must meet.

    The distribution of largest entropy expects, over the rows, the logit that the labels have. That is so at the
    temperature of least log-loss and nowhere else: 0 there, below 0 where a larger temperature would do better, above
    0 where a smaller one would. It is T times the slope of the log-loss against ln T; divide it by T for a number that
    does not depend on the logits' scale. A focal loss has its optimum elsewhere, so the residual there is not 0.

    Formula: mean over rows of z_y − Σ_k z_k q_k, with q = softmax(z / T)

    Args:
        model: From inputs to the logits z; a clamped model, whose logits are divided by its T already, or, where there
            are only logits, ``nn.Identity()``. Runs in evaluation mode, and comes back as it was.
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
    rows = CalibrationSamples.of(data)
    delta = torch.zeros(rows.input_shape) if delta is None else delta
    check_delta(delta, rows)
    with frozen(model):
        check_network(model, rows)
        passes = Passes(model, rows)
        logits = passes.logits(delta)
        passes.check_finite(logits)
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    for block in Predictions.from_logits(logits, passes.labels).blocks():
        logits = block.logits.double()
        expected = (logits * (logits / temperature).softmax(dim=1)).sum(dim=1)
        total += (logits.gather(1, block.labels[:, None])[:, 0] - expected).sum()
    return float(total) / len(rows)


class EntropyGain(NamedTuple):
    """What a perturbation should add to the mean entropy by the theorem, and what it does add, in nats."""

    predicted: float
    realised: float


def theorem_gain(model: nn.Module, data: object, *, delta: Tensor, temperature: float = 1.0) -> EntropyGain:
    """Theorem 3.2's first-order gain of entropy beside the true one, in two passes.

    The two agree for small δ only, and the realised gain is a difference of two means: of a network in float32, gains
    below 1e-6 are rounding.

    Formula: δᵀg / n against mean H(x + δ) − mean H(x)

    Args:
        model: From inputs to logits; runs in evaluation mode, and comes back as it was.
        data: Inputs, (n, ...), of which labels play no part; or as ``NeuralClamping.fit`` takes them.
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
    rows = rows_of(data)
    moved = mean_entropy(model, rows, delta=delta, temperature=temperature)
    still = entropy_gradient(model, rows, temperature=temperature)
    predicted = float((delta.to(still.gradient) * still.gradient).sum()) / len(rows)
    return EntropyGain(predicted, moved - still.entropy)
