"""Declare the options that several commands share, and lay out ``--help``.

A group of options is a dataclass whose fields are options. A command takes it as one parameter, which
:func:`with_groups_expanded` replaces by the fields.
"""

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import wraps
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, final

import typer
from typer.core import TyperCommand

from calibrant.errors import FileError, InputError
from calibrant.text import terminal_text

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure as MatplotlibFigure
    from rich.console import Console

    from calibrant.files.choose import LoadOptions
    from calibrant.files.source import Kind
    from calibrant.plots import ThemeName
    from calibrant.report import Figure, Page

INPUT, REPORT = "Input", "Report"
_DPI = 110  # resolution of figures in an HTML page
_STANDARD_OUTPUT = Path("-")
_JSON = "Write the report as JSON; - is standard output, and what is printed goes to standard error."


def check_seed(value: Any) -> Any:
    """Check a seed, or several, that torch's generators take; a callback of typer."""
    for seed in value if isinstance(value, list) else [value]:
        if not 0 <= (seed or 0) < 2**63:
            raise typer.BadParameter(f"must be a whole number from 0 to 9,223,372,036,854,775,807; got {seed}.")
    return value


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return typer's positional argument with its name in the help and its help text."""
    return typer.Argument(metavar=metavar, help=text, **{"show_default": False} | more)


def option(metavar: str, text: str, panel: str | None = None, *, names: tuple[str, ...] = (), **more: Any) -> Any:
    """Return typer's option with a value; its name is that of the parameter unless given, its group the panel."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """Return typer's option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel, show_default=False)


_SCORES = "Column or array of the scores; or their columns: a list 'a,b,c', a range 'a:c', a pattern 'p_*' or a prefix."
_SPLIT = (
    "Column that divides the samples, with its values for calibration and test unless they are called so: "
    "fold, fold=cal,test."
)
_CLUSTERS = (
    "Column that is equal for samples that are not independent, such as answers to one question: intervals and tests "
    "then count these clusters."
)
_MISSING = (
    "Rows without a score, label, weight or cluster: refuse, or drop and report them; apply has keep: they keep their "
    "place."
)
_TOP_LABEL = "The file has only the confidence of the predicted class and whether it is correct."
SplitColumn: TypeAlias = Annotated[str | None, option("COLUMN", _SPLIT, INPUT)]
_FEATURES = "Array or column prefix of the features, for methods that use them."
Features: TypeAlias = Annotated[str | None, option("NAME", _FEATURES, INPUT, show_default="features")]
Bins: TypeAlias = Annotated[int, option("N", "Number of bins of binned metrics.", min=1, max=1000000)]
Resamples: TypeAlias = Annotated[int, option("N", "Number of bootstrap resamples for intervals and tests.", min=100)]
Seed: TypeAlias = Annotated[int, option("N", "Random seed: equal seeds give equal numbers.", callback=check_seed)]
_THRESHOLD = (
    "Net benefit of acting on samples whose probability of the positive class is at least this, such as 0.1, where a "
    "missed one costs 9 times a needless act. May be repeated."
)
Thresholds: TypeAlias = Annotated[list[float] | None, option("SHARE", _THRESHOLD)]
_DEVICE = "cuda if there is a GPU, else cpu"
Device: TypeAlias = Annotated[str | None, option("NAME", "cpu, cuda, cuda:1, …", show_default=_DEVICE)]
Full: TypeAlias = Annotated[bool, flag("--full", "Print all numbers, not only those that matter most.")]


def check_shares(shares: Sequence[float] | None, name: str, example: str) -> list[float]:
    """Return the shares that were given, each between 0 and 1."""
    if unknown := [one for one in shares or () if not 0 < one < 1]:
        of_percent = f"; {unknown[0]:g} % is {unknown[0] / 100:g}" if 1 < unknown[0] < 100 else ""
        raise InputError(f"{name} must lie between 0 and 1, as {example} does; got {unknown[0]:g}{of_percent}.")
    return list(shares or ())


