"""Records of numbers, as a file can hold them."""

import dataclasses
import math
from abc import ABC
from collections.abc import Mapping
from typing import Any, final

from torch import Tensor

__all__ = ["Record"]


class Record(ABC):  # noqa: B024  # abstract in that only frozen dataclasses below it are made
    """What a diagnosis finds; concrete ones are frozen dataclasses."""

    @final
    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it: numbers that do not exist (NaN) are None, tensors are lists."""
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: object) -> Any:
    if isinstance(value, Record):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]  # concrete records are dataclasses
        return {field.name: _plain(getattr(value, field.name)) for field in fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
