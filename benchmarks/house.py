"""Size and shape of the code: ``make house`` prints them beside their bounds, and a test keeps them from growing.

Counted over ``src/calibrant``: modules, lines, import lines, cycles of files, levels of the import contract, and
phrases that the style guide rules out. Counted while a command runs: our files in which a function is entered.
"""

import ast
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["BOUNDS", "COMMAND_BOUNDS", "Bound", "files_entered", "measure"]

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "calibrant"


@dataclass(frozen=True)
class Bound:
    """A number that must stay at most, or at least, what it is now, and what it should become."""

    title: str
    now: float
    goal: float
    side: Literal["at most", "at least"] = "at most"

    def holds(self, value: float) -> bool:
        """Return whether a measured value keeps to the bound."""
        return value <= self.now if self.side == "at most" else value >= self.now


# A change that improves a number lowers (or raises) its bound here; only a new capability may move one the other way:
# the history of this file says which.
BOUNDS = {
    "modules": Bound("modules", 223, 240),
    "median": Bound("median lines of a module", 240, 130, "at least"),
    # 38,000 was the goal before the doors (file formats, weights, slices); what they add is counted here too.
    # Sections of a public docstring (Args, Returns, Raises, Example) are not to be saved.
    "lines": Bound("lines, without studio/, integrations/ and scale/", 51_602, 38_000),
    "studio": Bound("lines of studio/", 1_441, 1_500),
    "integrations": Bound("lines of integrations/", 2_418, 2_500),
    "scale": Bound("lines of scale/", 3_516, 2_700),
    "imports": Bound("import lines, percent", 6.34, 6.5),
    "levels": Bound("levels of imports", 12, 12),
    "cycles": Bound("files in cycles of imports", 0, 0),
    "stubs": Bound('"Args" entries that begin with "Of"', 0, 0),
    "clauses": Bound("module docstrings that are a What/Which/How clause", 0, 0),
    "dialect": Bound("lines with words that the style guide rules out", 2, 0),
}
COMMAND_BOUNDS = {
    "evaluate": Bound("files entered by evaluate", 40, 40),
    "fit": Bound("files entered by fit", 32, 30),
    "compare": Bound("files entered by compare", 44, 50),
    "diagnose": Bound("files entered by diagnose", 52, 70),
}

_DIALECT = re.compile(
    r"\b(told|tells of|gone on with|goes on with|go on with|mend(?:s|ed|ing|able)?|doing nothing|as it is\b|in earnest"
    r"|judge[sd]?|judging|judgement|rival[s]?|honest(?:ly)?|coldness|coldest|spoilt|spoil(?:s|ed)?)\b"
)
_NAMES = re.compile(r"\b(each|found|said|told|things?)\b\s*(?:=[^=]|in\b|,)")


