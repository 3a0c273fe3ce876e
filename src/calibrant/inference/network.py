"""A frozen network: its device, mode and weights, its logits and features, and whether it takes the samples."""

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from calibrant.checks import check_labels, has_float64
from calibrant.errors import Argument, CalibrantError, InputError, one_line, warn
from calibrant.inference.samples import LabelledInputs
from calibrant.text import listed

if TYPE_CHECKING:
    from calibrant.models import Network

__all__ = [
    "HOW_TO_WRAP", "NAME_LAYER", "check_float64", "check_network", "device_of", "evaluating", "extract_logits",
    "features_of", "find_layer", "forward_errors", "frozen", "is_training", "load_weights", "logits_and_features",
    "network_digest", "network_state", "set_evaluating", "state_digest", "tensors_under", "warn_if_training",
    "with_features",
]  # fmt: skip

HOW_TO_WRAP = (
    "Wrap it: an nn.Module whose method features(x) gives the activations before the last layer, (n, d), and whose "
    "head is that layer, so that forward(x) is head(features(x))."
)
NAME_LAYER = ("Name its last layer, as in ", Argument("layer", "fc"), f". Or w{HOW_TO_WRAP[1:]}")
_RETURN_LOGITS = "Wrap the network in a module that returns them."
_SHOWN_NAMES = 3
_SHOWN_LAYERS = 5


def device_of(model: nn.Module) -> torch.device:
    """Return the one device of a network."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(devices) > 1:
        raise InputError(
            f"the network must be on one device; it is on {', '.join(sorted(map(str, devices)))}.", argument="model"
        )
    return next(iter(devices), torch.device("cpu"))


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Freeze a network within the block: evaluation mode, no gradients of parameters; inputs can have gradients.

    The latter holds under ``inference_mode`` too, unless the weights were made under it, which is refused. Afterwards
    every module's mode and every parameter's ``requires_grad`` are restored, also after an exception.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"model must be an nn.Module; got {type(model).__name__}. Wrap a function in a module; for an exported "
            "program pass .module()."
        )
    _check_has_weights(model)
    requires_grad = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers())):
        raise InputError(
            "the network's weights must let gradients through to its inputs; these were made under "
            "torch.inference_mode, and never do. Make the network outside of it.",
            argument="model",
        )
    gradients = torch.is_grad_enabled()
    try:
        for parameter, _ in requires_grad:
            parameter.requires_grad_(False)
        # Leaving inference_mode alone would switch gradients on.
        with evaluating(model), torch.inference_mode(mode=False), torch.set_grad_enabled(gradients):
            yield
    finally:
        for parameter, flag in requires_grad:
            parameter.requires_grad_(flag)


def _check_has_weights(model: nn.Module) -> None:
    if any(map(nn.parameter.is_lazy, (*model.parameters(), *model.buffers()))):
        raise InputError("a network with lazy layers must run on a batch once, which makes their weights.")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode within the block; afterwards each module's mode is restored."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        set_evaluating(model)
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def set_evaluating(model: nn.Module) -> None:
    """Put every module into evaluation mode; not by ``eval()``, which exported modules refuse and others override."""
    for module in model.modules():
        module.training = False


def is_exported(model: nn.Module) -> bool:
    """Return whether torch.export made the network."""
    return isinstance(model, torch.fx.GraphModule) and "train" in vars(model)  # set by torch to refuse train()


def is_training(model: nn.Module) -> bool:
    """Return whether a network is in training mode; an exported one is always in the mode of its export."""
    return model.training and not is_exported(model)


def warn_if_training(model: nn.Module) -> None:
    """Warn that a network in training mode makes other predictions than those it was calibrated for."""
    if isinstance(model, nn.Module) and is_training(model):
        warn(
            "the network is in training mode, and stays so; it was calibrated in evaluation mode. Call eval() on the "
            "clamped model before you use it."
        )


def extract_logits(output: object) -> Tensor:
    """Return the logits, (n, k), in a network's output: the output itself, its ``logits``, or its first tensor.

    Their shape and type are checked, values are not, so probabilities pass.
    """
    logits: object = None
    if isinstance(output, Tensor):
        logits = output
    elif isinstance(output, Mapping):
        logits = output.get("logits")
    elif hasattr(output, "logits"):  # before the tuple: the first field of a named one need not be the logits
        logits = output.logits
    elif isinstance(output, (tuple, list)):  # torch 2.6 compiles neither a union of types nor next with a default
        tensors = [part for part in output if isinstance(part, Tensor)]
        logits = tensors[0] if tensors else None
    if not isinstance(logits, Tensor):
        got = type(output).__name__
        if isinstance(output, Mapping):
            got += f" of {', '.join(map(repr, output)) or 'nothing'}"
        elif isinstance(output, tuple | list) and not hasattr(output, "logits"):
            got += f" of {', '.join(type(part).__name__ for part in output) or 'nothing'}"
        raise InputError(
            "a network must return logits: a tensor, a tuple whose first tensor they are, or an output with the name "
            f"'logits'; got {got}. {_RETURN_LOGITS}",
            argument="model",
        )
    if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
        single = logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1)
        wrap = "If it gives one logit z per sample, wrap it to give the columns 0 and z."
        raise InputError(
            "a network's logits must be real numbers of shape (n, k), one row per sample, with at least two classes; "
            f"got {logits.dtype} of shape {tuple(logits.shape)}. {wrap if single else _RETURN_LOGITS}",
            argument="model",
        )
    return logits


def with_features(model: object, *advice: str | Argument) -> "Network":
    """Return the network as one with ``features`` and ``head``; if it has none, the error ends with the advice."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    # A layer named features, as in torchvision's networks, gives activations long before the last layer.
    missing = ["method features"] if not callable(features) or isinstance(features, nn.Module) else []
    missing += ["layer head"] if not isinstance(head, nn.Module) else []
    if missing:
        raise InputError(
            f"model must expose its features and its last layer; {type(model).__name__} has no "
            f"{' and no '.join(missing)}. ",
            *(advice or (HOW_TO_WRAP,)),
        )
    return cast("Network", model)


