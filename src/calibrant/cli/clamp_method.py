"""The words of ``calibrant clamp`` as Neural Clamping's own options."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final, get_args

from calibrant.catalogue import find_calibrator
from calibrant.checks import check_known
from calibrant.clamping import (
    ChannelFreedom,
    DataDrivenStart,
    Eta,
    Freedom,
    FullFreedom,
    InputSpace,
    LowFrequencies,
    NeuralClamping,
    RandomStart,
    Start,
    StrengthRule,
    ZeroStart,
)
from calibrant.cli.clamp_space import numbers
from calibrant.errors import InputError

__all__ = ["MethodText", "check_start"]

_PRESETS: dict[str, Callable[[], NeuralClamping]] = {
    "default": NeuralClamping,
    "paper": NeuralClamping.paper,
    "toolkit": NeuralClamping.toolkit,
}


@final
@dataclass(frozen=True)
class MethodText:
    """What was said about the method; None where the preset decides."""

    preset: str = "default"
    head: str | None = None
    gamma: str | None = None
    strength: str | None = None
    freedom: str | None = None
    start: str | None = None
    augmentation: str | None = None
    batch_size: int | None = None
    seed: int = 0

    def method(self, space: InputSpace | None = None) -> NeuralClamping:
        """Neural Clamping with these options.

        Raises:
            InputError: If one of them is not known, out of range, or does not go with another.
        """
        check_known(self.preset, _PRESETS, "--preset")
        if self.preset != "default":
            self._check_preset()
        changes: dict[str, Any] = {"space": space, "seed": self.seed}
        if self.head is not None:
            changes["head"] = find_calibrator(self.head)
        if self.gamma is not None:
            changes["gamma"] = _one_or_several(numbers(self.gamma, "--gamma"))
        if self.strength is not None:
            changes["strength"] = _strength(self.strength)
        if self.freedom is not None:
            changes["freedom"] = _freedom(self.freedom)
        if self.start is not None:
            changes["start"] = _start(self.start)
        if self.augmentation is not None:
            changes["augmentation"] = self.augmentation
        if self.batch_size is not None:
            changes["batch_size"] = self.batch_size
        if isinstance(changes.get("gamma"), tuple) and self.preset == "default":
            raise InputError(
                "--gamma must be one number, except with --preset paper, which chooses as the paper does: a held-out "
                "log-loss would always prefer 0, which minimises it."
            )
        return replace(_PRESETS[self.preset](), **changes)

    def _check_preset(self) -> None:
        if self.head is not None or self.freedom is not None:
            raise InputError(
                f"--head and --freedom must be left out with --preset {self.preset}, which learns a free δ and a "
                "temperature."
            )
        if self.strength == "path":
            raise InputError(
                f"--strength must be a number, several, or one of the paper's rules with --preset {self.preset}: its "
                "stochastic descent cannot be cross-validated."
            )


def check_start(method: NeuralClamping) -> None:
    """A start that needs the range of a pixel has it.

    Raises:
        InputError: If it has not.
    """
    if isinstance(method.start, DataDrivenStart) and method.start.eta == "theorem" and method.space is None:
        raise InputError(
            "--start data-driven must know the range of a pixel; give --low and --high (--mean and --std, if inputs "
            "are normalised), or take --start data-driven:quantile."
        )


def _one_or_several(values: Sequence[float]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else tuple(values)


def _strength(text: str) -> float | tuple[float, ...] | str:
    rules = get_args(StrengthRule)
    if text in rules:
        return text
    try:
        return _one_or_several(numbers(text, "--strength"))
    except InputError as error:
        raise InputError(
            f"--strength must be a number, several with commas between them, inf, {', '.join(rules[:-1])} or "
            f"{rules[-1]}; got {text!r}."
        ) from error


def _freedom(text: str) -> Freedom:
    kind, _, size = text.partition(":")
    known: dict[str, Freedom] = {"full": FullFreedom(), "channel": ChannelFreedom(), "low-frequency": LowFrequencies()}
    check_known(kind, known, "--freedom")
    if not size:
        return known[kind]
    if kind != "low-frequency" or not size.isdecimal():
        raise InputError(f"--freedom may only have a whole number after low-frequency:, as in :4; got {text!r}.")
    return LowFrequencies(int(size))


def _start(text: str) -> Start:
    kind, _, option = text.partition(":")
    known: dict[str, Start] = {"zero": ZeroStart(), "random": RandomStart(), "data-driven": DataDrivenStart()}
    check_known(kind, known, "--start")
    if not option:
        return known[kind]
    if kind == "data-driven":
        check_known(option, get_args(Eta), "the η of --start data-driven:")
        return DataDrivenStart(eta=option)  # type: ignore[arg-type]  # one of them
    scale = numbers(option, "the scale of --start random:")
    if kind == "zero" or len(scale) > 1 or not math.isfinite(scale[0]):
        raise InputError(f"--start may have a scale after random:, as in random:0.01; got {text!r}.")
    return RandomStart(scale[0])
