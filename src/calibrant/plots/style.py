"""Colours and type sizes.

Everything is set on the artists themselves: global settings are neither changed nor relied on, and no pyplot state is
made, so plots can be drawn in threads and without a display. Hues follow Okabe and Ito, told apart by people with any
colour vision; what hue says is also said by hatching, lightness or line style, for print in grey.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

from calibrant.errors import UnknownNameError

__all__ = ["SIZES", "THEMES", "Look", "Theme", "ThemeName", "theme_named"]

ThemeName: TypeAlias = Literal["light", "dark"]
Look: TypeAlias = dict[str, Any]
"""Settings of an artist, by matplotlib's names."""

SIZES = {"title": 12.5, "detail": 9.5, "label": 10.5, "tick": 9.5, "note": 9.0}


@final
@dataclass(frozen=True)
class Theme:
    """Colours by what they mean."""

    background: str
    ink: str  # titles and main lines
    muted: str  # axes and secondary text
    faint: str  # grid lines
    band: str  # what chance allows
    bar: str  # neutral bars
    over: str  # overconfident; wrong answers
    over_tint: str
    under: str  # underconfident; right answers
    under_tint: str

    @property
    def pair(self) -> tuple[Look, Look]:
        """Looks of the lines of two sets that are compared."""
        first: Look = {"color": self.over, "linestyle": (0, (4, 1.6)), "linewidth": 1.8}
        return first, {"color": self.under, "linestyle": "-", "linewidth": 2.4}


THEMES: dict[str, Theme] = {
    "light": Theme(
        background="#ffffff", ink="#16191d", muted="#59626e", faint="#e3e6ea", band="#a7afba", bar="#e1e7ee",
        over="#c4500a", over_tint="#fbe3d3", under="#0b6aa8", under_tint="#64a8d8",
    ),
    "dark": Theme(
        background="#15191e", ink="#eef1f4", muted="#a3adb8", faint="#2b323a", band="#77828f", bar="#2f3944",
        over="#f5955a", over_tint="#4a2c1b", under="#8ccdf7", under_tint="#3f8fc6",
    ),
}  # fmt: skip


def theme_named(name: str) -> Theme:
    """The theme of this name.

    Raises:
        UnknownNameError: If there is none.
    """
    if name not in THEMES:
        raise UnknownNameError(f"theme must be one of {', '.join(THEMES)}; got {name!r}.")
    return THEMES[name]