class _Reached(Exception):  # noqa: N818  # no error: it ends a forward run at the layer whose inputs are wanted
    pass


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Return the layer of that name among a network's ``named_modules``; the error shows the nearest names.

    Example:
        >>> find_layer(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "1")
        Linear(in_features=4, out_features=2, bias=True)
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    layers = {_original_name(path): module for path, module in model.named_modules() if path}
    if name in layers:
        return layers[name]
    nearest = difflib.get_close_matches(str(name), layers, n=_SHOWN_LAYERS, cutoff=0.5)
    shown = nearest or [path for path in layers if "." not in path][-_SHOWN_LAYERS:]
    what = "nearest are" if nearest else "among them are"
    has = f"of its {len(layers)} layers, {what} {', '.join(shown)}" if layers else "it has no layers"
    if len(shown) == len(layers) > 0:
        has = f"it has {', '.join(shown)}"
    wanted = f" must name a layer of {type(model).__name__}; got {name!r}, and "
    raise InputError(Argument("layer"), f"{wanted}{has}.")


def features_of(model: nn.Module, inputs: Tensor, layer: str | None = None) -> Tensor:
    """Return the features (n, d), checked: what ``layer`` takes, where the run ends; or what ``features`` gives."""
    if layer is None:
        return _checked_features(with_features(model, *NAME_LAYER).features(inputs), inputs)
    return _layer_inputs(model, inputs, layer, stops=True)[1]


def logits_and_features(model: nn.Module, inputs: Tensor, layer: str | None = None) -> tuple[Tensor, Tensor]:
    """Return logits (n, k) and features (n, d) of one forward run, the features checked as by :func:`features_of`.

    Example:
        >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> logits, features = logits_and_features(network, torch.zeros(5, 4), layer="2")
        >>> tuple(logits.shape), tuple(features.shape)
        ((5, 2), (5, 3))
    """
    if layer is None:
        features = features_of(model, inputs)
        return with_features(model).head(features), features
    output, features = _layer_inputs(model, inputs, layer)
    return extract_logits(output), features


def _layer_inputs(model: nn.Module, inputs: Tensor, layer: str, *, stops: bool = False) -> tuple[object, Tensor]:
    """Run a network, and return its output and what a layer of it takes; with ``stops``, the run ends there."""
    taken: list[list[object]] = []

    def keep(_layer: nn.Module, args: tuple[object, ...], options: dict[str, object]) -> None:
        taken.append([value for value in (*args, *options.values()) if value is not None])
        if stops:
            raise _Reached

    # A compiled network would not call a hook that it was not compiled with.
    network = getattr(model, "_orig_mod", model)
    hook = find_layer(network, layer).register_forward_pre_hook(keep, with_kwargs=True)
    output: object = None
    try:
        output = network(inputs)
    except _Reached:
        pass
    finally:
        hook.remove()
    if len(taken) != 1:
        advice = "Name one that a run calls once, such as the last." if taken else "Name one that its forward calls."
        raise InputError(
            f"layer must be called once in a run of the network; {layer!r} is called {len(taken)} times. {advice}",
            argument="layer",
        )
    if len(taken[0]) != 1:
        raise InputError(
            f"layer must take one tensor; {layer!r} takes {len(taken[0])} inputs. Name another, such as the last.",
            argument="layer",
        )
    return output, _checked_features(taken[0][0], inputs, layer)


