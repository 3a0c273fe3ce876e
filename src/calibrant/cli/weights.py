"""A network's weights from a safetensors file."""

from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from calibrant.bad_file import reading
from calibrant.errors import FileError
from calibrant.files.source import existing_file
from calibrant.inference import put_weights

__all__ = ["load_weights"]


def load_weights(model: nn.Module, path: Path) -> None:
    """Put them into the network.

    Args:
        model: Takes all of them, and no others.
        path: Of a safetensors file.

    Raises:
        FileError: If the file is no such file, or its weights are not this network's.
    """
    if path.suffix.lower() != ".safetensors":
        raise FileError(
            f"--weights must end in .safetensors; got {path}. Write them with "
            "safetensors.torch.save_model(network, path)."
        )
    file = existing_file(path, holding="a network's weights")
    with reading(file, "safetensors file"):
        put_weights(model, load_file(file), casts=True)
