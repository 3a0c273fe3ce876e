"""Write numbers and names as text: counts, percentages, lists, and names that are safe to show."""

import codecs
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from os.path import commonprefix
from typing import TextIO

# Control characters, direction marks, line and paragraph separators, surrogates.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}
_JOINERS = "\u200c\u200d"  # inside words of some languages, and inside emoji

# Characters with a meaning in Markdown or HTML anywhere; others have one only at the start of a line or a word.
_MARKS = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LINE_START = re.compile(r"^(\s*)([#>+=-]|\d+(?=[.)](?:\s|$)))")

# Plain signs, as wide as those of the first line where there are such, for tables.
_SIGNS = dict(zip("✓✗•→←…−–▼▲↓↑×“”‘’·\xa0", "+x*><~--v^v^x\"\"''- ", strict=True))
_SIGNS |= {"≥": ">=", "≤": "<=", "±": "+-", "‖": "||", "δ": "delta", "γ": "gamma", "λ": "lambda"}


def terminal_text(text: object, *, lines: bool = False) -> str:
    """Return text with control characters and invisible characters escaped; ``lines`` keeps line breaks."""
    shown = str(text)
    if shown.isprintable():
        return shown
    kept = f"{_JOINERS}\n" if lines else _JOINERS
    return "".join(
        char if char in kept or unicodedata.category(char) not in _HIDDEN else char.encode("unicode_escape").decode()
        for char in shown
    )


def accept_all_signs(stream: TextIO) -> None:
    """Let a stream write signs that its encoding lacks, such as a pipe's on Windows, by others like them."""
    if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
        codecs.register_error("calibrant", _plain)
        stream.reconfigure(errors="calibrant")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that cannot be encoded by signs like them, or by their numbers."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    numbered = (char.encode("ascii", "backslashreplace").decode() for char in missing)
    return "".join(_SIGNS.get(char, number) for char, number in zip(missing, numbered, strict=True)), error.end


def without_middle(name: str, longest: int = 40) -> str:
    """Replace the middle of a name that is too long by an ellipsis; its end, where names often differ, is kept.

    Example:
        >>> without_middle("label_smoothing(smoothing=0.05)", 20)
        'label_smoo…ing=0.05)'
    """
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def without_middles(names: Iterable[str], longest: int = 40) -> dict[str, str]:
    """Return names without their middle, or, where that leaves equal ones, the part in which those differ."""
    short = {name: without_middle(name, longest) for name in names}
    for text in {text for text, times in Counter(short.values()).items() if times > 1}:
        alike = [name for name in short if short[name] == text]
        start = max(1, len(commonprefix(alike)) - longest // 2)  # noqa: RUF071 - by character is meant
        short |= {name: f"…{name[start : start + longest - 2].strip()}…" for name in alike}
    return short


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "sample"), counted(2000, "sample"), counted(3, "class", "classes")
        ('1 sample', '2,000 samples', '3 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def samples_text(n: int, effective_n: float | None, noun: str = "sample", clusters: int | None = None) -> str:
    """Return the number of samples, of their clusters if they have some, and the effective number if it differs."""
    within = "" if clusters is None else f" in {counted(clusters, 'cluster')}"
    is_as_many = effective_n is None or round(effective_n) == n
    return counted(n, noun) + within + ("" if is_as_many else f" (effective {effective_n:,.0f})")


def percent(share: float, decimals: int = 1) -> str:
    """Return a share in percent.

    Example:
        >>> percent(0.1234), percent(0.1234, 0), percent(-0.0001)
        ('12.3 %', '12 %', '0.0 %')
    """
    return f"{100 * share:z.{decimals}f} %"


def listed(names: Iterable[object], most: int) -> str:
    """Return names with commas between them, of more than so many only the first.

    Example:
        >>> listed("abc", 3), listed("abcd", 3)
        ('a, b, c', 'a, b, c, ...')
    """
    texts = list(map(str, names))
    return ", ".join(texts if len(texts) <= most else [*texts[:most], "..."])


def joined(texts: Sequence[str], last: str = "and") -> str:
    """Return ``a, b and c``."""
    return f" {last} ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def markdown_text(text: object) -> str:
    """Return text escaped for Markdown: it contains no markup, link, picture, heading, table cell or HTML."""
    shown = _ENTITY.sub("&amp;", terminal_text(text))
    shown = _MARKS.sub(lambda mark: f"\\{mark[0]}", shown).replace("://", "&#58;//")
    return _LINE_START.sub(
        lambda start: start[1] + (f"&#{ord(start[2][0])};{start[2][1:]}" if start[2][0].isdigit() else f"\\{start[2]}"),
        shown,
    )


def markdown_code(text: object) -> str:
    """Return a name as code on a Markdown page, also in a table."""
    shown = terminal_text(text)
    ticks = max(re.findall("`+", shown), key=len, default="") + "`"
    pad = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}".replace("|", "\\|")