def _checked_features(features: object, inputs: Tensor, layer: str | None = None) -> Tensor:
    advice = HOW_TO_WRAP if layer is None else "Name a later layer, behind pooling and flattening: mostly the last."
    what = "features" if layer is None else f"the inputs of layer {layer!r}"
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"{what} must be real numbers of shape (n, d), a row an input; got {got}. {advice}")
    if len(features) != len(inputs):
        raise InputError(f"{what} must have a row for each of {len(inputs)} inputs; got {len(features)}. {advice}")
    return features


def network_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network's ``state_dict``, sorted by name, a compiled one's under their original names."""
    _check_has_weights(model)
    state = model.state_dict()
    named = {_original_name(name): values for name, values in state.items() if isinstance(values, Tensor)}
    return dict(sorted(named.items()))


def network_digest(model: nn.Module) -> str:
    """Return a fingerprint of a network's parameters and buffers, the same on any device and if it is compiled."""
    return state_digest(network_state(model))


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Return the fingerprint of a network with these tensors, by name."""
    digest = hashlib.sha256()
    for name, values in sorted(state.items()):
        digest.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        dense = torch.cat([values.reshape(-1).detach().cpu()])  # one number may have kept the stride of a column
        digest.update(dense.view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], *, casts: bool) -> None:
    """Load weights into a network, which must take all of them and need no others; else it is unchanged.

    Of tensors that share memory one is enough. Tensors of another type are refused, unless ``casts``.
    """
    own, given = network_state(model), {_original_name(name): values for name, values in weights.items()}
    both = own.keys() & given.keys()
    held = {own[name].data_ptr() for name in both}
    problems = {
        "missing": [name for name in own if name not in given and own[name].data_ptr() not in held],
        "unknown": [name for name in given if name not in own],
        "of another shape": [name for name in sorted(both) if own[name].shape != given[name].shape],
        "of another type": [name for name in sorted(both) if own[name].dtype != given[name].dtype and not casts],
    }
    messages = [
        f"{len(names)} {problem} ({listed(names, _SHOWN_NAMES)})" for problem, names in problems.items() if names
    ]
    if messages:
        raise InputError(f"weights must be those of this network; {', '.join(messages)}.")
    named = {_original_name(name): name for name in model.state_dict()}
    # Not strict: names were compared above, and entries that are no tensors are not among them.
    model.load_state_dict({named[name]: values for name, values in given.items()}, strict=False)


def _original_name(name: str) -> str:
    """Remove the prefix that torch.compile puts before the names of a module's tensors."""
    return name.replace("_orig_mod.", "")


_FEW = 16  # samples
# Logits of any real network would hardly be between 0 and 1 and sum to 1 for every sample, to this precision.
_SUMS_TO_ONE = 1e-3
# How far logits may differ with the batch, relative to their range: the effect of a GPU's rounding to ten bits on a
# deep network; or this many roundings of the inputs' or the logits' own type.
_ROUNDING, _ROUNDINGS = 1e-2, 8
_DYNAMIC_EXPORT = "torch.export.export(..., dynamic_shapes=({0: torch.export.Dim('n')},))."


def first_inputs(model: nn.Module, samples: LabelledInputs) -> Tensor:
    """Return a few inputs on the network's device, (m, ...): at least two if there are, at most a batch."""
    most = min(_FEW, max(samples.batch_size or _FEW, 2))
    few = samples.batches(torch.arange(min(most, len(samples))), device=device_of(model), batch_size=most)
    return torch.cat([inputs for inputs, _ in few])


def check_float64(model: nn.Module) -> None:
    """Check that what is fitted to a network's outputs can be computed on its device."""
    if not has_float64(device_of(model)):
        raise InputError(
            "the network must be on a device with float64 for the fit; an Apple GPU has none. Move it: model.cpu().",
            argument="model",
        )