def check_thresholds(thresholds: Sequence[float] | None) -> list[float]:
    """Return the thresholds of a risk, rising, each once."""
    return sorted(set(check_shares(thresholds, "--threshold", "0.1")))


@final
@dataclass(frozen=True)
class ScoreOptions:
    """The scores and labels in a file of predictions."""

    logits: Annotated[bool, flag("--logits", "The scores are logits.", INPUT)] = False
    probs: Annotated[bool, flag("--probs", "The scores are probabilities.", INPUT)] = False
    scores: Annotated[str | None, option("NAMES", _SCORES, INPUT)] = None
    labels: Annotated[str | None, option("NAME", "Column or array of labels (.npy scores: a .npy file).", INPUT)] = None
    positive: Annotated[str | None, option("COLUMN", "Score column of the positive one of two classes.", INPUT)] = None
    positive_class: Annotated[
        str | None,
        option("LABEL", "Label of the positive class, or of correct, unless they are 0/1 or true/false.", INPUT),
    ] = None
    class_names: Annotated[str | None, option("NAMES", "Comma-separated class names, in score order.", INPUT)] = None
    normalise: Annotated[bool, flag("--normalise", "Divide rows by their sums: counts, rounded numbers.", INPUT)] = (
        False
    )
    percent: Annotated[bool, flag("--percent", "Scores are percentages, with or without a % sign.", INPUT)] = False
    separator: Annotated[
        str | None,
        option("CHARACTER", "Between the columns of a csv file: ';', '|', tab; csv2: ';' and decimal commas.", INPUT),
    ] = None
    weights: Annotated[
        str | None,
        option("COLUMN", "Column or array of the weights of the samples; without it, all count alike.", INPUT),
    ] = None
    clusters: Annotated[str | None, option("COLUMN", _CLUSTERS, INPUT)] = None
    missing: Annotated[str, option("NAME", _MISSING, INPUT)] = "refuse"

    def kind(self, *, top_label: bool = False) -> "Kind | None":
        """Return what the scores are according to the flags, of which one may be set; None without a flag."""
        flags: dict[Kind, bool] = {"logits": self.logits, "probs": self.probs, "top-label": top_label}
        kinds = [kind for kind, is_set in flags.items() if is_set]
        if len(kinds) > 1:
            given = " and ".join(f"--{kind}" for kind in kinds)
            raise typer.BadParameter(f"give one of --logits, --probs and --top-label; got {given}.")
        return kinds[0] if kinds else None

    def as_options(self, *, top_label: bool = False) -> "LoadOptions":
        """Return the options for :func:`calibrant.files.load.load_detailed`."""
        from calibrant.files.choose import LoadOptions

        if self.missing == "keep":
            raise InputError("--missing must be refuse or drop; got keep, which is for apply.")
        alike = {name: given for name, given in vars(self).items() if name not in {"logits", "probs", "class_names"}}
        names = None if self.class_names is None else self.class_names.split(",")
        return LoadOptions(kind=self.kind(top_label=top_label), class_names=names, **alike)

    def as_arguments(self, *, missing: str = "drop", split: str | None = None) -> str:
        """Return the options that were given, as they stand on a command line; ``missing`` if rows may lack values."""
        usual = asdict(ScoreOptions())
        given = {name: value for name, value in asdict(self).items() if value != usual[name]}
        given |= ({"missing": missing} if "missing" in given else {}) | ({"split": split} if split else {})
        words = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(value)}")
            for name, value in given.items()
        ]
        return "".join(f" {word}" for word in words)


@final
@dataclass(frozen=True)
class ConfidenceOptions:
    """The confidences in a file that may have no more of the predictions."""

    top_label: Annotated[bool, flag("--top-label", _TOP_LABEL, INPUT)] = False
    confidence: Annotated[str | None, option("NAME", "Column of the confidence, with --top-label.", INPUT)] = None
    correct: Annotated[str | None, option("NAME", "Column of correctness, with --top-label.", INPUT)] = None

    def as_options(self, given: ScoreOptions) -> "LoadOptions":
        """Return the options for :func:`calibrant.files.load.load_detailed`, with those of all scores."""
        options = given.as_options(top_label=self.top_label)
        return replace(options, confidence=self.confidence, correct=self.correct)

    def as_scores(self, given: ScoreOptions) -> ScoreOptions:
        """Return options that read confidence and correctness as probability and label of two classes."""
        return replace(given, probs=True, positive=self.confidence or "confidence", labels=self.correct or "correct")


