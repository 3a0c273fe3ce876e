"""Named tensors into a safetensors file that :func:`~calibrant.files.atomic.atomic_path` lends."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

__all__ = ["save_tensors"]


def save_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write them.

    Raises:
        OSError: If the system refuses; the library itself makes an error of its own of a full disk.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), file, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        raise OSError(str(error)) from error
