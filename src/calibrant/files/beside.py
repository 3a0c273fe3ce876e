"""What stands in a file beside scores and labels: read to be written again beside the calibrated scores."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from torch import Tensor

from calibrant.errors import InputError
from calibrant.files.columns import Choice, has_meaning
from calibrant.files.content import Column, Content, Words
from calibrant.files.formats import suffix_of

__all__ = ["can_hold", "names_beside", "read_beside"]

_ARCHIVES = (".npz", ".pt", ".pth", ".safetensors")
_TENSORS_ONLY = (".pt", ".pth", ".safetensors")
_TAKEN = {"class_names", "file", "allow_pickle"}  # the last two are arguments of NumPy's savez


def names_beside(content: Content, choice: Choice) -> tuple[str, ...]:
    """Every name that was not chosen, in the source's order."""
    chosen = {*choice.scores, choice.labels}
    return tuple(dict.fromkeys(name for name in content.names if name not in chosen))


def read_beside(content: Content, choice: Choice, rows: int) -> dict[str, Column]:
    """What has one entry a row, such as features or identifiers, by name.

    Left out: other scores and labels, which would stand uncalibrated beside the new ones; what stands under one name
    twice, or under a name that leads out of an archive (``../``); what has another length, which is not even read; and
    all of a CSV file, whose text could only be guessed at ("007" is an identifier).

    Args:
        content: The source.
        choice: What of it are the scores and labels.
        rows: How many there are.
    """
    if content.where is not None and suffix_of(content.where).startswith(".csv"):
        return {}
    times = Counter(content.names)
    free = [
        name
        for name in names_beside(content, choice)
        if not has_meaning(name)
        and name not in _TAKEN
        and times[name] == 1
        and _stays_inside(name)
        and content.shape(name)[:1] in {(rows,), (None,)}
    ]
    read = _readable(content, free)
    return {name: column for name, column in read.items() if _length(column) == rows}


def can_hold(suffix: str, column: Column) -> bool:
    """Whether a file of that ending can hold it: matrices want an archive, and text is no tensor."""
    if isinstance(column, Words):
        return suffix not in _TENSORS_ONLY
    return suffix in _ARCHIVES or (column.ndim == 1 and not column.is_complex())


def _stays_inside(name: str) -> bool:
    """Whether a file of that name, which it is in an archive, would lie where the archive is unpacked."""
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive
    return name.isprintable() and not outside


def _readable(content: Content, names: Sequence[str]) -> dict[str, Column]:
    """All that can be read at all, by halves, so that one odd column costs few passes over the file."""
    try:
        return content.read(names, None) if names else {}
    except InputError:
        middle = len(names) // 2
        halves = (names[:middle], names[middle:]) if middle else ()
        return {name: column for half in halves for name, column in _readable(content, half).items()}


def _length(column: Column) -> int | None:
    values = column if isinstance(column, Tensor) else column.codes
    return values.shape[0] if values.ndim else None
