"""Save and load a fitted map: one safetensors file with its parts, its fit summary and a digest.

Its metadata has one JSON document under the key ``calibrant``. The document's first entry, ``sha256``, is a digest of
the rest of its text and of every tensor (name, type, shape and bits), so that a file that was damaged or edited is
refused. Files of the first version of each format have none and are still read.
"""

import hashlib
import inspect
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant import __version__, catalogue
from calibrant.atomic import atomic_path, save_tensors
from calibrant.checks import as_features, existing_file, with_devices_of_inputs
from calibrant.errors import FileError, InputError, reading
from calibrant.files.source import as_class_names
from calibrant.inference import state_digest
from calibrant.maps import FitSummary, Map, ProximityMap
from calibrant.metrics import ECE, NLL, Accuracy, Brier, Tally
from calibrant.numerics.newton import Certificate
from calibrant.predictions import Predictions, as_risk, has_risk

_KEY = "calibrant"
_SEAL, _DIGITS, _NEXT = '{"sha256": "', 64, '", '  # how the text of a document with a digest begins
_FIRST_WITH_DIGEST = 2  # version of a format


@final
@dataclass(frozen=True)
class Container:
    """A format of safetensors files with a document and a digest."""

    name: str  # name of the format, such as ``calibrant.map``
    number: int  # version of the format; newer ones are refused
    content: str  # its content, such as ``a map``
    advice: str  # how to make one, in a sentence

    def check_path(self, path: str | os.PathLike[str]) -> None:
        """Check that a name ends in ``.safetensors``."""
        if not Path(path).name.lower().endswith(".safetensors"):
            raise FileError(f"the name of {self.content}'s file must end in .safetensors; got {os.fspath(path)}.")

    def write(self, path: str | os.PathLike[str], document: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a document and tensors into one file, whole or not at all."""
        document = {"format": f"{self.name}/{self.number}", "calibrant": __version__, **document}
        # Copies, because the file format refuses tensors that share memory, as tied weights do.
        copied = {name: values.detach().cpu().contiguous().clone() for name, values in tensors.items()}
        with atomic_path(path) as file:
            save_tensors(copied, file, contents_metadata(document, copied))

    def read(self, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the document and the tensors, on the CPU, if they are of this kind and their digest matches."""
        from safetensors import safe_open

        with path.open("rb") as opened:
            if opened.read(9)[8:] != b"{":  # eight bytes of length, then JSON
                raise FileError(
                    f"{path} must be {self.content} saved by calibrant; it is not a safetensors file. {self.advice}"
                )
        with safe_open(str(path), framework="pt") as file:
            held = list(file.keys())
            text = (file.metadata() or {}).get(_KEY)
            if text is None:
                shown = ", ".join(map(repr, held[:5])) or "nothing"
                raise FileError(
                    f"{path} must be {self.content} saved by calibrant; it is a safetensors file of something else "
                    f"(found {shown}). {self.advice}"
                )
            document = json.loads(text)
            form, _, stated = str(document["format"]).partition("/")
            ours = f"{self.name}/{self.number}"
            if form != self.name or not stated.isdecimal():
                raise FileError(f"{path} must be {self.content} ({ours}); it is {document['format']!r}. {self.advice}")
            if int(stated) > self.number:
                raise FileError(
                    f"{path} was written by a newer calibrant ({document.get('calibrant')}): its format is "
                    f"{form}/{stated}, and {__version__} reads up to {ours}. Update calibrant."
                )
            tensors = {name: file.get_tensor(name).clone() for name in held}
        if ("sha256" in document or int(stated) >= _FIRST_WITH_DIGEST) and not digest_fits(text, tensors):
            raise FileError(
                f"{path} must hold what was written into it; it does not: its contents are not those that its digest "
                f"is of. It was damaged or edited; copy it again. {self.advice}"
            )
        return document, tensors


def contents_metadata(document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the metadata of a file: the document, preceded by a digest of it and of the tensors."""
    # One entry only, because the file format writes several in no fixed order.
    text = json.dumps({name: value for name, value in document.items() if name != "sha256"})
    return {_KEY: _sealed(text, tensors)}


def digest_fits(text: str, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the digest in a document's text is that of the text and the tensors; False if it has none."""
    rest = text[len(_SEAL) + _DIGITS + len(_NEXT) :]
    return text == _sealed(f"{{{rest}", tensors)


def _sealed(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(f"{state_digest(tensors)} {text}".encode()).hexdigest()
    return f"{_SEAL}{digest}{_NEXT}{text[1:]}"


@torch.no_grad()
def depends_on_offset(fitted: Map, logits: Tensor) -> bool:
    """Return whether probabilities of a map change when a number is added to a row of logits, tested on a few samples.

    The softmax does not, and neither do most maps. Those with a weight for each class do; to them logits, and the
    logarithms of the probabilities that these give, are different inputs.
    """
    few = logits[:: max(1, len(logits) // 256)].double()
    # Rounded, so that adding one is exact: otherwise a sample at the edge of a bin could change bins.
    few = (few * 256).round() / 256
    return bool(((fitted(few + 1).softmax(1) - fitted(few).softmax(1)).abs() > 1e-6).any())


AnyMap: TypeAlias = Map | ProximityMap  # a ProximityMap needs features as well as logits

_MOST_CLASSES = 1 << 24  # no vocabulary is larger
_TRIED = 1 << 12  # most classes of a map that is tested on a few samples
_MOST_PARTS = 10_000
_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Keys of the fields of FitSummary in a document; any other field has the key "fit_" + its name.
_FIT_KEYS = {name: name for name in ("method", "rows", "seconds", "certificate", "notes")}
_FIT_KEYS["settings"] = "method_settings"


def describe(module: nn.Module) -> dict[str, Any]:
    """Return a map or a curve, with its parts, as plain data; it must be one of the catalogue."""
    name = str(getattr(module, "kind", ""))
    if catalogue.maps.kinds.get(name) is not type(module):
        raise InputError(f"a map to be saved must be one of calibrant.maps; got {type(module).__name__}.")
    n_classes = module.n_classes if isinstance(module, Map | ProximityMap) else None
    described: dict[str, Any] = {"kind": name, "settings": module.settings(), "n_classes": n_classes, "parts": {}}  # type: ignore[operator]
    for extra in getattr(module, "optional_attributes", ()):  # which a map may have besides its constructor's arguments
        if not isinstance(value := getattr(module, extra, None), Tensor | nn.Module | None):
            described["settings"][extra] = value
    for part, child in module.named_children():
        several = isinstance(child, nn.ModuleList)
        described["parts"][part] = list(map(_describe_part, child)) if several else _describe_part(child)  # type: ignore[call-overload]
    return described


def _describe_part(module: nn.Module) -> dict[str, Any]:
    summary = module.summary if isinstance(module, Map) else None
    return describe(module) | ({} if summary is None else {"fit": describe_fit(summary)})


def describe_fit(summary: FitSummary | None) -> dict[str, Any]:
    """Return the summary of a fit as plain data."""
    if summary is None:
        return {"method": None}
    held = {_FIT_KEYS.get(entry.name, f"fit_{entry.name}"): getattr(summary, entry.name) for entry in fields(summary)}
    certificate = None if summary.certificate is None else summary.certificate._asdict()
    return held | {"certificate": certificate, "notes": list(summary.notes)}


def read_fit(described: Mapping[str, Any]) -> FitSummary | None:
    """Reverse :func:`describe_fit`; a field that an older file does not have keeps its default."""
    if described["method"] is None:
        return None
    held = {}
    for entry in fields(FitSummary):
        key = _FIT_KEYS.get(entry.name, f"fit_{entry.name}")
        if key in described:
            held[entry.name] = described[key]
        elif entry.name in _FIT_KEYS or (entry.default is MISSING and entry.default_factory is MISSING):
            raise InputError(f"the record of a fit must have {key!r}; it is missing.")
    _check_fit(held)
    certificate = held["certificate"]
    held["certificate"] = None if certificate is None else Certificate(**certificate)
    return FitSummary(**held | {"notes": tuple(held["notes"])})


def _check_fit(held: Mapping[str, Any]) -> None:
    def is_number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def is_count(value: object) -> bool:
        return type(value) is int and value >= 0

    def are_numbers(value: object) -> bool:
        return isinstance(value, dict) and all(map(is_number, value.values()))

    seconds, notes = held["seconds"], held["notes"]
    wanted = {
        "method must be text": isinstance(held["method"], str),
        "options must be plain values under names": isinstance(held["settings"], dict),
        "rows must be a whole number from 0": is_count(held["rows"]),
        "seconds must be a number from 0": is_number(seconds) and 0 <= seconds < math.inf,
        "notes must be a list of text": isinstance(notes, list) and all(isinstance(note, str) for note in notes),
        "compared must be a whole number from 0": is_count(held.get("compared", 0)),
        "before must be numbers under names": are_numbers(held.get("before", {})),
        "after must be numbers under names": are_numbers(held.get("after", {})),
        "certificate must be numbers under names": held["certificate"] is None or are_numbers(held["certificate"]),
    }
    for what, holds in wanted.items():
        if not holds:
            raise InputError(f"in the record of a fit, {what}; got something else.")


def rebuild(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AnyMap:
    """Build the map that :func:`describe` described, with its ``state_dict``; nothing larger is allocated.

    Kinds, numbers and settings that are unknown, missing, too many, out of range, or do not fit together are refused.
    """
    inside: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    # Earlier versions called the inverse temperature "coldness".
    tensors = {re.sub(r"(?<![^.])coldness$", "beta", name): tensor for name, tensor in tensors.items()}
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
    """Check that a map can be used: numbers in range, of sizes that fit together, and parts for the same classes."""
    parts = [part for part in fitted.modules() if isinstance(part, Map | ProximityMap)]
    if len(parts) > _MOST_PARTS:
        raise InputError(f"a map must have at most {_MOST_PARTS:,} parts; got {len(parts):,}.")
    for part in parts:
        if (other := part.n_classes) != fitted.n_classes:
            raise InputError(f"all parts must be for the same number of classes; got {fitted.n_classes} and {other}.")
        if isinstance(part, Map):
            part.check_share()
    fitted.check()
    if fitted.n_classes <= _TRIED:
        _try(fitted)


def _make(described: Mapping[str, Any], inside: Mapping[str, Mapping[str, Tensor]], place: str) -> nn.Module:
    name, known = described["kind"], catalogue.maps.kinds
    if name not in known:
        raise InputError(
            f"every kind of map must be one of {', '.join(sorted(known))}; got {name!r}. A newer calibrant may know it."
        )
    arguments: dict[str, Any] = {**inside.get(place, {}), **described["settings"]}
    if (n_classes := described["n_classes"]) is not None:
        if type(n_classes) is not int or not 2 <= n_classes <= _MOST_CLASSES:
            raise InputError(f"n_classes must be a whole number from 2 to {_MOST_CLASSES:,}; got {n_classes!r}.")
        arguments["n_classes"] = n_classes
    for part, below in described["parts"].items():
        if isinstance(below, list):
            arguments[part] = [_make(one, inside, f"{place}{part}.{number}.") for number, one in enumerate(below)]
        else:
            arguments[part] = _make(below, inside, f"{place}{part}.")
    optional = getattr(known[name], "optional_attributes", ())
    extras = {extra: arguments.pop(extra) for extra in optional if extra in arguments}
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


def _check_arguments(name: str, kind: type[nn.Module], arguments: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    for wrong, verb in ((needed - set(arguments), "is missing"), (set(arguments) - set(parameters), "is not known")):
        if wrong:
            raise InputError(f"a {name!r} map must have {', '.join(parameters)}; {min(wrong)!r} {verb}.")


@torch.no_grad()
def _try(fitted: AnyMap) -> None:
    """Apply a map to a few samples, so that sizes that do not match are noticed now and not in use."""
    rows = torch.zeros(4, fitted.n_classes, dtype=torch.float64)
    rows[1, 0], rows[2, 0], rows[3, -1] = 30, -30, 30
    try:
        features = () if isinstance(fitted, Map) else (rows.new_ones(4, *fitted.reference[0].shape),)
        calibrated = fitted(rows, *features)
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"the sizes of the numbers must fit together; using them failed: {why}.") from error
    if calibrated.shape != rows.shape or calibrated.isnan().any():
        raise InputError("a map must give a number for every class; it gives NaN, or another shape.")


def _about_samples(
    fitted: AnyMap, fitted_on: Predictions | None, features: object, *, is_sample: bool
) -> dict[str, Any]:
    """Return the kind, the digest, and metrics before and after of the samples of a fit; None each without them."""
    if fitted_on is None:
        return {"inputs": None, "digest": None, "before": None, "after": None}
    if fitted_on.n_classes != fitted.n_classes:
        raise InputError(f"fitted_on must have the map's {fitted.n_classes} classes; got {fitted_on.n_classes}.")
    fitted_on = fitted_on.with_positive_weights() if isinstance(fitted, Map) else fitted_on
    if not is_sample and fitted.summary is not None and fitted.summary.rows != len(fitted_on):
        raise InputError(f"fitted_on must be the {fitted.summary.rows:,} rows of the fit; got {len(fitted_on):,}.")
    if isinstance(fitted, Map):
        seen, calibrated = None, fitted.transform(fitted_on)
    else:
        seen = as_features(features, rows=len(fitted_on))
        calibrated = fitted.transform(fitted_on, seen)
    return {
        "inputs": "probabilities" if fitted_on.normalised else "logits",
        "digest": None if is_sample else digest(fitted_on, seen),
        **{key: _scores_of(rows) for key, rows in (("before", fitted_on), ("after", calibrated))},
    }


def _scores_of(samples: Predictions) -> dict[str, float]:
    """Return metrics of samples; the ECE of two classes is that of the probability of the second, as in reports."""
    values = Tally([NLL(), Brier(), ECE(), Accuracy()]).add(samples).values()
    return values | Tally([ECE()]).add(as_risk(samples)).values() if has_risk(samples) else values


def digest(predictions: Predictions, features: Tensor | None = None) -> str:
    """Return a digest of logits, labels and features; the same numbers in the same type and shape give the same."""
    taken = hashlib.sha256()
    for values in (predictions.logits, predictions.labels, features):
        if values is not None:
            taken.update(f"{values.dtype} {tuple(values.shape)} ".encode())
            taken.update(values.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return f"sha256:{taken.hexdigest()}"


MAP_CONTAINER = Container("calibrant.map", 2, "a map", "Make one with calibrant fit, or with save_map.")


@final
@dataclass(frozen=True, eq=False)
class MapFile:
    """The content of a map file."""

    map: AnyMap  # on the CPU
    class_names: tuple[str, ...] | None  # names of the classes it was fitted for, if known
    document: dict[str, Any]  # the method, its options and its fit


def check_class_names(names: Sequence[str] | None, n_classes: int) -> None:
    """Check names of the classes of a map, if they are given: one for each."""
    if names is not None and (isinstance(names, str) or len(names) != n_classes):
        raise InputError(f"class_names must name all {n_classes} classes; got {names!r}.")


@with_devices_of_inputs
def save_map(
    fitted: AnyMap,
    path: str | os.PathLike[str],
    *,
    fitted_on: Predictions | None = None,
    features: object = None,
    class_names: Sequence[str] | None = None,
    is_sample: bool = False,
) -> None:
    """Save a map to a ``.safetensors`` file that :func:`load_map` reads back; whole or not at all.

    Args:
        fitted: One of the maps of :mod:`calibrant.maps`.
        path: Path of the file; the folder must exist, and an existing file is replaced.
        fitted_on: The samples it was fitted on. The file then has their digest, whether they were logits or
            probabilities, and their log-loss, Brier score, calibration error and accuracy before and after: on samples
            that the map has seen, so they are optimistic.
        features: Features of these samples, for a map that needs features.
        class_names: One name per class; those of ``fitted_on``, or of its fit, if not given.
        is_sample: Whether ``fitted_on`` is a sample of the samples that it was fitted on; the file then has no digest.

    Example:
        >>> import tempfile
        >>> from calibrant.maps import Scale
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_map(Scale(torch.tensor(2.0), n_classes=3), f"{folder}/map.safetensors")
        ...     load_map(f"{folder}/map.safetensors")
        Scale(classes=3, temperature=2)
    """
    if not isinstance(fitted, Map | ProximityMap):
        hint = "The map comes first: save_map(fitted, path)." if isinstance(path, Map) else "Call fit first."
        raise InputError(f"what is saved must be a fitted map; got {type(fitted).__name__}. {hint}")
    MAP_CONTAINER.check_path(path)
    known = fitted.class_names if fitted_on is None else fitted_on.class_names
    names = known if class_names is None else class_names
    check_class_names(names, fitted.n_classes)
    described = describe(fitted)
    check_map(fitted)
    document = {
        "map": described,
        **describe_fit(fitted.summary),
        "class_names": None if names is None else [str(name) for name in names],
        **_about_samples(fitted, fitted_on, features, is_sample=is_sample),
    }
    MAP_CONTAINER.write(path, document, fitted.state_dict())


def load_map(path: str | os.PathLike[str]) -> Map:
    """Load the map in a file, on the CPU, with the summary of its fit; a FileError if the file is damaged or another.

    Give it the kind of input it was fitted on: some maps (``vector``, ``matrix``, ``ms_odir``) map logits differently
    from the logarithms of the same probabilities. ``read_map_file(path).document["inputs"]`` has the kind.
    """
    loaded = read_map_file(path).map
    if isinstance(loaded, ProximityMap):
        raise FileError(f"{os.fspath(path)} holds a map that needs features; read it with load_feature_map.")
    return loaded


def load_feature_map(path: str | os.PathLike[str]) -> ProximityMap:
    """Load the map that needs features in a file; see :func:`load_map`."""
    loaded = read_map_file(path).map
    if isinstance(loaded, Map):
        raise FileError(f"{os.fspath(path)} holds a map that needs logits only; read it with load_map.")
    return loaded


@with_devices_of_inputs
def read_map_file(path: str | os.PathLike[str]) -> MapFile:
    """Load the map in a file, the names of its classes, and the document about it; errors as :func:`load_map`."""
    file = existing_file(path, holding="a map")
    with reading(file, "map saved by calibrant"):
        document, tensors = MAP_CONTAINER.read(file)
        made = rebuild(document["map"], tensors)
        made.summary = read_fit(document)
        names = made.class_names = as_class_names(document["class_names"])
        check_class_names(names, made.n_classes)
        return MapFile(made, names, document)
