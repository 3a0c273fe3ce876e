"""The folder that ``calibrant clamp`` leaves, and goes on in after a stop. Nothing in it can be half written.

::

    settings.json         what decides the result
    *.journal             until the model is saved: what was found so far
    clamped.safetensors   δ and the head
    before.npz            logits and labels of the test rows by the network as it is
    temperature.npz       the same behind temperature scaling
    after.npz             the same of the clamped network
    report.md, report.json
"""

import json
from pathlib import Path
from typing import Any, final

from calibrant.atomic import SettingsFolder
from calibrant.errors import FileError

__all__ = ["ClampFolder"]

_FORMAT = "calibrant.clamp/1"
_LEFT = ("clamped.safetensors", "before.npz", "temperature.npz", "after.npz", "report.md", "report.json")


@final
class ClampFolder:
    """One fit's folder.

    Args:
        path: Made when the fit begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = SettingsFolder(path, _FORMAT, work="fit", command="calibrant clamp")
        self._is_made = False

    @property
    def clamped(self) -> Path:
        """The clamped model, once it is fitted."""
        return self.path / "clamped.safetensors"

    def check(self) -> None:
        """Refuse, before anything is read, what is neither new, nor empty, nor such a folder.

        Raises:
            FileError: If it holds something else.
        """
        self._folder.check()

    def begin(self, settings: dict[str, Any]) -> None:
        """Make the folder, or see that it holds this very fit.

        Args:
            settings: What decides the result, as JSON can hold it.

        Raises:
            FileError: If it holds another fit, or cannot be written.
        """
        self.check()
        # As they will be read back.
        settings = json.loads(json.dumps(settings))
        if self._folder.is_begun:
            from calibrant.clamping import upgraded_settings

            told = _differences(settings, upgraded_settings(self._folder.document()["settings"]))
            if told and not self._is_bare:
                raise FileError(
                    f"{self.path} must hold a fit of the same settings to go on with it; here they are "
                    f"{'; '.join(told)}. Name another folder, or delete this one."
                )
            if not told:
                return
        self._is_made = not self.path.exists()
        self._folder.begin({"settings": settings})

    def withdraw(self) -> None:
        """Leave nothing behind of a fit that could not be, unless something was found."""
        if self._is_made and self._is_bare:
            self._folder.settings.unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def forget_journal(self) -> None:
        """Delete what a fit would go on from: its model is saved."""
        for path in self._journal():
            path.unlink()

    def forget(self) -> None:
        """Delete what an earlier fit found and left here, and nothing else, so that any other may begin."""
        if self._folder.is_begun:
            self.check()
            for path in self._found():
                path.unlink()

    @property
    def _is_bare(self) -> bool:
        """Whether nothing was found yet, as after a fit that could not be: then it is in nobody's way."""
        return not self._found()

    def _found(self) -> list[Path]:
        left = [path for path in (self.path / name for name in _LEFT) if path.exists()]
        return [*left, *self._journal()]

    def _journal(self) -> list[Path]:
        return list(self.path.glob("*.journal"))


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return [f"{name} {ours.get(name)!r}, not {theirs.get(name)!r}" for name in names]