@final
@dataclass(frozen=True)
class SplitOption:
    """A column that divides the samples of a file, and its values for the two parts; None where their names decide."""

    column: str
    calibration: str | None = None
    test: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> "SplitOption | None":
        """Read ``fold`` or ``fold=cal,test``."""
        if text is None:
            return None
        column, equals, values = text.partition("=")
        parts = [value.strip() for value in values.split(",")]
        if not column or (equals and (len(parts) != 2 or not all(parts))):
            raise InputError(f"--split must read like 'fold' or 'fold=cal,test', calibration first; got {text!r}.")
        return cls(column, *parts) if equals else cls(column)


@final
@dataclass(frozen=True)
class ReportOptions:
    """The reports to write, and how figures look."""

    json: Annotated[Path | None, option("FILE", _JSON, REPORT)] = None
    markdown: Annotated[Path | None, option("FILE", "Write the report as Markdown.", REPORT)] = None
    latex: Annotated[Path | None, option("FILE", "Write the tables of the report as LaTeX.", REPORT)] = None
    html: Annotated[Path | None, option("FILE", "Write the report with its figures as one HTML file.", REPORT)] = None
    figures: Annotated[Path | None, option("FOLDER", "Write figures into this folder.", REPORT)] = None
    figure_format: Annotated[str, option("NAME", "png, svg or pdf.", REPORT)] = "png"
    theme: Annotated[str, option("NAME", "Colours of figures: light or dark.", REPORT)] = "light"

    def check(self, inputs: Iterable[Path]) -> None:
        """Check before the long work that all reports can be written, and overwrite no input file."""
        for option, given, known in (
            ("--figure-format", self.figure_format, ("png", "svg", "pdf")),
            ("--theme", self.theme, ("light", "dark")),
        ):
            if given not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}; got {given!r}.")
        files = list(inputs)
        as_json = None if self.json == _STANDARD_OUTPUT else self.json
        for target in filter(None, (as_json, self.markdown, self.latex, self.html)):
            check_output(target, files)
        if self.figures is not None:
            check_folder(self.figures)

    def console(self) -> "Console":
        """Return where the page is printed: on standard error if JSON goes to standard output."""
        from calibrant.cli.output import standard_error, standard_output

        return standard_error() if self.json == _STANDARD_OUTPUT else standard_output()

    def draw(
        self, draw: "Callable[[ThemeName], Mapping[str, MatplotlibFigure]]", *, in_html: bool = True
    ) -> "list[Figure]":
        """Draw and write the figures, if there is a folder or an HTML page for them; return them for the page."""
        in_html = in_html and self.html is not None
        if self.figures is None and not in_html:
            return []
        from calibrant.plots import save_figures  # loads matplotlib
        from calibrant.report import Figure

        drawn = draw("dark" if self.theme == "dark" else "light")
        paths: Sequence[Path | None] = [None] * len(drawn)
        if self.figures is not None:
            paths = save_figures(drawn, self.figures, formats=[self.figure_format])
        figures = []
        for (name, figure), path in zip(drawn.items(), paths, strict=True):
            content = BytesIO()
            if in_html:
                figure.savefig(content, format="png", dpi=_DPI, facecolor=figure.get_facecolor())
            figures.append(Figure(name.replace("_", " "), path, content.getvalue()))
        return figures

    def show_and_write(
        self, page: "Page", figures: "Sequence[Figure]", console: "Console", *, full: bool, inputs: Iterable[Path] = ()
    ) -> None:
        """Print the page, write it, and print the paths of the files; an HTML page names the inputs and the command."""
        from calibrant.report.terminal import show

        page = self.with_origin(page, inputs)
        show(page, full=full, console=console)
        if written := self.write(page, figures):
            console.print("Wrote " + ", ".join(map(str, written)), style="dim")

    def with_origin(self, page: "Page", inputs: Iterable[Path]) -> "Page":
        """Return the page with the command and the digests of its inputs, if there is an HTML page to name them."""
        from calibrant.report.page import Origin

        if self.html is None:
            return page
        return replace(page, origin=Origin.of(shlex.join(["calibrant", *sys.argv[1:]]), inputs))

    def write(self, page: "Page", figures: "Sequence[Figure]") -> list[Path]:
        """Write the page in every form requested, and to the summary of a GitHub job; return the paths."""
        written = [Path(figure.path) for figure in figures if figure.path is not None]
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if not (self.json or self.markdown or self.latex or self.html or summary):
            return written
        from calibrant.report import to_json, to_markdown, write

        if self.json == _STANDARD_OUTPUT:
            sys.stdout.write(to_json(page, ascii_only=sys.stdout.encoding.lower() != "utf-8"))
        elif self.json is not None:
            written.append(write(page, self.json, form="json"))
        if self.markdown is not None:
            linked = [replace(one, path=_beside(self.markdown, one.path)) for one in figures if one.path is not None]
            written.append(write(replace(page, figures=tuple(linked)), self.markdown, form="markdown"))
        if self.latex is not None:
            written.append(write(page, self.latex, form="latex"))
        if self.html is not None:
            written.append(write(replace(page, figures=tuple(figures)), self.html, form="html"))
        if summary:
            try:
                with Path(summary).open("a", encoding="utf-8") as stream:
                    stream.write(to_markdown(page))
            except OSError as error:  # the requested reports are written
                from calibrant.cli.output import standard_error

                note = f"note: the job's summary, {terminal_text(summary)}, could not be written: {error.strerror}."
                standard_error().print(note, style="yellow")
        return written


