"""The folder that ``calibrant clamp`` writes, and in which it resumes a stopped fit. No file is half written.

::

    settings.json         settings and data that decide the result
    *.journal             partial results, until the model is saved
    clamped.safetensors   δ and the head
    before.npz            logits and labels of the test samples by the uncalibrated network
    temperature.npz       the same after temperature scaling
    after.npz             the same by the clamped network
    report.md, report.json
"""

import json
from pathlib import Path
from typing import Any, final

from calibrant.atomic import SettingsFolder
from calibrant.errors import FileError

__all__ = ["ClampFolder"]

_FORMAT = "calibrant.clamp/1"
_RESULTS = ("clamped.safetensors", "before.npz", "temperature.npz", "after.npz", "report.md", "report.json")


@final
class ClampFolder:
    """Folder of one fit.

    Args:
        path: The folder; it is made when the fit begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = SettingsFolder(path, _FORMAT, work="fit", command="calibrant clamp")
        self._is_made = False

    @property
    def clamped(self) -> Path:
        """Path of the clamped model."""
        return self.path / "clamped.safetensors"

    def check(self) -> None:
        """Check that the folder is new, empty, or that of a fit.

        Raises:
            FileError: If it holds something else.
        """
        self._folder.check()

    def begin(self, settings: dict[str, Any]) -> None:
        """Make the folder, or check that it holds this very fit.

        Args:
            settings: Settings and data that decide the result, as JSON can hold them.

        Raises:
            FileError: If it holds another fit, or cannot be written.
        """
        self.check()
        # JSON turns tuples into lists, which must not count as a difference.
        settings = json.loads(json.dumps(settings))
        if self._folder.is_begun:
            from calibrant.clamping import upgraded_settings

            theirs = upgraded_settings(self._folder.document()["settings"])
            differing = [name for name in {**settings, **theirs} if settings.get(name) != theirs.get(name)]
            if not differing:
                return
            if self._results():
                texts = [f"{name} {settings.get(name)!r}, not {theirs.get(name)!r}" for name in differing]
                raise FileError(
                    f"{self.path} must hold a fit of the same settings to resume it; here they are "
                    f"{'; '.join(texts)}. Name another folder, or delete this one."
                )
        self._is_made = not self.path.exists()
        self._folder.begin({"settings": settings})

    def withdraw(self) -> None:
        """Delete the folder of a fit that failed before it had any results."""
        if self._is_made and not self._results():
            self._folder.settings.unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def forget_journal(self) -> None:
        """Delete the partial results of a fit whose model is saved."""
        for path in self._journal():
            path.unlink()

    def forget(self) -> None:
        """Delete the results of an earlier fit, and nothing else, so that another may begin."""
        if self._folder.is_begun:
            self.check()
            for path in self._results():
                path.unlink()

    def _results(self) -> list[Path]:
        return [*(path for name in _RESULTS if (path := self.path / name).exists()), *self._journal()]

    def _journal(self) -> list[Path]:
        return list(self.path.glob("*.journal"))
