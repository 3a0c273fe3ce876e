"""Networks and their inputs from files: made by a function, exported, or trained by ``calibrant train``."""

import ast
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, cast, final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from calibrant.checks import check_known, existing_file
from calibrant.clamping import InputSpace
from calibrant.datasets import Samples
from calibrant.errors import FileError, InputError, one_line, reading
from calibrant.files.source import open_npz, read_torch
from calibrant.inference import LabelledInputs, load_weights, set_evaluating
from calibrant.labels import Words
from calibrant.models import own_names
from calibrant.training import load_network
from calibrant.training.folder import RunFolder
from calibrant.training.stores import Standardise

_KINDS = "package.module:factory, an archive of torch.export (.pt2), or a folder written by calibrant train"
_PEAK = 255  # largest value of a pixel in eight bits


@final
@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """A network in evaluation mode, with the range of its inputs and its class names, if known."""

    model: nn.Module
    is_run: bool = False  # trained by calibrant train: takes pixels as they are stored
    space: InputSpace | None = None  # range of a run's pixels
    class_names: tuple[str, ...] | None = None

    def layer(self, name: str | None) -> str | None:
        """Return the name of a layer in ``model``, which holds that of a run behind the scaling of its pixels."""
        if not isinstance(self.model, nn.Sequential) or not isinstance(self.model[0], Standardise):
            return name
        if name is None and isinstance(getattr(self.model[1], "head", None), nn.Module):
            name = "head"
        return None if name is None else f"1.{name}"

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of its inputs."""
        held = (*self.model.parameters(), *self.model.buffers())
        return next((tensor.dtype for tensor in held if tensor.is_floating_point()), torch.float32)


def read_network(text: str, weights: Path | None, device: torch.device) -> LoadedNetwork:
    """Read the network that a text names: ``package.module:factory``, a ``.pt2`` archive, or the folder of a run."""
    path = Path(text)
    is_archive = path.suffix.lower() == ".pt2"
    if weights is not None and (is_archive or path.is_dir()):
        raise InputError(f"--weights must be left out with --model {text}, which has its own.")
    if path.is_dir():
        return _of_run(path, load_network(path), device)
    if is_archive:
        model = _exported(path, device)
    elif ":" in text:
        named, arguments, options = _named(text)
        model = named if isinstance(named, nn.Module) else _made(text, named, arguments, options)
        if weights is not None and weights.is_dir():
            return _of_run(weights, load_network(weights, model), device)
        if weights is not None:
            _load_weights(model, weights)
        model = model.to(device)
    else:
        hint = " Weights alone do not define a network: give them as --weights." if path.is_file() else ""
        if path.suffix == ".py":
            hint = f" Name the function in it that makes the network: {path.stem}:NAME."
        raise InputError(f"--model must be {_KINDS}; got {text!r}, which is none of them.{hint}")
    set_evaluating(model)
    return LoadedNetwork(model)


def _of_run(folder: Path, model: nn.Module, device: torch.device) -> LoadedNetwork:
    settings = RunFolder(folder).settings()
    scale = settings.pixel_scale
    space = None if scale is None else InputSpace(high=scale.peak)
    return LoadedNetwork(model.to(device), True, space, settings.class_names)


def network_factory(text: str) -> Callable[[], nn.Module]:
    """Return the function behind ``package.module:factory`` or ``…:factory(width=64)``; each call makes a network."""
    named, arguments, options = _named(text)
    if isinstance(named, nn.Module):
        raise InputError(
            f"--model must name a function that makes a network for every run; {text} is itself a network."
        )
    return partial(_made, text, named, arguments, options)


def _named(text: str) -> tuple[object, list[Any], dict[str, Any]]:
    """Return what a text names, and the arguments in brackets after it, which are plain values."""
    module_name, _, call = text.partition(":")
    name, bracket, _ = call.partition("(")
    if not name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise InputError(f"--model must be {_KINDS}; got {text!r}.")
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    if bracket:
        try:
            tree = cast("ast.Call", ast.parse(call, mode="eval").body)
            arguments = [ast.literal_eval(value) for value in tree.args]
            options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in tree.keywords}
        except (ValueError, SyntaxError, AttributeError) as error:
            raise InputError(f"--model must have plain arguments, as in nets:build(width=64); got {text!r}.") from error
    return _imported(module_name, name), arguments, options


def _made(text: str, factory: object, arguments: list[Any], options: dict[str, Any]) -> nn.Module:
    if not callable(factory):
        raise InputError(f"{text} must be a function that makes the network; it is of type {type(factory).__name__}.")
    try:
        made = factory(*arguments, **options)
    except Exception as error:
        how = "" if arguments or options else " without arguments"
        raise InputError(
            f"{text} must make the network when called{how}; it raised {one_line(error)}. Give it what it needs, as in "
            "'nets:build(width=64)'."
        ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{text} must make a torch.nn.Module; it returned a {type(made).__name__}.")
    return made


def _imported(module_name: str, name: str) -> object:
    # The installed command does not search the current folder.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            where = f"neither in the folder {Path.cwd()} nor installed"
            raise InputError(f"--model must name an existing module; {error.name} is {where}.") from error
        raise InputError(f"the module {module_name} could not be imported: {one_line(error)}.") from error
    first = name.partition(".")[0]
    if not hasattr(module, first):
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
        check_known(first, [key for key in own if not key.startswith("_")], f"what --model names in {module_name}")
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError as error:
        raise InputError(f"--model must name something in {module_name}; {error}.") from error


def _load_weights(model: nn.Module, path: Path) -> None:
    """Load weights from a file, which must have all of the network's and no others.

    They may have the names of torchvision or timm, where the network is one of :mod:`calibrant.models`.
    """
    suffix = path.suffix.lower()
    if suffix not in {".safetensors", ".pt", ".pth"}:
        advice = "Use safetensors.torch.save_model(network, path), or torch.save(network.state_dict(), path)."
        raise FileError(f"--weights must end in .safetensors, .pt or .pth; got {path}. {advice}")
    file = existing_file(path, holding="a network's weights")
    is_safe = suffix == ".safetensors"
    with reading(file, "safetensors file" if is_safe else "file of weights"):
        weights = load_file(file) if is_safe else read_torch(file, inside=("state_dict", "model_state_dict", "model"))
        load_weights(model, own_names(model, weights), casts=True)


def _exported(path: Path, device: torch.device) -> nn.Module:
    """Load an archive of torch.export; it must take one tensor of any number of samples."""
    file = existing_file(path, holding="an exported network")
    with reading(file, "archive of torch.export (.pt2)"), _without_log("torch.export"):
        program = torch.export.load(file)
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
    taken = set(program.graph_signature.user_inputs)
    inputs = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in taken]
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise FileError(f"{file} must take one tensor of inputs; it takes {len(inputs)} inputs. Wrap it before export.")
    size: Any = inputs[0].shape[0] if inputs[0].ndim else 1
    if isinstance(size, int):
        raise FileError(
            f"{file} must take any number of samples; it was exported for {size}. Export it with "
            "dynamic_shapes=({0: torch.export.Dim('n')},)."
        )
    return program.module()


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Silence a logger of torch, which logs a page about a file that it cannot read, and a warning of its reader."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")  # issued by torch 2.11
            yield
    finally:
        logger.disabled = before


@contextmanager
def error_context(path: Path, *, unless: str | None = None) -> Iterator[None]:
    """Name the file in errors about its content; errors about the argument ``unless`` are left unchanged."""
    try:
        yield
    except InputError as error:
        is_named = isinstance(error, FileError) or (unless is not None and error.argument == unless)
        raise error if is_named else FileError(f"{path}: ", *error.args) from error


def read_samples(
    path: Path, network: LoadedNetwork, *, inputs: str, labels: str, pixels: bool, space: InputSpace | None
) -> LabelledInputs:
    """Read inputs (n, ...) and labels (n,) from an ``.npz`` file, in the type that the network takes.

    With ``pixels``, inputs are stored as whole numbers 0..255, and are scaled into the range of ``space`` (0..1 if it
    is None) and normalised. The network of a run takes them as they are stored.
    """
    file = existing_file(path, holding="inputs and labels")
    if file.suffix.lower() != ".npz":
        raise FileError(f"a file of inputs must end in .npz; got {file}. Write one with numpy.savez.")
    content = open_npz(file)
    if any(name not in content.names for name in (inputs, labels)):
        raise FileError(
            f"{file} must have {inputs!r} and {labels!r}; it has {', '.join(content.names) or 'nothing'}. Name the "
            "arrays: --inputs NAME --labels NAME."
        )
    arrays = content.read((inputs, labels), None)
    values, classes = arrays[inputs], arrays[labels]
    with error_context(file):
        if isinstance(values, Words) or isinstance(classes, Words):
            name = inputs if isinstance(values, Words) else labels
            raise InputError(f"{name!r} must be numbers; it is text. Labels are class numbers from 0.")
        return LabelledInputs.of((_as_taken(values, network, pixels=pixels, space=space), classes))


def run_samples(samples: Samples, network: LoadedNetwork) -> LabelledInputs:
    """Return samples of the data set of a run, in the type that its network takes."""
    return LabelledInputs.of((_as_taken(samples.tensor, network, pixels=False, space=None), samples.labels))


def _as_taken(inputs: Tensor, network: LoadedNetwork, *, pixels: bool, space: InputSpace | None) -> Tensor:
    """Return inputs as the network takes them; LabelledInputs refuses whole numbers that are not pixels."""
    are_stored = inputs.dtype == torch.uint8
    if pixels and not are_stored:
        raise InputError(f"inputs must be stored as uint8 for --pixels; got {inputs.dtype}. Leave --pixels out.")
    if are_stored and not (network.is_run or pixels):
        raise InputError(
            "inputs must be floating-point numbers as the network takes them; got uint8. Give --pixels to scale 0..255 "
            "into 0..1 (or --low and --high) and normalise them by --mean and --std, as in training."
        )
    if are_stored and not network.is_run and len(inputs):
        inputs = inputs.float()
        lowest, highest = (space or InputSpace()).bounds(inputs[0])
        inputs = torch.addcmul(lowest, inputs.div_(_PEAK), highest - lowest)
    return inputs.to(network.dtype) if are_stored or inputs.is_floating_point() else inputs
