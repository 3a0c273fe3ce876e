"""Maps as plain data and back: what kind each is, its settings and its parts. The numbers stay tensors.

The kinds are read from what :mod:`calibrant.maps` exports, so a new map is saved and read without a line here; a kind
in a file is only ever looked up among them, and nothing in a file is executed.
"""

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from calibrant.errors import InputError
from calibrant.maps import FitSummary, Map, ProximityMap
from calibrant.numerics.certificate import Certificate

__all__ = ["AnyMap", "check_map", "describe", "describe_fit", "kinds", "read_fit", "rebuild"]

AnyMap: TypeAlias = Map | ProximityMap  # the second looks at features beside logits

_MOST_CLASSES = 1 << 24  # no vocabulary is larger
_TRIED = 1 << 12  # classes of a map that is tried on a few rows; with more, the sizes of its numbers must be enough
_MOST_PARTS = 10_000
_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What a field of FitSummary is called in a document; any other is called by its own name after "fit_".
_FIT_KEYS = {
    "method": "method",
    "settings": "method_settings",
    "rows": "rows",
    "seconds": "seconds",
    "certificate": "certificate",
    "notes": "notes",
}


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
    plain = {extra: getattr(module, extra, None) for extra in _extras(module)}
    described["settings"] |= {
        extra: value for extra, value in plain.items() if not isinstance(value, Tensor | nn.Module | None)
    }
    for part, child in module.named_children():
        listed = [_describe_part(each) for each in child] if isinstance(child, nn.ModuleList) else None
        described["parts"][part] = _describe_part(child) if listed is None else listed
    return described


def _extras(module: nn.Module | type[nn.Module]) -> tuple[str, ...]:
    """Names of what a map may have beside what its constructor takes."""
    return tuple(getattr(module, "extras", ()))


def _describe_part(module: nn.Module) -> dict[str, Any]:
    summary = module.summary if isinstance(module, Map) else None
    return describe(module) | ({} if summary is None else {"fit": describe_fit(summary)})


def describe_fit(summary: FitSummary | None) -> dict[str, Any]:
    """How a map came about."""
    if summary is None:
        return {"method": None}
    held = {_FIT_KEYS.get(each.name, f"fit_{each.name}"): getattr(summary, each.name) for each in fields(summary)}
    certificate = None if summary.certificate is None else summary.certificate._asdict()
    return held | {"certificate": certificate, "notes": list(summary.notes)}


def read_fit(described: Mapping[str, Any]) -> FitSummary | None:
    """The reverse of :func:`describe_fit`; a field that the file, being older, does not have is left at its default.

    Raises:
        InputError: If one is of another type, or a count is negative.
    """
    if described["method"] is None:
        return None
    held = {}
    for each in fields(FitSummary):
        key = _FIT_KEYS.get(each.name, f"fit_{each.name}")
        if key in described:
            held[each.name] = described[key]
        elif each.name in _FIT_KEYS or (each.default is MISSING and each.default_factory is MISSING):
            raise InputError(f"the record of a fit must have {key!r}; it has not.")
    _check_fit(held)
    certificate = held["certificate"]
    held["certificate"] = None if certificate is None else Certificate(**certificate)
    return FitSummary(**held | {"notes": tuple(held["notes"])})


def _check_fit(held: Mapping[str, Any]) -> None:
    certificate = {} if held["certificate"] is None else held["certificate"]
    wanted = {
        "method must be text": isinstance(held["method"], str),
        "options must be plain values under names": isinstance(held["settings"], dict),
        "rows must be a whole number from 0": type(held["rows"]) is int and held["rows"] >= 0,
        "seconds must be a number from 0": _is_number(held["seconds"]) and 0 <= held["seconds"] < math.inf,
        "notes must be a list of text": isinstance(held["notes"], list)
        and all(isinstance(note, str) for note in held["notes"]),
        "compared must be a whole number from 0": type(held.get("compared", 0)) is int and held.get("compared", 0) >= 0,
        "before and after must be numbers under names": all(
            isinstance(held.get(key, {}), dict) and all(map(_is_number, held.get(key, {}).values()))
            for key in ("before", "after")
        ),
        "certificate must be numbers under names": isinstance(certificate, dict)
        and all(map(_is_number, certificate.values())),
    }
    for what, holds in wanted.items():
        if not holds:
            raise InputError(f"in the record of a fit, {what}; got something else.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rebuild(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AnyMap:
    """The map that was described, with its numbers. Nothing is allocated that is larger than these.

    Args:
        described: What :func:`describe` gave.
        tensors: Its numbers, by their names in the ``state_dict``.

    Raises:
        InputError: If a kind is not known, or numbers or settings are missing, too many, out of range, or do not fit
            together.
    """
    inside: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES or tensor.isnan().any():
            raise InputError(f"the numbers {name!r} must be real and not NaN; got {tensor.dtype}, or NaN in them.")
        place, dot, own = name.rpartition(".")
        inside[place + dot][own] = tensor
    made = _make(described, inside, "")
    if not isinstance(made, Map | ProximityMap):
        raise InputError(f"the outermost kind must be a map; got {described['kind']!r}.")
    kept, given = ({name: tuple(t.shape) for name, t in named.items()} for named in (made.state_dict(), tensors))
    if kept != given:
        odd = min(set(kept.items()) ^ set(given.items()))[0]
        raise InputError(f"the numbers must be those of a {described['kind']!r} map; {odd!r} is none of them.")
    check_map(made)
    return made


def check_map(fitted: AnyMap) -> None:
    """See that a map can be used: numbers in range, of sizes that fit together, and parts for the same classes.

    Raises:
        InputError: If it cannot.
    """
    parts = [part for part in fitted.modules() if isinstance(part, Map | ProximityMap)]
    if len(parts) > _MOST_PARTS:
        raise InputError(f"a map must have at most {_MOST_PARTS:,} parts; got {len(parts):,}.")
    for part in parts:
        if part.n_classes != fitted.n_classes:
            raise InputError(
                f"all parts must be for the same number of classes; got {fitted.n_classes} and {part.n_classes}."
            )
        if isinstance(part, Map):
            part.check_share()
    fitted.check()
    if fitted.n_classes <= _TRIED:
        _try(fitted)


def _make(described: Mapping[str, Any], inside: Mapping[str, Mapping[str, Tensor]], place: str) -> nn.Module:
    name, known = described["kind"], kinds()
    if name not in known:
        raise InputError(
            f"every kind of map must be one of {', '.join(sorted(known))}; got {name!r}. A newer calibrant may know it."
        )
    arguments: dict[str, Any] = {**inside.get(place, {}), **described["settings"]}
    if described["n_classes"] is not None:
        arguments["n_classes"] = _class_count(described["n_classes"])
    for part, below in described["parts"].items():
        several = isinstance(below, list)
        arguments[part] = (
            [_make(each, inside, f"{place}{part}.{number}.") for number, each in enumerate(below)]
            if several
            else _make(below, inside, f"{place}{part}.")
        )
    extras = {extra: arguments.pop(extra) for extra in _extras(known[name]) if extra in arguments}
    _check_arguments(name, known[name], arguments)
    made = known[name](**arguments)
    for extra, value in extras.items():
        if isinstance(value, Tensor):
            made.register_buffer(extra, value)
        else:
            setattr(made, extra, value)
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
