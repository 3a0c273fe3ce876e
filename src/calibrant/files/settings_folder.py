"""A folder in which long work is done and gone on with after a stop: its ``settings.json`` says which work that is."""

import json
from pathlib import Path
from typing import Any, final

from calibrant.errors import FileError
from calibrant.files.atomic import atomic_text
from calibrant.temporary_folder import is_temporary

__all__ = ["SettingsFolder"]


@final
class SettingsFolder:
    """A folder of one piece of work, new or begun before.

    Args:
        path: Made by :meth:`begin`.
        schema: Name and version of what ``settings.json`` holds.
        work: What is done there, such as ``run``, for messages.
        command: What does it, such as ``calibrant train``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     folder = SettingsFolder(Path(path), "calibrant.run/1", work="run", command="calibrant train")
        ...     folder.check()
        ...     folder.begin({"settings": {"seed": 3}})
        ...     folder.document()["settings"]
        {'seed': 3}
    """

    def __init__(self, path: Path, schema: str, *, work: str, command: str) -> None:
        self.path, self.settings = path, path / "settings.json"
        self._schema, self._work, self._command = schema, work, command

    @property
    def is_begun(self) -> bool:
        """Whether it says what it is the folder of."""
        return self.settings.exists()

    def check(self) -> None:
        """Refuse what is neither new, nor empty, nor such a folder.

        Raises:
            FileError: If it holds something else.
        """
        if self.is_begun:
            self.document()
        elif self.path.exists() and not (self.path.is_dir() and all(map(is_temporary, self.path.iterdir()))):
            raise FileError(
                f"{self.path} must be a new or empty folder, or that of a {self._work} by {self._command}; it holds "
                "something else. Name another."
            )

    def begin(self, document: dict[str, Any]) -> None:
        """Make the folder, and write into it what it is the folder of, as JSON can hold it.

        Raises:
            FileError: If it cannot be made or written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path} could not be made: {error.strerror}.") from error
        with atomic_text(self.settings) as file:
            json.dump({"format": self._schema, **document}, file, indent=2)

    def document(self) -> dict[str, Any]:
        """What it says it is the folder of.

        Raises:
            FileError: If that cannot be read, or is of another kind of folder.
        """
        try:
            document = json.loads(self.settings.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(
                f"{self.settings} must be the settings of a {self._work}; it cannot be read ({error})."
            ) from error
        if not isinstance(document, dict) or document.get("format") != self._schema:
            raise FileError(
                f"{self.settings} must be the settings of a {self._work} by {self._command}; it is not. Name another "
                "folder."
            )
        if not isinstance(document.get("settings"), dict):
            raise FileError(f"{self.settings} must be the settings of a {self._work}; something in it is not right.")
        return document
