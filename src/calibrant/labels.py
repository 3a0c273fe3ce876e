"""Labels in words: text encoded once, and looked up among the names of the classes."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import MULTI_LABEL, Argument, InputError, Row
from calibrant.text import listed

_WHOLE = re.compile(r"[-+]?\d{1,15}(\.0*)?", re.ASCII)
TRUTHS = dict.fromkeys(("true", "yes", "correct", "right", "1", "1.0"), True)
TRUTHS |= dict.fromkeys(("false", "no", "incorrect", "wrong", "0", "0.0"), False)
NOTHING = {"", "nan", "null", "na", "n/a", "#n/a", "<na>"}  # in small letters; classes may be called so, too
_MOST_SHOWN = 5


@final
@dataclass(frozen=True, eq=False)
class Words:
    """A column of text, encoded: the distinct words, and for every row the number of its word."""

    distinct: tuple[str, ...]
    codes: Tensor  # (n,) int64

    def __getitem__(self, rows: Tensor | slice) -> "Words":
        return Words(self.distinct, self.codes[rows])

    def only_used(self) -> "Words":
        """Return the same rows without the words that are in none of them."""
        used, codes = self.codes.unique(return_inverse=True)
        return Words(tuple(self.distinct[code] for code in used.tolist()), codes)

    def lacking(self, known: Collection[str] | None = None) -> Tensor:
        """Return which rows have no word, bool (n,); where some are ``known``, others such as NaN are none, too."""
        words = [word.strip() for word in self.distinct]
        nothing = [not w or (known is not None and w.lower() in NOTHING and w not in known) for w in words]
        return torch.tensor(nothing, dtype=torch.bool)[self.codes]

    def first(self, wrong: Callable[[str], bool]) -> tuple[int, str] | None:
        """Return the first row, and its word, for which ``wrong`` holds."""
        bad = torch.tensor([wrong(word) for word in self.distinct], dtype=torch.bool)[self.codes].nonzero()
        if not bad.numel():
            return None
        row = int(bad[0])
        return row, self.distinct[int(self.codes[row])]

    def rows_of(self, words: Collection[str]) -> Tensor:
        """Return the rows that have one of these words."""
        chosen = torch.tensor([word in words for word in self.distinct], dtype=torch.bool)
        return chosen[self.codes].nonzero()[:, 0]

    def numbers(self, number_of: Mapping[str, int]) -> Tensor:
        """Return the number of every row's word, int64 (n,); all words must be known."""
        return torch.tensor([number_of[word] for word in self.distinct])[self.codes]


def encode(array: Any) -> Words:
    """Return a one-dimensional array of text as words."""
    distinct, codes = np.unique(array, return_inverse=True)
    return Words(tuple(distinct.tolist()), torch.from_numpy(codes.astype(np.int64, copy=False)))


def as_words(labels: object) -> Words | None:
    """Return labels in words, a list or an array of text, as Words; None if they are numbers."""
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise InputError("labels must be one a sample; got rows of several lengths. ", *MULTI_LABEL) from error
    if array.ndim != 1 or not array.size or array.dtype.kind not in "USO":
        return None
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "O":
        is_text = [isinstance(label, str) for label in array]
        if not any(is_text):
            return None
        if not all(is_text):
            row = is_text.index(False)
            raise InputError(f"labels must be all text or all numbers; got text, and {array[row]!r} at {Row(row)}.")
        array = array.astype(np.str_)
    return encode(array)


def whole_number(word: str) -> int | None:
    """Return the whole number that a word is (``"5"``, ``"5.0"``), or None."""
    return int(float(word)) if _WHOLE.fullmatch(word.strip()) else None


