"""``calibrant export``: write a map as an ONNX graph, a NumPy module or a torch.export archive."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli import options
from calibrant.cli.options import argument, option
from calibrant.errors import InputError
from calibrant.text import terminal_text

if TYPE_CHECKING:
    from calibrant.clamping import ClampedModel
    from calibrant.files.map_file import AnyMap
    from calibrant.integrations.onnx import ScoreKind

EXAMPLES = """\
calibrant export map.safetensors -o map.onnx
calibrant export map.safetensors -o map.py --outputs probabilities
calibrant export map.safetensors --onto network.onnx -o calibrated.onnx
calibrant export clamped/ --onto network.onnx -o clamped.onnx
calibrant export clamped/ --model nets:build -o clamped.pt2"""

_SOURCE = "Map written by `calibrant fit`, or a folder (or its clamped.safetensors) written by `calibrant clamp`."
_INPUTS = "Scores that go into the map: logits or probabilities."
_MODEL = "Network of a clamped folder, as for `calibrant clamp`, to write whole to .pt2."


def export(
    source: Annotated[Path, argument("MAP", _SOURCE)],
    out: Annotated[Path, option("FILE", "File to write: .onnx, .py (NumPy) or .pt2 (torch).", names=("--out", "-o"))],
    onto: Annotated[Path | None, option("FILE", "Graft the map onto the ONNX graph of the network.")] = None,
    output: Annotated[str | None, option("NAME", "Output of that graph that has the scores.")] = None,
    model: Annotated[str | None, option("NETWORK", _MODEL)] = None,
    weights: Annotated[Path | None, option("FILE", "Weights of that network (.safetensors, .pt, .pth).")] = None,
    inputs: Annotated[str | None, option("KIND", _INPUTS, show_default="those it was fitted on")] = None,
    outputs: Annotated[
        str | None, option("KIND", "Scores that come out: logits or probabilities.", show_default="as the inputs")
    ] = None,
) -> None:
    """Export a map for use without calibrant.

    The file takes scores (n, classes) in float32, for any n; a .py file needs NumPy alone, and computes in float64.
    With --onto, the map follows the network in one graph, whose inputs and outputs keep their names; of a clamped
    network x + δ becomes the input. With --model, a .pt2 file takes the inputs of a clamped network, and gives its
    calibrated scores.
    """
    from calibrant.clamping import ClampedModel
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.integrations import onnx

    suffix = onnx.check_suffix(out)
    options.check_output(out, [path for path in (source, onto) if path is not None])
    if onto is None and output is not None:
        raise InputError("--output must be given together with --onto: it names an output of that graph.")
    if weights is not None and model is None:
        raise InputError("--weights must be given together with --model: they are that network's.")
    if onto is not None and model is not None:
        raise InputError("--model must be left out with --onto, whose graph is the network.")
    err = standard_error()
    with print_warnings(err), spinner(err) as stage:
        stage(f"reading {source}")
        fitted, fitted_on, names = _read(source, model, weights)
        given = _score_kind(inputs or fitted_on, "--inputs")
        wanted = _score_kind(outputs or given, "--outputs")
        stage(f"writing {out}")
        if onto is not None:
            onnx.graft(fitted, onto, out, output=output, inputs=given, outputs=wanted, class_names=names)
        elif isinstance(fitted, ClampedModel) and (model is None or suffix != ".pt2"):
            raise InputError(
                f"{source} must be exported together with its network, because δ is added to the network's inputs. "
                "Name the network's ONNX graph, --onto FILE, or for a .pt2 file the network itself, --model NETWORK."
            )
        else:
            onnx.export(fitted, out, inputs=given, outputs=wanted, class_names=names)
    console, behind = standard_output(), "" if onto is None else f" behind {terminal_text(onto)}"
    made = {".onnx": "an ONNX graph", ".py": "a Python module for NumPy", ".pt2": "an archive of torch.export"}[suffix]
    taken = given if model is None else f"inputs of {terminal_text(model)}"
    console.print(f"Exported {terminal_text(source)} as {made}{behind}: {taken} in, {wanted} out.")
    console.print(f"Wrote {terminal_text(out)}", style="dim")


def _score_kind(text: str, name: str) -> "ScoreKind":
    from calibrant.checks import check_known

    kinds: dict[str, ScoreKind] = {"logits": "logits", "probabilities": "probabilities"}
    check_known(text, kinds, name)
    return kinds[text]


def _read(
    source: Path, model: str | None, weights: Path | None
) -> "tuple[AnyMap | ClampedModel, str, tuple[str, ...] | None]":
    """Return the map or the clamped model, the kind of scores it was fitted on, and the names of the classes."""
    from calibrant.clamping import load_clamped
    from calibrant.files import read_map_file

    file = source / "clamped.safetensors" if source.is_dir() else source
    if source.is_dir() or _is_clamped(file):
        if model is None:
            return load_clamped(file), "logits", None
        import torch

        from calibrant.cli.networks import read_network

        network = read_network(model, weights, torch.device("cpu"))
        return load_clamped(file, network.model), "logits", network.class_names
    if model is not None:
        raise InputError(f"--model must be left out with {source}, a map of scores alone: it is that of a clamped one.")
    saved = read_map_file(file)
    return saved.map, saved.document.get("inputs") or "logits", saved.class_names


def _is_clamped(file: Path) -> bool:
    """Return whether a file says that it is a clamped model; False of one that cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as opened:
            text = (opened.metadata() or {}).get("calibrant", "")
    except (OSError, SafetensorError):
        return False
    return '"format": "calibrant.clamped/' in text
