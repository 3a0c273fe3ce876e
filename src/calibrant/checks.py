"""Check inputs: arrays, options and files."""

import difflib
import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from functools import partial, wraps
from inspect import get_annotations
from numbers import Integral, Real
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, get_args, get_origin

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import MULTI_LABEL, Argument, FileError, InputError, Row, UnknownNameError, check_kind

P = ParamSpec("P")
T = TypeVar("T")

MOST_BINS = 1_000_000
_MOST_SEED = 2**63 - 1  # largest seed that torch accepts
_IMAGES = 4  # axes of a batch of images
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def set_facts(kind: type, facts: Mapping[str, object]) -> None:
    """Make the keywords of a class statement attributes of the class; a base class must declare each of them."""
    declared = {name for base in kind.__mro__[1:] for name in get_annotations(base)}
    for name, fact in facts.items():
        if name not in declared:
            raise TypeError(f"a fact of {kind.__name__} must be declared by a base class; got {name}.")
        setattr(kind, name, fact)


def with_devices_of_inputs(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs on the devices of its inputs, whatever ``torch.set_default_device`` says."""

    @wraps(function)
    def run(*given: P.args, **options: P.kwargs) -> T:
        with nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu"):
            return function(*given, **options)

    return run


def are_images(inputs: Tensor) -> bool:
    """Return whether inputs are a batch of images, (n, c, h, w)."""
    return inputs.ndim == _IMAGES


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64; Apple GPUs do not."""
    return device.type != "mps"


def where_float64_is(values: Tensor) -> Tensor:
    """Return a tensor on its device if that has float64, or else on the CPU."""
    return values if has_float64(values.device) else values.cpu()


def or_in_float32(moved: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a move or cast of the tensors of a module that makes them float32 where a device has no float64."""

    def run(values: Tensor) -> Tensor:
        try:
            return moved(values)
        except TypeError:  # of such a device
            if values.dtype != torch.float64:
                raise
            return moved(values.float())

    return run


def as_tensor(values: object, name: str) -> Tensor:
    """Return a tensor, an array or nested lists as a dense tensor where float64 is, without a copy if possible."""
    if isinstance(values, Tensor):
        if values.is_meta:
            raise InputError(f"{name} must hold numbers; got a tensor on the meta device, which holds none. Load them.")
        if values.is_nested or values.layout != torch.strided or values.is_quantized:
            kind = "nested" if values.is_nested else "quantized" if values.is_quantized else "sparse"
            raise InputError(
                f"{name} must be a plain tensor; got a {kind} one. Pad it, or pass to_dense() or dequantize()."
            )
        return where_float64_is(values.detach())
    if np.ma.is_masked(values):
        raise InputError(f"{name} must hold numbers; some are masked. Fill them, or remove their rows.")
    try:
        array = np.asarray(values)  # lists of floats become float64, where torch would make them float32
        # Torch reads neither the other byte order nor, without a warning, memory that must not be written.
        readable = array.flags.writeable and array.dtype.isnative and all(stride >= 0 for stride in array.strides)
        return torch.from_numpy(array if readable else array.astype(array.dtype.newbyteorder("=")))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be a tensor, an array or nested lists of numbers; got {type(values).__name__} ({error})."
        ) from error


def first_not_finite(values: Tensor) -> list[int] | None:
    """Return the index of the first number that is not finite; None if all are, in one pass."""
    # The sum is fastest; it can overflow, and then minimum and maximum decide, which propagate NaN.
    if values.numel() == 0 or torch.isfinite(values.sum()) or all(torch.isfinite(end) for end in values.aminmax()):
        return None
    index: list[int] = (~torch.isfinite(values)).nonzero()[0].tolist()
    return index


def check_finite(values: Tensor, name: str) -> None:
    """Check that every number is finite."""
    index = first_not_finite(values)
    if index is None:
        return
    value, where, hint = values[tuple(index)].item(), "", ""
    if len(index) > 1:
        where = f", class {index[1]}"
        if value == -torch.inf:
            hint = ", or give probabilities, in which a class that is ruled out has a 0"
    raise InputError(f"{name} must be finite; got {value} at ", Row(index[0]), f"{where}. Remove the row{hint}.")


def check_unit_interval(values: Tensor, name: str, hint: str, *above: str | Argument) -> None:
    """Check that every number lies in 0..1; a hint ends the message, and more of it if none is below 0."""
    low, high = torch.aminmax(values)
    if low >= 0 and high <= 1:
        return
    check_finite(values, name)
    index = ((values < 0) | (values > 1)).nonzero()[0].tolist()
    raise InputError(
        f"{name} must lie in 0..1; got {text_outside(values[tuple(index)].item(), 1)} at ",
        *(Row(index[0]), f". {hint}", *(above if low >= 0 else ())),
    )


def text_outside(value: float, most: float) -> str:
    """Return a number outside 0..most with seven digits, or with all where seven would read as one that is inside.

    Example:
        >>> text_outside(85.5, 1), text_outside(100.000001, 100)
        ('85.5', '100.000001')
    """
    text = f"{value:.7g}"
    return repr(value) if 0 <= float(text) <= most else text


def check_class_numbers(labels: Tensor) -> Tensor:
    """Return class numbers, (n,) of an integer type, as int64."""
    if labels.ndim != 1:
        raise InputError(
            f"labels must be one number a row, shape (n,); got shape {tuple(labels.shape)}. "
            "If they are one-hot, pass labels.argmax(1). ",
            *MULTI_LABEL,
        )
    if labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"labels must be whole numbers of an integer type; got {labels.dtype}. "
            "If they are class numbers, convert them: labels.astype(int) of an array, labels.long() of a tensor."
        )
    return labels.to(torch.int64)


def as_whole_numbers(labels: Tensor) -> Tensor:
    """Return labels of a floating type as int64 if they are whole numbers (5.0, as pandas makes them); others as given.

    An InputError names the first that is not whole.
    """
    if not labels.is_floating_point():
        return labels
    stray = (labels != labels.round()).nonzero()  # also NaN; the rounding of infinity is infinity
    stray = stray if stray.numel() else labels.isinf().nonzero()
    if stray.numel():
        place = tuple(stray[0].tolist())
        row = Row(place[0] if place else 0)
        raise InputError(f"labels must be whole numbers; got {labels[place].item():g} at ", row, ".")
    return labels.to(torch.int64)


def check_labels(labels: Tensor, n_classes: int) -> Tensor:
    """Return labels, (n,) of an integer type in 0..k-1, as int64."""
    labels = check_class_numbers(labels)
    if labels.numel() and not 0 <= labels.amin() <= labels.amax() < n_classes:
        row = int(((labels < 0) | (labels >= n_classes)).nonzero()[0])
        hint = ""
        if labels[row] == n_classes and labels.min() >= 1:
            hint = " If they start at 1, subtract 1; in a table, the columns of the scores may start at 1 too."
        raise InputError(
            f"labels must lie in 0..{n_classes - 1}, as there are {n_classes} classes; got {int(labels[row])} at ",
            *(Row(row), f".{hint}"),
        )
    return labels


def check_real(values: Tensor, name: str) -> Tensor:
    """Return real numbers, integers as float64."""
    if values.is_complex() or values.dtype == torch.bool:
        raise InputError(f"{name} must be real numbers; got {values.dtype}.")
    if values.is_floating_point() and values.dtype not in _FLOATS:  # torch lacks most operations on float8 and float4
        raise InputError(f"{name} must be float16, bfloat16, float32 or float64; got {values.dtype}. Convert them.")
    return values if values.is_floating_point() else values.double()


def as_features(values: object, *, rows: int | None = None, name: str = "features") -> Tensor:
    """Return a matrix of finite numbers with one row per sample; an InputError says where it is something else."""
    features = check_real(as_tensor(values, name), name)
    if features.ndim != 2 or 0 in features.shape:
        raise InputError(
            f"{name} must have shape (n, d), one row per sample; got {tuple(features.shape)}. "
            "Flatten what the layer gives, for example features.flatten(1)."
        )
    if rows is not None and len(features) != rows:
        raise InputError(
            f"{name} must have as many rows as the predictions, {rows}; got {len(features)}. Take both from one pass."
        )
    if (place := first_not_finite(features)) is not None:
        raise InputError(
            f"{name} must be finite; got {features[*place].item()} at ",
            *(Row(place[0]), f", column {place[1]}. Remove the sample from the predictions too."),
        )
    return features


_LEAST_WEIGHT, _MOST_WEIGHT = 1e-100, 1e100  # their squares are numbers too


def check_weights(weights: object, samples: Tensor) -> Tensor:
    """Return weights of the samples, (n,), as float64 on their device: finite, at least 0, not all of them 0."""
    values = check_real(as_tensor(weights, "weights"), "weights").to(samples.device, torch.float64)
    if values.shape != samples.shape[:1]:
        raise InputError(f"weights must have shape ({samples.shape[0]},), one a sample; got {tuple(values.shape)}.")
    allowed = (values == 0) | ((values >= _LEAST_WEIGHT) & (values <= _MOST_WEIGHT))
    if not allowed.all():
        row = int((~allowed).nonzero()[0])
        raise InputError(
            f"weights must be finite and at least 0 (if not 0, between {_LEAST_WEIGHT:g} and {_MOST_WEIGHT:g}); "
            f"got {float(values[row]):g} at ",
            *(Row(row), ". Remove the sample, or give it weight 0."),
        )
    if not values.any():
        raise InputError("weights must not all be 0; got only zeros. Without weights, every sample counts alike.")
    return values


def check_same_length(first: Tensor, first_name: str, second: Tensor, second_name: str) -> None:
    """Check that two columns have the same number of rows."""
    if first.shape[:1] != second.shape[:1]:
        raise InputError(
            f"{first_name} and {second_name} must have the same number of rows; "
            f"got {first.shape[0]} and {second.shape[0] if second.ndim else 'a single number'}."
        )


def check_positive(value: object, name: str) -> float:
    """Check 0 < value < inf; return a Python number."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise InputError(f"{name} must be above 0 and finite; got {value!r}.")
    return number


def check_real_number(value: object, name: str, *, least: float, most: float = math.inf) -> float:
    """Check least <= value <= most and finite; return a Python number."""
    number = _number(value)
    if not (least <= number <= most and abs(number) < math.inf):
        bounds = f"at least {least:g} and finite" if most == math.inf else f"between {least:g} and {most:g}"
        bounds = "a finite number" if least == -math.inf else bounds
        raise InputError(f"{name} must be {bounds}; got {value!r}.")
    return number


def check_open_unit(value: object, name: str) -> float:
    """Check 0 < value < 1; return a Python number."""
    number = _number(value)
    if not 0 < number < 1:
        raise InputError(f"{name} must lie between 0 and 1, without these; got {value!r}.")
    return number


def check_rates(rates: object, name: str = "error_rates") -> tuple[float, ...]:
    """Return error rates, or thresholds of a risk, each between 0 and 1."""
    if isinstance(rates, str) or not isinstance(rates, Iterable):
        raise InputError(f"{name} must be a list of shares, such as [0.05]; got {rates!r}.")
    return tuple(check_open_unit(rate, f"each of {name}") for rate in rates)


def _number(value: object) -> float:
    """Convert to a Python number, which JSON can hold; NaN if it is not a number, or too large."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return value if isinstance(value, int) else number


def check_rows(n: int) -> None:
    """Check that there is at least one row."""
    if n == 0:
        raise InputError("predictions must have at least one row; got none.")


def check_at_least(value: object, least: int, name: str, *, most: int | None = None) -> int:
    """Check a whole number, not a bool, of at least ``least`` and at most ``most``; return a Python int."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number; got {value!r}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}; got {value}.")
    if most is not None and int(value) > most:
        raise InputError(f"{name} must be at most {most}; got {value}.", argument=name)
    return int(value)


def check_bins(value: object, name: str = "n_bins", *, least: int = 1) -> int:
    """Check a number of bins (``--bins``, ``n_bins``): a whole number, at most 1,000,000."""
    return check_at_least(value, least, name, most=MOST_BINS)


def check_seed(seed: object) -> int:
    """Check a seed that torch accepts; return a Python int."""
    return check_at_least(seed, 0, "seed", most=_MOST_SEED)


def check_evidence(n_bins: object, resamples: object, seed: object) -> tuple[int, int, int]:
    """Check the number of bins and of resamples and the seed of an evaluation; return Python ints."""
    return check_bins(n_bins), check_at_least(resamples, 2, "resamples"), check_seed(seed)


def check_bool(value: object, name: str) -> None:
    """Check that a value is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False; got {value!r}.")


def check_known(name: object, known: Iterable[str], what: str) -> None:
    """Check that a name is known; the UnknownNameError suggests the closest."""
    names = list(known)
    if isinstance(name, str) and name in names:
        return
    lower = {known_name.lower(): known_name for known_name in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1) if isinstance(name, str) else []
    hint = f" Did you mean {lower[close[0]]}?" if close else ""
    choice = f"one of {', '.join(names)}" if names else "left out, as there are none"
    raise UnknownNameError(f"{what} must be {choice}; got {name!r}.{hint}")


# Types of options that carry their range, for check_options. A check returns the number.
Finite: TypeAlias = Annotated[float, partial(check_real_number, least=-math.inf)]
Positive: TypeAlias = Annotated[float, check_positive]
NonNegative: TypeAlias = Annotated[float, partial(check_real_number, least=0)]
UnitInterval: TypeAlias = Annotated[float, partial(check_real_number, least=0, most=1)]
PositiveShare: TypeAlias = Annotated[float, check_positive, partial(check_real_number, least=0, most=1)]
OpenUnitInterval: TypeAlias = Annotated[float, check_open_unit]
AtLeastZero: TypeAlias = Annotated[int, partial(check_at_least, least=0)]
AtLeastOne: TypeAlias = Annotated[int, partial(check_at_least, least=1)]
AtLeastTwo: TypeAlias = Annotated[int, partial(check_at_least, least=2)]
BinCount: TypeAlias = Annotated[int, check_bins]
Seed: TypeAlias = Annotated[int, partial(check_at_least, least=0, most=_MOST_SEED)]


def check_options(record: Any) -> None:
    """Check the options of a dataclass against their types: ranges, words of a Literal, text, numbers, and bools.

    NumPy's numbers become Python's own, which files can hold.
    """
    for field in fields(record):
        if field.init:
            given = getattr(record, field.name)
            checked = _checked_option(given, field.type, field.name)
            if checked is not given:
                object.__setattr__(record, field.name, checked)


def expression_of(record: Any) -> str:
    """Return the ``name`` of a frozen record with its options that differ from the defaults, as users write it."""
    options = [
        f"{field.name}={_written(getattr(record, field.name))}"
        for field in fields(record)
        if getattr(record, field.name) != field.default
    ]
    return f"{record.name}({','.join(options)})" if options else str(record.name)


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    return str(getattr(value, "expression", value))


def _checked_option(value: Any, hint: Any, name: str) -> Any:
    form, parts = get_origin(hint), [part for part in get_args(hint) if part is not type(None)]
    if form is Annotated:
        for check in hint.__metadata__:
            value = check(value, name=name)
    elif form is Literal and not (isinstance(value, Hashable) and value in parts):
        check_known(value, map(str, parts), name)
    elif form is tuple:
        if not isinstance(value, Iterable) or isinstance(value, str):
            raise InputError(f"{name} must be a tuple; got {value!r}.")
        return tuple(_checked_option(item, parts[0], f"each of {name}") for item in value)
    elif hint is bool:
        check_bool(value, name)
    elif hint is float and math.isnan(value := _number(given := value)):
        raise InputError(f"{name} must be a number; got {given!r}.")
    elif hint is str and not isinstance(value, str):
        raise InputError(f"{name} must be text; got {value!r}.")
    elif len(parts) == 1 and value is not None:  # an option that may be None
        return _checked_option(value, parts[0], name)
    return value


def stays_inside(name: str) -> bool:
    """Return whether a file of this name stays inside the folder that it is unpacked into, on every system."""
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive)


def existing_file(path: str | os.PathLike[str], *, holding: str = "predictions") -> Path:
    """Return the path of a file that exists and is not empty; ``holding`` names its content in messages."""
    check_kind(path, (str, os.PathLike), "path", "Name a file.")
    file = Path(path)
    try:
        size = file.stat().st_size
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        raise FileError(f"{file} must be an existing file; {reason}. The current folder is {Path.cwd()}.") from error
    if file.is_dir():
        raise FileError(f"{file} must be a file; it is a folder. Name one file in it.")
    if file.is_file() and size == 0:
        raise FileError(f"{file} must hold {holding}; it is empty. The program that wrote it may have been stopped.")
    return file