def _beside(page: Path, path: PurePath) -> Path:
    try:
        return Path(os.path.relpath(path, page.parent))
    except ValueError:  # two drives of Windows
        return Path(path).absolute()


def check_output(out: Path, inputs: Iterable[Path]) -> None:
    """Check that a file can be written, and that it is not an input file."""
    if out == _STANDARD_OUTPUT:
        raise FileError("- (standard output) must be for --json alone. Name a file.")
    if not out.parent.is_dir():
        raise FileError(f"{out} could not be written: there is no folder {out.parent}. Make it first.")
    if out.is_dir():
        raise FileError(f"{out} could not be written: it is a folder. Name a file.")
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise FileError(f"{out} must not be written to: it is an input file. Name another.")


def check_folder(folder: Path) -> None:
    """Check that a folder exists and can be written, or can be made."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise FileError(f"{folder} must be a folder, or become one; {nearest} is a file. Name another folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise FileError(f"{folder} must be a folder to write into; {nearest} is write-protected. Name another folder.")


def split_names(text: str, option: str, alternatives: str) -> list[str]:
    """Split the names in the value of an option, which may also be one of the alternatives, at commas."""
    from calibrant.catalogue import split_list

    names = split_list(text)
    if not all(names):
        raise InputError(f"{option} must be {alternatives}, or comma-separated names; got {text!r}.")
    return names


def refuse_features(name: str | None, method: str) -> None:
    """Refuse ``--features`` for a method that does not use them."""
    if name is not None:
        raise InputError(f"--features must be left out: {method} does not use features.")


def choose_device(name: str | None) -> "torch.device":
    """Return the device of that name; without a name or with ``auto``, a GPU if there is one."""
    import torch

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


def with_groups_expanded(command: Callable[..., object]) -> Callable[..., None]:
    """Return the command with the options of its groups as parameters of their own, and without what it returns."""
    parameters = inspect.signature(command).parameters
    hints = {name: parameter.annotation for name, parameter in parameters.items()}
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @wraps(command)
    def run_command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options[name]})
        command(**given)

    expanded = [option for name, own in parameters.items() for option in options.get(name, {name: own}).values()]
    run_command.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    run_command.__annotations__.pop("return", None)  # typer would look for its name
    return run_command


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
