"""Maps as plain data and back: what kind each is, its settings and its parts. The numbers stay tensors.

The kinds are read from what :mod:`calibrant.maps` exports, so a new map is saved and read without a line here; a kind
in a file is only ever looked up among them, and nothing in a file is executed.
"""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from calibrant.errors import InputError
from calibrant.maps import FitSummary, Map, ProximityMap
from calibrant.numerics.certificate import Certificate

__all__ = ["AnyMap", "describe", "describe_fit", "kinds", "read_fit", "rebuild"]

AnyMap: TypeAlias = Map | ProximityMap  # the second looks at features beside logits

_MOST_CLASSES = 1 << 24  # no vocabulary is larger, and a damaged number must not ask for all memory


def kinds() -> dict[str, type[nn.Module]]:
    """Every map and curve that a file can hold, by its name there."""
    maps = import_module("calibrant.maps")
    exported = (getattr(maps, name) for name in maps.__all__)
    classes = (thing for thing in exported if isinstance(thing, type) and issubclass(thing, nn.Module))
    return {str(vars(kind)["kind"]): kind for kind in classes if not inspect.isabstract(kind)}


def describe(module: nn.Module) -> dict[str, Any]:
    """What a map or a curve is, and what its parts are.

    Raises:
        InputError: If it is none of ours: a file of it could not be read back.
    """
    name = str(getattr(module, "kind", ""))
    if kinds().get(name) is not type(module):
        raise InputError(f"a map to be saved must be one of calibrant.maps; got {type(module).__name__}.")
    described: dict[str, Any] = {"kind": name, "settings": module.settings(), "n_classes": None, "parts": {}}  # type: ignore[operator]
    if isinstance(module, Map | ProximityMap):
        described["n_classes"] = module.n_classes
    for part, child in module.named_children():
        listed = [_describe_part(each) for each in child] if isinstance(child, nn.ModuleList) else None
        described["parts"][part] = _describe_part(child) if listed is None else listed
    return described


def _describe_part(module: nn.Module) -> dict[str, Any]:
    summary = module.summary if isinstance(module, Map) else None
    return describe(module) | ({} if summary is None else {"fit": describe_fit(summary)})


def describe_fit(summary: FitSummary | None) -> dict[str, Any]:
    """How a map came about."""
    if summary is None:
        return {"method": None}
    return {
        "method": summary.method,
        "method_settings": summary.settings,
        "rows": summary.rows,
        "seconds": summary.seconds,
        "certificate": None if summary.certificate is None else summary.certificate._asdict(),
        "notes": list(summary.notes),
    }


def read_fit(described: Mapping[str, Any]) -> FitSummary | None:
    """The reverse of :func:`describe_fit`."""
    if described["method"] is None:
        return None
    certificate = described["certificate"]
    return FitSummary(
        method=described["method"],
        settings=described["method_settings"],
        rows=described["rows"],
        seconds=described["seconds"],
        certificate=None if certificate is None else Certificate(**certificate),
        notes=tuple(described["notes"]),
    )


def rebuild(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AnyMap:
    """The map that was described, with its numbers.

    Args:
        described: What :func:`describe` gave.
        tensors: Its numbers, by their names in the ``state_dict``.

    Raises:
        InputError: If a kind is not known, or numbers or settings are missing, too many, or do not fit together.
    """
    made = _make(described, tensors, "")
    if not isinstance(made, Map | ProximityMap):
        raise InputError(f"the outermost kind must be a map; got {described['kind']!r}.")
    kept, given = ({name: tuple(t.shape) for name, t in named.items()} for named in (made.state_dict(), tensors))
    if kept != given:
        odd = min(set(kept.items()) ^ set(given.items()))[0]
        raise InputError(f"the numbers must be those of a {described['kind']!r} map; {odd!r} is none of them.")
    _try(made)
    return made


def _make(described: Mapping[str, Any], tensors: Mapping[str, Tensor], place: str) -> nn.Module:
    name, known = described["kind"], kinds()
    if name not in known:
        raise InputError(
            f"every kind of map must be one of {', '.join(sorted(known))}; got {name!r}. A newer calibrant may know it."
        )
    inside = {key.removeprefix(place): tensor for key, tensor in tensors.items() if key.startswith(place)}
    arguments: dict[str, Any] = {key: tensor for key, tensor in inside.items() if "." not in key}
    arguments |= described["settings"]
    if described["n_classes"] is not None:
        arguments["n_classes"] = _class_count(described["n_classes"])
    for part, below in described["parts"].items():
        several = isinstance(below, list)
        arguments[part] = (
            [_make(each, tensors, f"{place}{part}.{number}.") for number, each in enumerate(below)]
            if several
            else _make(below, tensors, f"{place}{part}.")
        )
    _check_arguments(name, known[name], arguments)
    made = known[name](**arguments)
    if isinstance(made, Map) and "fit" in described:
        made.summary = read_fit(described["fit"])
    return made


def _class_count(given: Any) -> int:
    if type(given) is not int or not 2 <= given <= _MOST_CLASSES:
        raise InputError(f"n_classes must be a whole number from 2 to {_MOST_CLASSES:,}; got {given!r}.")
    return given


def _check_arguments(name: str, kind: type[nn.Module], arguments: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters
    needed = {each.name for each in parameters.values() if each.default is inspect.Parameter.empty}
    for wrong, verb in ((needed - set(arguments), "is missing"), (set(arguments) - set(parameters), "is not known")):
        if wrong:
            raise InputError(f"a {name!r} map must have {', '.join(parameters)}; {min(wrong)!r} {verb}.")


@torch.no_grad()
def _try(fitted: AnyMap) -> None:
    """One look at what it does to a few rows, so that sizes that do not fit are found now and not in use."""
    rows = torch.zeros(4, fitted.n_classes, dtype=torch.float64)
    rows[1, 0], rows[2, 0], rows[3, -1] = 30, -30, 30
    try:
        calibrated = (
            fitted(rows) if isinstance(fitted, Map) else fitted(rows, rows.new_ones(4, *fitted.reference[0].shape))
        )
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"the sizes of the numbers must fit together; using them failed: {why}.") from error
    if calibrated.shape != rows.shape or calibrated.isnan().any():
        raise InputError("a map must give a number for every class; it gives NaN, or another shape.")
