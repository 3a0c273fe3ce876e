"""One page per calibrator from its docstring, and a table of all of them."""

import dataclasses
import inspect
import re

from calibrant import calibrators
from calibrant.calibrators import Calibrator, FeatureCalibrator

NOTE = "<!-- Written by `make docs` from the docstrings; edit those. -->"

EXPLANATION = """\
[Choosing a calibrator](../choosing.md) says which one to use. *Keeps predictions*: the predicted class of a sample
never changes. *Keeps order*: of two samples, the more confident never becomes the less confident one."""

# In the order in which a reader should meet them.
FAMILIES = {
    "baseline": "Baseline",
    "scaling": "Scaling: a formula whose numbers are fitted",
    "binning": "Binning: one value for all samples of a bin",
    "curve": "Curves: any rising or smooth function",
    "composition": "Compositions and selection",
}

Kind = type[Calibrator] | type[FeatureCalibrator]


def calibrator_pages() -> dict[str, str]:
    """The pages, by file name."""
    kinds = sorted(_kinds(), key=lambda kind: kind.name)
    return {"README.md": _table(kinds)} | {f"{kind.name}.md": _page(kind) for kind in kinds}


def _kinds() -> list[Kind]:
    exported = (getattr(calibrators, name) for name in calibrators.__all__)
    classes = (kind for kind in exported if inspect.isclass(kind) and not inspect.isabstract(kind))
    return [kind for kind in classes if issubclass(kind, Calibrator | FeatureCalibrator)]


def _table(kinds: list[Kind]) -> str:
    lines = ["# Calibrators, one page each", "", NOTE, "", EXPLANATION]
    for family, heading in FAMILIES.items():
        members = [kind for kind in kinds if kind.family == family]
        if not members:
            continue
        lines += ["", f"## {heading}", "", "| | | keeps predictions | keeps order | from |", "|---|---|---|---|---|"]
        for kind in members:
            facts = " | ".join(_facts(kind))
            features = " (needs features)" if issubclass(kind, FeatureCalibrator) else ""
            lines.append(f"| [`{kind.name}`]({kind.name}.md) | {kind.title}{features} | {facts} | {kind.paper.short} |")
    return "\n".join(lines) + "\n"


def _page(kind: Kind) -> str:
    text = _as_markdown(inspect.cleandoc(kind.__doc__ or ""))
    body, *arguments = re.split(r"^(?:Args|Raises|Example|Returns):\n", text, flags=re.MULTILINE)
    prose, *fields = re.split(r"^(Formula|Samples): ", body, flags=re.MULTILINE)
    sections = dict(zip(fields[::2], (" ".join(value.split()) for value in fields[1::2]), strict=True))
    summary, _, rest = prose.strip().partition("\n\n")
    predictions, order = _facts(kind)
    paper, where = kind.paper, f", {kind.paper.where}" if kind.paper.where else ""
    lines = [f"# `{kind.name}`: {kind.title}", "", NOTE, "", " ".join(summary.split()), ""]
    for paragraph in rest.split("\n\n"):
        lines += [" ".join(paragraph.split()), ""] if paragraph.strip() else []
    lines += [
        f"- **Formula**: `{sections['Formula']}`",
        f"- **Samples it needs**: {sections['Samples']}",
        f"- **Keeps predictions**: {predictions}",
        f"- **Keeps the order of confidences**: {order}",
        f"- **From**: {paper.short}, {paper.link}{where}",
        "",
        *_options(kind, arguments[0] if "Args:\n" in text else ""),
        f"Python: `from calibrant import {kind.__name__}`.",
        f"Command line: `calibrant fit {_command(kind)} -o map.safetensors`.",
    ]
    return "\n".join(lines) + "\n"


def _as_markdown(text: str) -> str:
    """Cross-references and literals of a docstring as Markdown code."""
    return re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"`\1`", text).replace("``", "`")


def _facts(kind: Kind) -> tuple[str, str]:
    """Whether predictions and the order of confidences are kept."""
    if kind.family == "composition":
        return "as its methods", "as its methods"
    return "yes" if kind.preserves_accuracy else "no", "yes" if kind.preserves_ranking else "no"


def _command(kind: Kind) -> str:
    """What to type after ``calibrant fit``."""
    name = "temperature+isotonic" if kind is calibrators.Chain else kind.name
    features = " --features features" if issubclass(kind, FeatureCalibrator) else ""
    return f"{name} calibration.npz{features}"


def _options(kind: Kind, arguments: str) -> list[str]:
    """A table of the options, their defaults and their descriptions."""
    options = dataclasses.fields(kind)
    if not options:
        return []
    entries = re.split(r"^    (\w+): ", arguments, flags=re.MULTILINE)[1:]
    meaning = {name: " ".join(value.split()) for name, value in zip(entries[::2], entries[1::2], strict=True)}
    lines = ["| option | default | |", "|---|---|---|"]
    lines += [
        f"| `{option.name}` | `{_default(option.default)}` | {meaning.get(option.name, '')} |" for option in options
    ]
    return [*lines, ""]


def _default(value: object) -> object:
    """Methods by their names, everything else as Python writes it."""
    if isinstance(value, Calibrator):
        return value.name
    return ", ".join(str(_default(item)) for item in value) if isinstance(value, tuple) else repr(value)
