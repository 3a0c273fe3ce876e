"""The code blocks of a Markdown page, and how what they print is compared with what the page says."""

import re
from dataclasses import dataclass

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


def same_text(said: str, printed: str, tolerance: float = 0.01) -> bool:
    """Whether both say the same, white space folded and numbers within a tolerance. A line ``…`` skips any lines."""
    pattern = [_fold(part) for part in re.split(r"^\s*…\s*$", said, flags=re.MULTILINE)]
    rest = _fold(printed)
    if len(pattern) == 1:
        return _alike(pattern[0], rest, tolerance)
    words = rest.split(" ")
    place = 0
    for part in filter(None, pattern):
        length = len(part.split(" "))
        starts = range(place, len(words) - length + 1)
        found = next((s for s in starts if _alike(part, " ".join(words[s : s + length]), tolerance)), None)
        if found is None:
            return False
        place = found + length
    return True


def _fold(text: str) -> str:
    return " ".join(text.split())


def _alike(said: str, printed: str, tolerance: float) -> bool:
    if _NUMBER.sub("#", said) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(said), _NUMBER.findall(printed), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= 0.002 + tolerance * abs(a) for a, b in numbers)
