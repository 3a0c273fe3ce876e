"""A network's weights from a safetensors file."""

from collections.abc import Iterable
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from calibrant.bad_file import reading
from calibrant.errors import FileError
from calibrant.sources.formats import existing_file

__all__ = ["load_weights"]

_FEW = 3  # names in a message


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
        stored = load_file(file)
    own = {name: values for name, values in model.state_dict().items() if isinstance(values, Tensor)}
    # Of weights that share memory the file format holds one.
    held = {own[name].data_ptr() for name in stored.keys() & own.keys()}
    missing = [name for name in own if name not in stored and own[name].data_ptr() not in held]
    others = [name for name in stored if name not in own]
    shapes = [name for name in own if name in stored and own[name].shape != stored[name].shape]
    told = [
        f"{len(names)} {what} ({_few(names)})"
        for names, what in ((missing, "missing"), (others, "not of it"), (shapes, "of another shape"))
        if names
    ]
    if told:
        raise FileError(f"{file} must hold the weights of this very network; {', '.join(told)}.")
    model.load_state_dict(stored, strict=False)  # the names were compared


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + ", …" * (len(listed) > _FEW)