def measure() -> dict[str, float]:
    """Return every number of :data:`BOUNDS`."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lengths = [text.count("\n") for text in texts.values()]
    studio, integrations, scale = (
        sum(text.count("\n") for path, text in texts.items() if path.is_relative_to(SOURCE / package))
        for package in ("studio", "integrations", "scale")
    )
    return {
        "modules": len(texts),
        "median": statistics.median(lengths),
        "lines": sum(lengths) - studio - integrations - scale,
        "studio": studio,
        "integrations": integrations,
        "scale": scale,
        "imports": round(100 * sum(map(_import_lines, trees.values())) / sum(lengths), 2),
        "levels": _levels(),
        "cycles": _in_cycles(trees),
        "stubs": sum(
            len(re.findall(r"^\s+\w+: (?:Of|The same|That of) ", text, re.MULTILINE)) for text in texts.values()
        ),
        "clauses": sum(
            bool(re.match(r"(What|Which|How|Who|Where|When)\b", ast.get_docstring(t) or "")) for t in trees.values()
        ),
        "dialect": sum(map(_dialect_lines, texts)),
    }


def files_entered() -> dict[str, list[str]]:
    """Return our files in which a function is entered while a command runs, by the commands of COMMAND_BOUNDS.

    One process imports what the commands need, which takes longer than they do, and every command runs in a copy of it.
    """
    script = (
        "import contextlib, importlib, json, os, sys, threading, traceback\n"
        "import matplotlib.pyplot, pyarrow, scipy.stats, torch\n"
        "for name in ('pydantic.fields', 'pydantic.type_adapter'):  # which not every version of typer needs\n"
        "    with contextlib.suppress(ImportError):\n"
        "        importlib.import_module(name)\n"
        "from calibrant.cli.main import run\n"
        "import calibrant.comparison, calibrant.diagnosis, calibrant.report, calibrant.training, rich.table\n"
        "seen = set()\n"
        "def note(frame, event, argument):\n"
        "    file = frame.f_code.co_filename\n"
        "    if event != 'call' or file in seen or 'calibrant' not in file:\n"
        "        return\n"
        "    above = frame\n"
        "    while above is not None:  # what runs while a module is imported does not count\n"
        "        if above.f_code.co_name == '<module>' and above.f_code.co_filename != '<string>':\n"
        "            return\n"
        "        above = above.f_back\n"
        "    seen.add(file)\n"
        "for name, arguments in json.loads(sys.argv[1]).items():\n"
        "    if process := os.fork():\n"
        "        if status := os.waitpid(process, 0)[1]:\n"
        "            sys.exit(f'calibrant {name} ended with {os.waitstatus_to_exitcode(status)}')\n"
        "        continue\n"
        "    sys.argv = ['calibrant', *arguments]\n"
        "    if name != 'train':  # which only makes the runs of diagnose\n"
        "        threading.setprofile(note); sys.setprofile(note)\n"
        "    status = 1\n"
        "    try:\n"
        "        run()\n"
        "    except SystemExit as end:\n"
        "        status = end.code or 0\n"
        "    except BaseException:\n"
        "        traceback.print_exc()\n"
        "    finally:\n"
        "        sys.setprofile(None)\n"
        "        open(f'{name}.txt', 'w').write('\\n'.join(sorted(seen)))\n"
        "        os._exit(status)  # taking down all that was imported would take longer than the command\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
        command = [sys.executable, "-c", script, json.dumps(_commands(folder))]
        ended = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(
                f"the commands must run to be measured; they ended with {ended.returncode}: {ended.stderr}"
            )
        entered = {name: (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in COMMAND_BOUNDS}
    return {
        name: [str(Path(file).relative_to(SOURCE)) for file in files if file.startswith(str(SOURCE))]
        for name, files in entered.items()
    }


def _commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write small inputs and return every measured command's arguments, and those of one that diagnose follows."""
    from calibrant import Predictions, save
    from calibrant.datasets import load_resnet110

    bundled = load_resnet110()
    for name, part in {"calibration": bundled.calibration, "test": bundled.test}.items():
        save(Predictions(part.logits[:1000], part.labels[:1000]), folder / f"{name}.npz")
    recipe = ("--epochs", "1", "--batch-size", "64", "--device", "cpu")
    few = ("--resamples", "100")
    losses = ("--loss", "ce", "--loss", "focal", "--seed", "0")
    return {
        "evaluate": ("evaluate", "test.npz", "--json", "evaluation.json", *few),
        "fit": ("fit", "temperature", "calibration.npz", "-o", "map.safetensors"),
        "compare": ("compare", "calibration.npz", "test.npz", "--methods", "temperature,svs,isotonic", *few),
        "train": ("train", "--dataset", "digits", "--model", "digits_cnn", *losses, *recipe, "-o", "runs"),
        "diagnose": ("diagnose", "runs", "--draws", "0"),
    }


def _import_lines(tree: ast.Module) -> int:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def _levels() -> int:
    contract = (ROOT / ".importlinter").read_text(encoding="utf-8").partition("layers =\n")[2]
    return len(contract.partition("\n\n")[0].splitlines())


def _in_cycles(trees: dict[Path, ast.Module]) -> int:
    """Return the number of files that reach themselves by imports, those inside functions included."""
    modules = {_module(path): tree for path, tree in trees.items()}
    edges = {name: set(_imported(name, tree, modules)) for name, tree in modules.items()}
    return sum(name in _reached(name, edges.__getitem__) for name in edges)


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, tree: ast.Module, modules: dict[str, ast.Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in modules and name != "calibrant":
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (target for target in submodules if target in modules)
            if node.module != "calibrant" and any(target not in modules for target in submodules):
                yield node.module


def _reached(start: str, following: Callable[[str], set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(following(start))
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting.extend(following(name))
    return reached


def _dialect_lines(path: Path) -> int:
    """Count lines whose comments or strings use words that the style guide rules out, or whose names do."""
    lines, whole = set(), path.read_text(encoding="utf-8")
    if _DIALECT.search(whole):  # taking all modules apart would take seconds
        for token in tokenize.generate_tokens(io.StringIO(whole).readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}:
                for number, text in enumerate(token.string.splitlines(), token.start[0]):
                    if _DIALECT.search(text):
                        lines.add(number)
    for number, text in enumerate(whole.splitlines(), 1):
        if _NAMES.search(text) and re.match(r"\s*(for |\w+ = |\w+, )", text):
            lines.add(number)
    return len(lines)


def main() -> None:
    """Print every number with its bound and its goal."""
    measured = measure()
    print(f"{'':52}{'now':>9}{'bound':>9}{'goal':>9}")
    for name, bound in BOUNDS.items():
        print(f"{bound.title:52}{measured[name]:9g}{bound.now:9g}{bound.goal:9g}")
    if "--commands" in sys.argv:
        for name, files in files_entered().items():
            bound = COMMAND_BOUNDS[name]
            print(f"{bound.title:52}{len(files):9}{bound.now:9g}{bound.goal:9g}")


if __name__ == "__main__":
    main()
