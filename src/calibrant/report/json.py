"""Turn records into plain data, and a page into a JSON document under a versioned schema."""

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from importlib.metadata import version
from pathlib import PurePath
from typing import Any

from calibrant.report.page import Page

__all__ = ["document", "to_json", "to_plain"]


def to_plain(value: Any) -> Any:  # noqa: PLR0911  # one line for every kind of value
    """Return dictionaries, lists, strings and numbers for any record.

    A dataclass or named tuple becomes a dictionary of its fields; fields that are not part of its ``repr``, such as a
    network, are left out. JSON has neither NaN nor infinity: both become None.

    Example:
        >>> from calibrant.evidence import Estimate
        >>> to_plain({"ece": Estimate(0.1, 0.05, float("nan"))})
        {'ece': {'value': 0.1, 'low': 0.05, 'high': None, 'floor': None, 'p': None}}
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {each.name: to_plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.repr}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    raise TypeError(f"a report must hold records and plain values; got {type(value).__name__}.")


def document(schema: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report as plain data: its schema, the version that wrote it, and its fields."""
    plain: dict[str, Any] = to_plain(fields)
    return {"schema": schema, "calibrant": version("calibrant"), **plain}


def to_json(page: Page) -> str:
    """Return the data of a page as JSON."""
    return json.dumps(page.data(), indent=2, ensure_ascii=False) + "\n"
