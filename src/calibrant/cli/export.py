"""``calibrant export``: write a map as an ONNX graph or a torch.export archive, alone or on a network's graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli import options
from calibrant.cli.options import argument, option
from calibrant.errors import InputError, terminal_text

if TYPE_CHECKING:
    from calibrant.clamping import ClampedModel
    from calibrant.files.map_file import AnyMap
    from calibrant.integrations.onnx import ScoreKind

EXAMPLES = """\
calibrant export map.safetensors -o map.onnx
calibrant export map.safetensors -o map.pt2 --outputs probabilities
calibrant export map.safetensors --onto network.onnx -o calibrated.onnx
calibrant export clamped/ --onto network.onnx -o clamped.onnx"""

_SOURCE = "Map written by `calibrant fit`, or a folder (or its clamped.safetensors) written by `calibrant clamp`."
_INPUTS = "Scores that go into the map: logits or probabilities."
_FITTED_ON = "those it was fitted on"


def export(
    source: Annotated[Path, argument("MAP", _SOURCE)],
    out: Annotated[Path, option("FILE", "File to write: .onnx or .pt2 (torch.export).", names=("--out", "-o"))],
    onto: Annotated[Path | None, option("FILE", "Graft the map onto the ONNX graph of the network.")] = None,
    output: Annotated[str | None, option("NAME", "Output of that graph that has the scores.")] = None,
    inputs: Annotated[str | None, option("KIND", _INPUTS, show_default=_FITTED_ON)] = None,
    outputs: Annotated[
        str | None, option("KIND", "Scores that come out: logits or probabilities.", show_default="as the inputs")
    ] = None,
) -> None:
    """Export a map for use without calibrant.

    The file takes scores (n, classes) in float32, for any n. With --onto, the map follows the network in one graph,
    whose inputs and outputs keep their names; of a clamped network x + δ becomes the input.
    """
    from calibrant.clamping import ClampedModel
    from calibrant.cli.output import print_warnings, spinner, standard_error, standard_output
    from calibrant.integrations import onnx

    suffix = onnx.check_suffix(out)
    options.check_output(out, [path for path in (source, onto) if path is not None])
    if onto is None and output is not None:
        raise InputError("--output must be given together with --onto: it names an output of that graph.")
    err = standard_error()
    with print_warnings(err), spinner(err) as stage:
        stage(f"reading {source}")
        fitted, fitted_on, names = _read(source)
        given, wanted = (
            _score_kind(inputs or fitted_on, "--inputs"),
            _score_kind(outputs or inputs or fitted_on, "--outputs"),
        )
        stage(f"writing {out}")
        if onto is not None:
            onnx.graft(fitted, onto, out, output=output, inputs=given, outputs=wanted, class_names=names)
        elif isinstance(fitted, ClampedModel):
            raise InputError(
                f"{source} must be exported together with its network, because δ is added to the network's inputs. "
                "Name the network's ONNX graph: --onto FILE."
            )
        else:
            onnx.export(fitted, out, inputs=given, outputs=wanted, class_names=names)
    console = standard_output()
    made = {".onnx": "an ONNX graph", ".pt2": "an archive of torch.export"}[suffix]
    behind = "" if onto is None else f" behind {terminal_text(onto)}"
    console.print(f"Exported {terminal_text(source)} as {made}{behind}: {given} in, {wanted} out.")
    console.print(f"Wrote {terminal_text(out)}", style="dim")


def _score_kind(text: str, name: str) -> "ScoreKind":
    from calibrant.checks import check_known

    kinds: dict[str, ScoreKind] = {"logits": "logits", "probabilities": "probabilities"}
    check_known(text, kinds, name)
    return kinds[text]


def _read(source: Path) -> "tuple[AnyMap | ClampedModel, str, tuple[str, ...] | None]":
    """Return the map or the clamped model, the kind of scores it was fitted on, and the names of the classes."""
    from calibrant.clamping import load_clamped
    from calibrant.files import read_map_file

    file = source / "clamped.safetensors" if source.is_dir() else source
    if source.is_dir() or _is_clamped(file):
        return load_clamped(file), "logits", None
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
