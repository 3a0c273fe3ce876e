"""The code blocks of a Markdown page, and how what they print is compared with what the page says."""

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[1] / "docs"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block with its language and its line."""

    language: str
    code: str
    line: int


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks that name a language."""
    return [Block(m[1], m[2], page[: m.start()].count("\n") + 1) for m in _FENCE.finditer(page)]


@cache
def taught_by(page: str) -> ModuleType:
    """Return a module of the Python blocks of a page of docs that define a class, run in their order.

    Code keeps its line numbers in the page, so that torch and tracebacks find its source.
    """
    path = DOCS / page
    module = ModuleType(f"docs_{path.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "python" and re.search(r"^class ", block.code, re.MULTILINE):
            code = compile("\n" * block.line + block.code, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, module.__dict__)  # noqa: S102  # our own pages
    return module


def classes_taught_by(page: str, base: type) -> list[type]:
    """Return the classes below ``base`` that a page of docs defines."""
    module = taught_by(page)
    defined = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, base)]
    return [cls for cls in defined if cls.__module__ == module.__name__]


def same_text(said: str, printed: str) -> bool:
    """Return whether both say the same, white space folded. A line ``…`` in ``said`` skips any lines.

    Numbers with a decimal point may differ by one unit in the last place that the page prints, because processors and
    versions of torch round differently; whole numbers must be equal.
    """
    pattern = [_fold(part) for part in re.split(r"^\s*…\s*$", said, flags=re.MULTILINE)]
    rest = _fold(printed)
    if len(pattern) == 1:
        return _alike(pattern[0], rest)
    words = rest.split(" ")
    place = 0
    for part in filter(None, pattern):
        length = len(part.split(" "))
        starts = range(place, len(words) - length + 1)
        found = next((s for s in starts if _alike(part, " ".join(words[s : s + length]))), None)
        if found is None:
            return False
        place = found + length
    return True


def _fold(text: str) -> str:
    return " ".join(text.split())


def _alike(said: str, printed: str) -> bool:
    if _NUMBER.sub("#", said) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(said), _NUMBER.findall(printed), strict=True)
    return all(_close(*(Decimal(number.replace(",", "")) for number in pair)) for pair in pairs)


def _close(said: Decimal, printed: Decimal) -> bool:
    """Return whether two numbers agree but for one unit in the last place of the first."""
    if said == printed:
        return True
    exponent = said.as_tuple().exponent
    return exponent < 0 and abs(said - printed) <= Decimal(1).scaleb(exponent)
