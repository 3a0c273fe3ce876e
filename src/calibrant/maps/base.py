"""What a fitted calibrator is: a module from logits to logits, ready to stand behind the network it was fitted for."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, final

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.maps.learned import Learned, require
from calibrant.maps.log_odds import with_predicted_ahead
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.precision import working
from calibrant.numerics.uniform_share import floored
from calibrant.predictions import Predictions

__all__ = ["FitSummary", "Map", "Setting", "as_result"]

Setting: TypeAlias = bool | int | float | str | None


@final
@dataclass(frozen=True)
class FitSummary:
    """How a map came about: the method and its options, how much data it saw, and how well its optimum is known.

    ``before`` and ``after`` are log-loss (``nll``), ``brier`` and ``accuracy`` on the samples of the fit, without the
    map and with it: means over ``compared`` of them, some hundreds drawn at random where these show nothing worse, else
    up to 10,000. They flatter the map. 0 and empty where they were not computed.
    """

    method: str
    settings: dict[str, Setting] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()
    compared: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


class Map(Learned, ABC):
    """Logits in, calibrated logits out; ``nn.Sequential(network, fitted)`` is the deployed model.

    What was learned lies in float64 buffers, and so in the ``state_dict``; it is cast to the logits' type where it is
    used. (A device without float64 wants ``fitted.float()`` first; casts to fewer digits than float32, such as
    ``model.bfloat16()``, leave it alone.) The arithmetic is done in float32, or in float64 if the logits are; the
    result has the logits' own type, or float32 if they are whole numbers, and is finite.

    A map that keeps the predicted class does so in the type it returns: where the class would tie with one before it
    after rounding, to bfloat16 say, it is put ahead by the least that the type can hold.

    A map fitted on probabilities with zeros in them has a ``uniform_share`` a: its first step is to mix the uniform
    distribution in, ``(1 - a) p + a / k``. So it answers logits and probabilities of any type alike.

    A subclass is built by keyword from ``n_classes``, its buffers, its settings and its parts (other modules), under
    the names it keeps them by: that is how a file is read back.

    Args:
        n_classes: Length of a row of logits.
        gives_log_probs: Whether the result is log-probabilities; None: if the logits are.
        keeps_predicted: Whether the class of the largest logit, the first on a tie, stays that.
    """

    kind: ClassVar[str]  # its name in files
    # Attributes beside what the constructor takes: plain values, buffers or modules, or None. They are kept in files
    # where they are not None, and set after the construction when a file is read.
    extras: ClassVar[tuple[str, ...]] = ("uniform_share",)
    uniform_share: Tensor | None

    def __init__(self, n_classes: int, *, gives_log_probs: bool | None = False, keeps_predicted: bool = False) -> None:
        super().__init__()
        self.n_classes = n_classes
        # Log-probabilities keep equal confidences equal to the last bit.
        self.gives_log_probs = gives_log_probs
        self.keeps_predicted = keeps_predicted
        self.summary: FitSummary | None = None
        self.register_buffer("uniform_share", None)

    @final
    def mix_in(self, uniform_share: Tensor) -> None:
        """Mix a share of the uniform distribution, a single number in 0..1, into the probabilities before all else."""
        self.keep(uniform_share=uniform_share)
        self.check_share()

    @final
    def check_share(self) -> None:
        """See that the uniform share, if there is one, can be one.

        Raises:
            InputError: If it is not a single number above 0 and below 1.
        """
        share = self.uniform_share
        if share is not None:
            single = share.numel() == 1 and bool((share > 0) & (share < 1))
            require(single, "uniform_share must be a single number above 0 and below 1", share)

    @abstractmethod
    def calibrated(self, logits: Tensor) -> Tensor:
        """The calibrated logits, (..., k) in float32 or float64 -> the same."""

    def settings(self) -> dict[str, Setting]:
        """What the constructor needs beside the buffers."""
        return {}

    @final  # type: ignore[misc]  # torch declares it as an attribute
    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits, (..., k) -> (..., k) of the same type; of whole numbers, in float32."""
        if logits.shape[-1] != self.n_classes:
            raise InputError(
                f"this map was fitted for {self.n_classes} classes; got logits of {logits.shape[-1]}. "
                "Fit it on predictions of the same model."
            )
        precise = working(logits)
        if self.uniform_share is not None:
            precise = floored(precise, self.uniform_share.to(precise))
        return as_result(self.calibrated(precise), logits, keeps_predicted=self.keeps_predicted)

    @final
    @torch.no_grad()
    def transform(self, predictions: Predictions) -> Predictions:
        """The same rows and labels with calibrated logits.

        Example:
            >>> from calibrant.maps import Scale
            >>> predictions = Predictions.from_logits([[2.0, 0.0], [0.0, 4.0]], [0, 1])
            >>> Scale(temperature=torch.tensor(2.0), n_classes=2).transform(predictions).logits.tolist()
            [[1.0, 0.0], [0.0, 2.0]]
        """
        calibrated = torch.cat([self(block.logits) for block in predictions.blocks()])
        return predictions.with_logits(calibrated, normalised=self.gives_log_probs)

    def predict_proba(self, *, logits: Any = None, probs: Any = None) -> Any:
        """Return calibrated probabilities, (n, k): a NumPy array for arrays and lists, a tensor for tensors.

        Args:
            logits: Logits of the model, (n, k).
            probs: Its probabilities, (n, k), instead of logits.

        Raises:
            InputError: If not exactly one is given, or it has another number of classes than the map.

        Example:
            >>> from calibrant.maps import Scale
            >>> halved = Scale(torch.tensor(2.0), n_classes=2)
            >>> halved.predict_proba(probs=[[0.5, 0.5], [0.8, 0.2]]).round(3).tolist()
            [[0.5, 0.5], [0.667, 0.333]]
        """
        given = [scores for scores in (logits, probs) if scores is not None]
        if len(given) != 1:
            raise InputError("predict_proba must be given logits=… or probs=…, one of them.")
        unlabelled = torch.zeros(len(given[0]), dtype=torch.long)
        make = Predictions.from_logits if probs is None else Predictions.from_probs
        calibrated = self.transform(make(given[0], unlabelled)).probs
        return calibrated if isinstance(given[0], Tensor) else calibrated.numpy()

    def extra_repr(self) -> str:
        """Shown inside the brackets of the module's name."""
        shapes = {name: tuple(buffer.shape) for name, buffer in self.named_buffers(recurse=False)}
        small = {
            name: f"{float(buffer):.6g}" for name, buffer in self.named_buffers(recurse=False) if buffer.numel() == 1
        }
        return ", ".join([f"classes={self.n_classes}", *(f"{name}={small.get(name, shapes[name])}" for name in shapes)])


def as_result(calibrated: Tensor, logits: Tensor, *, keeps_predicted: bool) -> Tensor:
    """What a map returns: finite, in the logits' own type, with the predicted class where it was if that is kept.

    Args:
        calibrated: What the map made of the logits, (..., k), float32 or float64.
        logits: As they were given, (..., k); of whole numbers the result stays float32.
        keeps_predicted: Whether the class of the largest logit, the first on a tie, stays that.
    """
    dtype = logits.dtype if logits.is_floating_point() else calibrated.dtype
    result = calibrated.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max).to(dtype)
    return with_predicted_ahead(result, logits) if keeps_predicted else result
