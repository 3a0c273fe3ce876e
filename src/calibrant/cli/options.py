"""Declare the options that several commands share, and lay out ``--help``."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    import torch

    from calibrant.files.load import Kind
    from calibrant.predictions import Predictions

INPUT, REPORT = "Input", "Report"


def check_seed(value: Any) -> Any:
    """Check a seed, or several, as typer's callback.

    Raises:
        BadParameter: If torch's generators do not take it.
    """
    for seed in value if isinstance(value, list) else [value]:
        if not 0 <= (seed or 0) < 2**63:
            raise typer.BadParameter(f"must be a whole number from 0 to 9,223,372,036,854,775,807; got {seed}.")
    return value


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return typer's positional argument with its name in the help and its help text."""
    return typer.Argument(metavar=metavar, help=text, **{"show_default": False} | more)


def option(metavar: str, text: str, panel: str | None = None, *, names: tuple[str, ...] = (), **more: Any) -> Any:
    """Return typer's option with a value; its name is that of the parameter unless given.

    Args:
        metavar: The value in the help, such as FILE.
        text: Help text.
        panel: Group in the help.
        names: Names such as ``--out`` and ``-o``.
        more: Other arguments of typer, such as ``min`` and ``show_default``.
    """
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """Return typer's option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel, show_default=False)


PredictionsFile: TypeAlias = Annotated[
    Path, argument("FILE", "File of predictions and labels: csv, npz, parquet, feather, arrow, safetensors or pt.")
]
Logits: TypeAlias = Annotated[bool, flag("--logits", "The scores are logits.", INPUT)]
Probs: TypeAlias = Annotated[bool, flag("--probs", "The scores are probabilities.", INPUT)]
ScoreNames: TypeAlias = Annotated[
    str | None, option("NAME", "Column or array of the scores, or the prefix of their columns.", INPUT)
]
TrueLabels: TypeAlias = Annotated[str | None, option("NAME", "Column or array of the labels.", INPUT)]
_FEATURES = "Array or column prefix of the features, for methods that use them."
Features: TypeAlias = Annotated[str | None, option("NAME", _FEATURES, INPUT, show_default="features")]
Bins: TypeAlias = Annotated[int, option("N", "Number of bins of binned metrics.", min=1, max=1000000)]
Resamples: TypeAlias = Annotated[int, option("N", "Number of bootstrap resamples for intervals and tests.", min=100)]
Seed: TypeAlias = Annotated[int, option("N", "Random seed: equal seeds give equal numbers.", callback=check_seed)]
_DEVICE = "cuda if there is a GPU, else cpu"
Device: TypeAlias = Annotated[str | None, option("NAME", "cpu, cuda, cuda:1, …", show_default=_DEVICE)]
Json: TypeAlias = Annotated[Path | None, option("FILE", "Write the report as JSON.", REPORT)]
Markdown: TypeAlias = Annotated[Path | None, option("FILE", "Write the report as Markdown.", REPORT)]
Figures: TypeAlias = Annotated[Path | None, option("FOLDER", "Write figures into this folder.", REPORT)]
Html: TypeAlias = Annotated[Path | None, option("FILE", "Write the report with its figures as one HTML file.", REPORT)]
Full: TypeAlias = Annotated[bool, flag("--full", "Print all numbers, not only those that matter most.")]
FigureFormat: TypeAlias = Annotated[str, option("NAME", "png, svg or pdf.", REPORT)]
Theme: TypeAlias = Annotated[str, option("NAME", "Colours of figures: light or dark.", REPORT)]


def split_names(text: str, option: str, alternatives: str) -> list[str]:
    """Split the names in the value of an option at commas outside brackets.

    Raises:
        InputError: If one is empty; it says that the option must be one of the ``alternatives``, or names.
    """
    from calibrant.catalogue import split_list
    from calibrant.errors import InputError

    names = [part.strip() for part in split_list(text)]
    if not all(names):
        raise InputError(f"{option} must be {alternatives}, or names with commas between them; got {text!r}.")
    return names


def one_kind(*, logits: bool, probs: bool, top_label: bool = False) -> "Kind | None":
    """Return what the scores are according to the flags; None without a flag.

    Raises:
        BadParameter: If more than one flag is set.
    """
    flags: tuple[tuple[Kind, bool], ...] = (("logits", logits), ("probs", probs), ("top-label", top_label))
    kinds = [kind for kind, is_set in flags if is_set]
    if len(kinds) > 1:
        given = " and ".join(f"--{kind}" for kind in kinds)
        raise typer.BadParameter(f"give one of --logits, --probs and --top-label; got {given}.")
    return kinds[0] if kinds else None


def load_predictions(path: Path, *, kind: "Kind | None", scores: str | None, labels: str | None) -> "Predictions":
    """Load the scores of every class, and the labels.

    Raises:
        FileError: If the file has only the confidence of the predicted class.
    """
    from calibrant.errors import FileError
    from calibrant.files import load
    from calibrant.predictions import TopLabel

    predictions = load(path, kind=kind, scores=scores, labels=labels)
    if isinstance(predictions, TopLabel):
        raise FileError(
            f"{path} must have logits or probabilities of every class to be calibrated; it has only the confidence of "
            "the predicted one and whether it was right. Save the model's logits."
        )
    return predictions


def refuse_features(name: str | None, method: str) -> None:
    """Refuse ``--features`` for a method that does not use them.

    Raises:
        InputError: If a name was given.
    """
    from calibrant.errors import InputError

    if name is not None:
        raise InputError(f"--features must be left out: {method} does not use features.")


def choose_device(name: str | None) -> "torch.device":
    """Return the device of that name; without a name or with ``auto``, a GPU if there is one.

    Raises:
        InputError: If torch cannot use it here.
    """
    import torch

    from calibrant.errors import InputError

    if name is None or name == "auto":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device must be one that torch can use here, such as cpu; got {name!r}.") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    return device


class CommandWithExamples(TyperCommand):
    """A command whose ``--help`` groups its options and ends with the examples in ``epilog``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line, without braces around required arguments."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options by group, those of the command itself first."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                groups["Arguments"].append((record[0].partition(" <")[0], record[1]))
            else:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                groups.setdefault(panel, []).append(record)
        if REPORT in groups:  # last
            groups[REPORT] = groups.pop(REPORT)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # click's signature
        """Write the examples unchanged."""
        if self.epilog:
            formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.epilog.splitlines()))
