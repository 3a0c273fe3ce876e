"""Where δ starts: at zero, at random, or where Theorem 3.2 expects the largest gain of entropy within the box."""

import dataclasses
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from calibrant.checks import check_known, check_positive, check_real_number, check_seed
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.theory.entropy import EntropyGradient, entropy_gradient
from calibrant.clamping.theory.unlabelled import samples_of
from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import CalibrationSamples, device_of

__all__ = ["DataDrivenStart", "Eta", "RandomStart", "Start", "ZeroStart"]

Eta: TypeAlias = Literal["theorem", "quantile", "epsilon"]
# Of the box's largest number: what is left of 0 after a normalisation in float32, and far less than a step of 8 bits.
_ROUNDING = 1e-6


class Start(ABC):
    """A recipe for the first δ; concrete ones are frozen dataclasses."""

    name: ClassVar[str]

    @final
    def delta(self, model: nn.Module, data: object, *, space: InputSpace | None = None, seed: int = 0) -> Tensor:
        """The first δ, of an input's shape, where the network is, in float64 if the inputs are and else in float32.

        Args:
            model: From inputs to logits; comes back as it was.
            data: The calibration set: inputs alone, (n, ...), for labels play no part; or as ``NeuralClamping.fit``
                takes them.
            space: What the network's inputs are; None if unknown.
            seed: Of whatever is drawn, on the CPU and so alike on every device.

        Raises:
            InputError: If the data are not what they must be, or a start that needs the space has none or one that
                inputs lie outside of.
        """
        rows = samples_of(data)
        found = self._found(model, rows, space, check_seed(seed))
        return found.to(device_of(model), torch.promote_types(rows.input_dtype, torch.float32))

    @abstractmethod
    def _found(self, model: nn.Module, rows: CalibrationSamples, space: InputSpace | None, seed: int) -> Tensor:
        """The same on any device and in any type."""

    @final
    def settings(self) -> dict[str, Any]:
        """Its name and options, as a file can hold them."""
        return {"name": self.name, **dataclasses.asdict(self)}  # type: ignore[call-overload]  # all are dataclasses


@final
@dataclass(frozen=True)
class ZeroStart(Start):
    """δ = 0: the start of temperature scaling.

    Example:
        >>> ZeroStart().delta(nn.Linear(3, 5), torch.rand(5, 3))
        tensor([0., 0., 0.])
    """

    name: ClassVar[str] = "zero"

    def _found(self, _model: nn.Module, rows: CalibrationSamples, _space: InputSpace | None, _seed: int) -> Tensor:
        return torch.zeros(rows.input_shape)


@final
@dataclass(frozen=True)
class RandomStart(Start):
    """Every entry of δ drawn evenly from -scale to scale, as the paper's experiments start.

    The paper does not tell its scale; its authors' toolkit takes 0.01, and 0.001 in the demonstration.

    Args:
        scale: In units of the network's inputs.

    Example:
        >>> bool((RandomStart().delta(nn.Linear(3, 5), torch.rand(5, 3)).abs() <= 0.01).all())
        True
    """

    name: ClassVar[str] = "random"
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")

    def _found(self, _model: nn.Module, rows: CalibrationSamples, _space: InputSpace | None, seed: int) -> Tensor:
        drawn = torch.rand(rows.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (2 * drawn - 1) * self.scale


@final
@dataclass(frozen=True)
class DataDrivenStart(Start):
    """δ̃ = sign(g) ⊙ η: as far as the box lets all rows go, the way that the entropy rises (g is its gradient).

    ``theorem`` is the paper's: among all δ that keep every row inside the box, δ̃ has the largest first-order gain of
    entropy, δ̃ᵀg. Entropy is not calibration, and a first-order gain holds for small δ only: with few rows, or pixels
    that are black in all of them, the box lets δ̃ be large, and the network may recognise little any more. With many
    rows every pixel is black somewhere and white somewhere, so that η and δ̃ are 0, of which a warning tells.

    Args:
        eta: How far each entry goes. ``theorem``: until the first row touches the box's edge. Not in the paper:
            ``quantile``, the same but for the share of rows nearest to the edge, which leave the box (a space that
            clips brings them back; without a space, the box is the range of the rows); ``epsilon``, by that much in
            any case, but no more than the box's width.
        quantile: That share, above 0 and at most 0.5.
        epsilon: That step, in units of the network's inputs.

    Example:
        >>> inputs = torch.rand(20, 3) / 2
        >>> moved = inputs + DataDrivenStart().delta(nn.Linear(3, 2), inputs, space=InputSpace())
        >>> bool((moved > -1e-6).all() and (moved < 1 + 1e-6).all())
        True

    Reference:
        Neural Clamping, Theorem 3.2.
    """

    name: ClassVar[str] = "data-driven"
    # Differs from the paper: it knows no quantile and no epsilon; they are for data on which its own η is 0.
    eta: Eta = "theorem"
    quantile: float = 0.01
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        check_known(self.eta, get_args(Eta), "eta")
        check_positive(self.quantile, "quantile")
        check_real_number(self.quantile, "quantile", least=0, most=0.5)
        check_positive(self.epsilon, "epsilon")

    def _found(self, model: nn.Module, rows: CalibrationSamples, space: InputSpace | None, seed: int) -> Tensor:
        if space is None and self.eta == "theorem":
            raise InputError(
                "space must tell the box that inputs lie in, for Theorem 3.2 to use it; got None. "
                "Give an InputSpace, or take DataDrivenStart(eta='quantile') or another start."
            )
        left_out = self.quantile if self.eta == "quantile" else 0.0
        found = entropy_gradient(model, rows, quantile=left_out, seed=seed)
        down, up = self._reach(found, None if space is None else _box(found, space))
        # Theorem 3.2's η.
        zero = torch.zeros_like(down)
        eta = torch.where(found.gradient < 0, down, torch.where(found.gradient > 0, up, zero))
        if not eta.any():
            _warn_of_no_step(found)
        return found.gradient.sign() * eta

    def _reach(self, found: EntropyGradient, box: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """How far each entry may go down and up, in float64."""
        alpha, beta = box or (found.low.double(), found.high.double())
        if self.eta == "epsilon":
            step = torch.full_like(alpha, self.epsilon)
            step = step if box is None else step.minimum(beta - alpha)
            return step, step
        down, up = found.typical_low.double() - alpha, beta - found.typical_high.double()
        rounding = _rounding(found, alpha, beta)
        return torch.where(down > rounding, down, 0.0), torch.where(up > rounding, up, 0.0)


def _box(found: EntropyGradient, space: InputSpace) -> tuple[Tensor, Tensor]:
    """α and β in float64, if the inputs lie between them."""
    space.check_holds(torch.stack((found.low, found.high)))
    return space.bounds(found.low.double())


def _rounding(found: EntropyGradient, alpha: Tensor, beta: Tensor) -> Tensor:
    """How far from the box an input may be that lies on it."""
    share = max(_ROUNDING, 2 * torch.finfo(found.low.dtype).eps)
    return share * torch.maximum(alpha.abs(), beta.abs())


def _warn_of_no_step(found: EntropyGradient) -> None:
    if found.gradient.any():
        why = "every entry is somewhere at the end of the box towards which the entropy rises, as with many images"
        cure = " A quantile or epsilon as eta, which are not the paper's, can still give another."
    else:
        why, cure = "the entropy does not change with the inputs at all", " Is the network sure of every row?"
    warnings.warn(
        f"the data-driven start is δ = 0, that of temperature scaling, because {why}.{cure}",
        CalibrantWarning,
        stacklevel=4,
    )
