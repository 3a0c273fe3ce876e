r"""Names that came from a file, made safe to be shown: in a terminal, and on a Markdown page.

A class, an array or a file can be called anything: ``\x1b[2J`` clears a terminal, a line break begins a line of its
own, ``<script>`` is code on a page. Text is escaped where it is shown; in between, and in JSON, it stays what it is.
"""

import re
import unicodedata

__all__ = ["markdown_code", "markdown_text", "terminal_text"]

# Control characters, those that turn the direction of writing, line and paragraph separators, halves of characters.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}
_JOINERS = "\u200c\u200d"  # inside words of some languages, and inside emoji

# What begins something in Markdown or HTML; the rest of its signs mean something only where a line or a word begins.
_MARKS = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LINE_START = re.compile(r"^(\s*)([#>+=-]|\d+(?=[.)](?:\s|$)))")


def terminal_text(text: object, *, lines: bool = False) -> str:
    r"""Text with what a terminal would act on, or not show, written out.

    Args:
        text: Anything; it is shown as ``str`` gives it.
        lines: Whether line breaks stay, as in text of our own.

    Example:
        >>> print(terminal_text("cat\x1b[31m\nAll is well"))
        cat\x1b[31m\nAll is well
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    kept = _JOINERS + "\n" * lines
    return "".join(
        char if char in kept or unicodedata.category(char) not in _HIDDEN else char.encode("unicode_escape").decode()
        for char in shown
    )


def markdown_text(text: object) -> str:
    r"""Text that a Markdown page shows as it is: no markup, link, picture, heading, table cell or HTML comes of it.

    Example:
        >>> print(markdown_text("<b>cat</b> | [x](http://y)"))
        \<b>cat\</b> \| \[x\](http&#58;//y)
    """
    shown = _ENTITY.sub("&amp;", terminal_text(text))
    shown = _MARKS.sub(lambda mark: f"\\{mark[0]}", shown).replace("://", "&#58;//")
    return _LINE_START.sub(lambda start: f"{start[1]}{_escaped_start(start[2])}", shown)


def markdown_code(text: object) -> str:
    r"""A name as code on a Markdown page, also in a table.

    Example:
        >>> print(markdown_code("focal(gamma=3)"), markdown_code("a`b|c"))
        `focal(gamma=3)` ``a`b\|c``
    """
    shown = terminal_text(text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}".replace("|", "\\|")


def _escaped_start(sign: str) -> str:
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"