@torch.no_grad()
def check_network(model: nn.Module, samples: LabelledInputs, *, batch_size: int | None = None) -> int:
    """Check that a frozen network takes a few samples, alone and in batches, and return its number of classes.

    ``batch_size`` is the one that will be used, where that is more than the samples' own. Logits of a sample that
    depend on the others in its batch raise a warning.
    """
    check_float64(model)
    if device_of(model).type == "meta":
        raise InputError(
            "the network must have weights; it is on the meta device, where there are none. Give it memory by "
            "model.to_empty(device='cpu'), and load its weights.",
            argument="model",
        )
    inputs = first_inputs(model, samples)
    with forward_errors(model, inputs):
        logits = _logits(model, inputs)
    if not bool(logits.isfinite().all()):
        raise InputError(
            "the network's logits must be finite; got NaN or infinity. Check its weights and inputs.", argument="model"
        )
    precise = logits.double()
    tolerance = max(_SUMS_TO_ONE, torch.finfo(logits.dtype).eps)
    if bool((precise >= 0).all()) and bool(((precise.sum(dim=1) - 1).abs() < tolerance).all()):
        raise InputError(
            "the network must return logits; got probabilities (nothing below 0, and every row sums to 1). "
            "Leave out its last softmax, or let it return log_softmax.",
            argument="model",
        )
    check_labels(samples.labels, logits.shape[1])
    _check_other_sizes(model, samples, inputs, logits, batch_size)
    return logits.shape[1]


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    logits = extract_logits(model(inputs.clone()))  # a copy, for networks that write into their input
    if len(logits) != len(inputs):
        raise InputError(
            f"the network must give one row of logits per input; got {len(logits)} for {len(inputs)}.", argument="model"
        )
    return logits


@contextmanager
def forward_errors(model: nn.Module, inputs: Tensor) -> Iterator[None]:
    """Turn any error of a network that runs on these inputs within the block into an InputError with their shape."""
    try:
        yield
    except (CalibrantError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a network may raise anything
        own = (tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point())
        if (dtype := next(own, inputs.dtype)) != inputs.dtype:
            raise InputError(
                f"inputs must be of the network's own type, {dtype}; got {inputs.dtype}. Convert them to {dtype}, or "
                f"the network with model.to({inputs.dtype})."
            ) from error
        shape = f"(n, {', '.join(map(str, inputs.shape[1:]))})"
        advice = "It must take one tensor of that shape and nothing else: prepare the inputs alike, or wrap it."
        if is_exported(model):
            advice = f"If it was exported for fewer, give a batch_size it takes; else export it by {_DYNAMIC_EXPORT}"
        raise InputError(
            f"the network must take inputs of shape {shape}; for {len(inputs)} it raised {one_line(error)}. {advice}",
            argument="model",
        ) from error


def _check_other_sizes(
    model: nn.Module, samples: LabelledInputs, few: Tensor, logits: Tensor, batch_size: int | None
) -> None:
    """Check that one sample alone gets the same logits, and that the largest batch is taken."""
    if len(few) == 1:
        return
    statistics = _batch_norm_advice(model)
    advice = statistics or f"Name the axes that it squeezes; if it is exported, {_DYNAMIC_EXPORT}"
    alone = _logits_of_other_size(model, few[:1], f"any number of samples; it takes {len(few)}, and for one", advice)
    tolerance = max(_ROUNDING, _ROUNDINGS * max(torch.finfo(tensor.dtype).eps for tensor in (logits, few)))
    if not float((alone - logits[:1]).abs().max()) <= tolerance * float(logits.max() - logits.min()):
        warn(
            "the logits of a sample must not depend on the others in its batch; these do, so δ and the head hold only "
            "for batches like those of the fit. "
            + (statistics or "Look for what mixes samples, or for dropout that is always on.")
        )
    for size in {None, batch_size}:
        batch, _ = next(samples.batches(device=few.device, batch_size=size))
        if len(batch) > len(few):
            sizes = f"a batch of {len(batch)} samples; it takes {len(few)}, and for a batch"
            _logits_of_other_size(model, batch, sizes, "Give a smaller batch_size.")


def _logits_of_other_size(model: nn.Module, inputs: Tensor, sizes: str, advice: str) -> Tensor:
    try:
        return _logits(model, inputs)
    except Exception as error:
        raise InputError(
            f"the network must take {sizes} it raised {one_line(error)}. {advice}", argument="model"
        ) from error


def _batch_norm_advice(model: nn.Module) -> str:
    """Return what to do about layers that normalise by the batch also in evaluation mode, if there are any."""
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is None:
            return (
                f"Its BatchNorm {name!r} keeps no running statistics and normalises by the batch: train it with "
                "track_running_stats=True, or use GroupNorm."
            )
    return ""
