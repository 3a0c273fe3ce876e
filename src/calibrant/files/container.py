"""The file around what is fitted: safetensors, whose metadata has one JSON document under the key ``calibrant``.

The document's first entry, ``sha256``, is a digest of the rest of its text and of every tensor (name, type, shape and
bits), so that a file that was damaged or edited is refused. Files of the first version of each format have none and are
still read.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

from torch import Tensor

from calibrant.atomic import atomic_path, save_tensors
from calibrant.errors import FileError
from calibrant.inference import state_digest

__all__ = ["Container", "contents_metadata", "digest_fits"]

_KEY = "calibrant"
_SEAL, _DIGITS, _NEXT = '{"sha256": "', 64, '", '  # how the text of a document with a digest begins
_FIRST_WITH_DIGEST = 2  # version of a format


@final
@dataclass(frozen=True)
class Container:
    """One kind of such files.

    Args:
        name: Name of the format, such as ``calibrant.map``.
        number: Version of the format; newer ones are refused.
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
            save_tensors(copied, file, contents_metadata(document, copied))

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The document and the tensors, on the CPU.

        Raises:
            FileError: If the file is none of this kind, of a newer version, or not as it was written.
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
            number = self._version(document, path)
            tensors = {name: file.get_tensor(name).clone() for name in held}
        if ("sha256" in document or number >= _FIRST_WITH_DIGEST) and not digest_fits(text, tensors):
            raise FileError(
                f"{path} must hold what was written into it; it does not: its contents are not those that its digest "
                "is of. It was damaged or edited; copy it again, or make it anew."
            )
        return document, tensors

    def _version(self, document: dict[str, Any], path: Path) -> int:
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
        return int(number)


def contents_metadata(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """What stands in a file's metadata: the document, with a digest of it and of the tensors in front."""
    # One entry only, because the file format writes several in no certain order.
    text = json.dumps({name: value for name, value in document.items() if name != "sha256"})
    return {_KEY: _sealed(text, tensors)}


def digest_fits(text: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a document's text and the tensors are those that the digest in it is of; not if there is none."""
    rest = text[len(_SEAL) + _DIGITS + len(_NEXT) :]
    return text == _sealed(f"{{{rest}", tensors)


def _sealed(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(f"{state_digest(tensors)} {text}".encode()).hexdigest()
    return f"{_SEAL}{digest}{_NEXT}{text[1:]}"
