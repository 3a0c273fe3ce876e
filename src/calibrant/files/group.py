"""Scores with a name for each class: ``logit_0``, ``logit_1``, ... or ``prob_cat``, ``prob_dog``, ..."""

from collections import Counter

from calibrant.files.content import Content

__all__ = ["Scores", "group_of"]

Scores = tuple[tuple[str, ...], tuple[str, ...] | None]  # the names of the scores and, if these say so, of the classes


def group_of(content: Content, prefix: str) -> Scores | None:
    """Names that start alike, in the order of the classes; None if there are fewer than two.

    Raises:
        InputError: If the numbers have a gap, stand twice, or are mixed with words. A FileError if it is a file.
    """
    names = [name for name in content.names if name.startswith(prefix)]
    if len(names) < 2:
        return None
    suffixes = [name.removeprefix(prefix) for name in names]
    numbered = [suffix.isascii() and suffix.isdecimal() for suffix in suffixes]
    if any(numbered) and not all(numbered):
        raise content.error(
            f"the {content.noun}s {prefix}* of {content.title} must end in numbers, or all in class names; found "
            f"{names[numbered.index(True)]!r} and {names[numbered.index(False)]!r}. Rename or remove what is no score."
        )
    classes = [int(suffix) for suffix in suffixes] if all(numbered) else suffixes
    twice, times = Counter(classes).most_common(1)[0]
    if times > 1:
        raise content.error(f"{content.title} must have one {content.noun} {prefix}{twice}; found {times}. Rename one.")
    if not all(numbered):
        return tuple(names), tuple(suffixes)
    by_class = dict(zip(classes, names, strict=True))
    gap = next((number for number in range(len(names)) if number not in by_class), None)
    if gap is not None:
        raise content.error(
            f"the {content.noun}s {prefix}* of {content.title} must be numbered from 0 without a gap; "
            f"{prefix}{gap} is missing (found {names[0]!r} to {names[-1]!r}). Add it, or rename the others."
        )
    return tuple(by_class[number] for number in range(len(names))), None
