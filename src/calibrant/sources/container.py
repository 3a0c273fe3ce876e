"""The file around what is fitted: safetensors, whose metadata has one JSON document under the key ``calibrant``."""

import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from torch import Tensor

from calibrant.errors import FileError
from calibrant.sources.atomic import atomic_path
from calibrant.sources.tensors import save_tensors

__all__ = ["Container"]

_KEY = "calibrant"


@final
@dataclass(frozen=True)
class Container:
    """One kind of such files.

    Args:
        name: Of the format, such as ``calibrant.map``.
        number: Of its version; newer ones are refused.
        thing: What is in it, in words, such as ``a map``.
        advice: How to make one, in a sentence.
    """

    name: str
    number: int
    thing: str
    advice: str

    def check_path(self, path: str | os.PathLike[str]) -> None:
        """A name that says what the file will be.

        Raises:
            FileError: If it does not end in ``.safetensors``.
        """
        if not Path(path).name.lower().endswith(".safetensors"):
            raise FileError(f"the name of {self.thing}'s file must end in .safetensors; got {os.fspath(path)}.")

    def write(self, path: str | os.PathLike[str], document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Write both into one file, whole or not at all; the document says of which format and version it is."""
        document = {"format": f"{self.name}/{self.number}", "calibrant": version("calibrant"), **document}
        # Copies, because the file format refuses tensors that share memory, as tied weights do.
        copied = {name: values.detach().cpu().contiguous().clone() for name, values in tensors.items()}
        with atomic_path(path) as file:
            save_tensors(copied, file, {_KEY: json.dumps(document, ensure_ascii=False)})

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The document and the tensors, on the CPU.

        Raises:
            FileError: If the file is none of this kind, or of a newer version.
        """
        from safetensors import safe_open

        with path.open("rb") as opened:
            if opened.read(9)[8:] != b"{":  # eight bytes of length, then JSON
                raise FileError(
                    f"{path} must be {self.thing} saved by calibrant; it is no safetensors file. {self.advice}"
                )
        with safe_open(str(path), framework="pt") as file:
            held = list(file.keys())
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                shown = ", ".join(map(repr, held[:5])) or "nothing"
                raise FileError(
                    f"{path} must be {self.thing} saved by calibrant; it is a safetensors file of something else "
                    f"(found {shown}). {self.advice}"
                )
            document = json.loads(text)
            self._check_format(document, path)
            return document, {name: file.get_tensor(name).clone() for name in held}

    def _check_format(self, document: dict[str, Any], path: Path) -> None:
        form, _, number = str(document["format"]).partition("/")
        ours = f"{self.name}/{self.number}"
        if form != self.name or not number.isdecimal():
            raise FileError(
                f"{path} must be {self.thing} ({ours}); it says it is {document['format']!r}. {self.advice}"
            )
        if int(number) > self.number:
            raise FileError(
                f"{path} was written by a newer calibrant ({document.get('calibrant')}): its format is {form}/{number}"
                f", and {version('calibrant')} reads up to {ours}. Update calibrant."
            )