def class_numbers(
    words: Words, class_names: Sequence[str] | None, *, name: str = "labels", others: Sequence[str] = ()
) -> Tensor:
    """Return the class number of every row's word.

    Words are looked up among the class names and, class by class, their ``others``. If all are whole numbers and none
    is a class name, they are class numbers.
    """
    numbers = {other: number for number, other in enumerate(others)}
    numbers |= {class_name: number for number, class_name in enumerate(class_names or ())}
    if class_names and len(set(class_names)) < len(class_names):
        raise InputError(f"{name} must hold class numbers, because two classes have the same name; got words.")
    number_of = {word: numbers.get(word, numbers.get(word.strip())) for word in words.distinct}
    if all(number is None for number in number_of.values()):
        number_of = {word: whole_number(word) for word in words.distinct}
    unknown = words.first(lambda word: number_of[word] is None)
    if unknown is None:
        return words.numbers({word: number for word, number in number_of.items() if number is not None})
    row, word = unknown
    if not word.strip():
        raise InputError(f"{name} must have a value in every row; got an empty one at ", Row(row), ". Remove the row.")
    parts = [part.strip(" []'\"") for part in re.split(r"[|;,]", word)]  # "a|b", "0;2", "['a', 'b']"
    are_known = all(part in numbers or whole_number(part) is not None for part in parts)
    if len(parts) > 1 and (are_known or (class_names is None and re.search(r"[|;\[]", word))):
        raise InputError(f"{name} must hold one class a row; got {word!r} at ", Row(row), ". ", *MULTI_LABEL)
    if class_names is None:
        raise InputError(
            f"{name} must hold class numbers 0, 1, ..., because there are no class names to look words up in; got "
            f"{word!r} at ",
            *(Row(row), ". Give the names in the order of the scores, as "),
            *(Argument("class_names", "NAMES", is_literal=False), "; or, in a table, name the columns of the scores "),
            "prob_cat, prob_dog, ...",
        )
    is_truth = len(class_names) == 2 and word.strip().lower() in ("true", "false")
    positive = (
        " In a table, name the score of the class that is true: ",
        Argument("positive", "COLUMN", is_literal=False),
    )
    raise InputError(
        f"{name} must hold class names ({listed(map(repr, class_names), _MOST_SHOWN)}) or class numbers; got {word!r} ",
        "at ",
        *(Row(row), f"{nearest(word, list(numbers))}.", *((*positive, ".") if is_truth else ())),
    )


def nearest(word: str, known: Sequence[str]) -> str:
    """Return "; the nearest is ..." for a message about an unknown word; nothing if none is near."""
    same = [name for name in known if name.lower() == word.lower()]
    return "".join(f"; the nearest is {name!r}" for name in (same or get_close_matches(word, known, 1, cutoff=0.5))[:1])


def words_of(column: Tensor, name: str) -> Words:
    """Return numbers, (n,), as words: 3 and 3.0 are "3", true is "true"."""
    if column.ndim != 1:
        raise InputError(f"{name!r} must have one value per sample; its shape is {tuple(column.shape)}.")
    distinct, codes = column.unique(return_inverse=True)
    texts = [str(int(value) if float(value).is_integer() else value) for value in distinct.tolist()]
    return Words(
        tuple("true" if value else "false" for value in distinct) if column.dtype == torch.bool else tuple(texts), codes
    )


def truths(words: Words, name: str) -> Tensor:
    """Return true/false and the other words of :data:`TRUTHS` as bools, (n,)."""
    unknown = words.first(lambda word: word.strip().lower() not in TRUTHS)
    if unknown is not None:
        seen = ", ".join(map(repr, sorted(words.distinct)[:_MOST_SHOWN]))
        raise InputError(
            f"{name} must be true/false, yes/no, correct/incorrect, right/wrong or 1/0; got {unknown[1]!r} at ",
            *(Row(unknown[0]), f", among {seen}. Name the one that means true: "),
            *(Argument("positive_class", "WORD", is_literal=False), "."),
        )
    return words.numbers({word: TRUTHS[word.strip().lower()] for word in words.distinct}).bool()


def joined_columns(columns: Sequence[Tensor | Words]) -> Tensor | Words:
    """Return columns of several files as one; text, and numbers where another file has text, as words."""
    if all(isinstance(column, Tensor) for column in columns):
        return torch.cat([column for column in columns if isinstance(column, Tensor)])
    words = [column if isinstance(column, Words) else words_of(column, "column") for column in columns]
    distinct = tuple(dict.fromkeys(word for part in words for word in part.distinct))
    place = {word: code for code, word in enumerate(distinct)}
    codes = (torch.tensor([place[word] for word in part.distinct])[part.codes] for part in words)
    return Words(distinct, torch.cat([*codes]))
