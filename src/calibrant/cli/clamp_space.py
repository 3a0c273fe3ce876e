"""What the person said about the network's inputs: the range of a pixel, and its normalisation."""

from dataclasses import dataclass, replace
from typing import final

from calibrant.clamping import InputSpace
from calibrant.errors import InputError

__all__ = ["SpaceText", "numbers"]


@final
@dataclass(frozen=True)
class SpaceText:
    """What was said about the range of a pixel and its normalisation; None where nothing was."""

    low: float | None = None
    high: float | None = None
    mean: str | None = None
    std: str | None = None
    clips: bool = False

    @property
    def names_a_range(self) -> bool:
        """Whether more was said than that δ must not leave it."""
        return any(each is not None for each in (self.low, self.high, self.mean, self.std))

    def space(self, *, known: InputSpace | None, is_run: bool, pixels: bool) -> InputSpace | None:
        """What the network's inputs are, as far as it matters.

        Args:
            known: What a run tells by itself.
            is_run: Whether the network is a run's.
            pixels: Whether stored pixels are to be scaled.

        Raises:
            InputError: If a run's own numbers are contradicted, or these contradict each other.
        """
        if is_run:
            if self.names_a_range or pixels:
                raise InputError(
                    "--pixels, --low, --high, --mean and --std must be left out with a folder of calibrant train: its "
                    "network takes pixels as they were stored, and normalises them itself."
                )
            return None if known is None else replace(known, clips=self.clips)
        if not (self.names_a_range or self.clips or pixels):
            return None
        return InputSpace(
            low=0.0 if self.low is None else self.low,
            high=1.0 if self.high is None else self.high,
            mean=None if self.mean is None else numbers(self.mean, "--mean"),
            std=None if self.std is None else numbers(self.std, "--std"),
            clips=self.clips,
        )


def numbers(text: str, option: str) -> tuple[float, ...]:
    """Numbers with commas between them.

    Raises:
        InputError: If they are none.

    Example:
        >>> numbers("0.49, 0.48", "--mean")
        (0.49, 0.48)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{option} must be a number, or numbers with commas between them; got {text!r}.") from error
