"""Texts as numbers: which words a text has, and the vocabulary that numbers them."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import InputError

__all__ = ["Vocabulary", "words_of"]

_WORD = re.compile("[a-z]+")


def words_of(text: str) -> list[str]:
    """The words of a text: runs of the letters a to z, in lower case. All else parts words and is gone.

    It is made for English. Digits carry little there, and an accent splits a word in two.

    Example:
        >>> words_of("It's 1993: don't PANIC")
        ['it', 's', 'don', 't', 'panic']
    """
    return _WORD.findall(text.lower())


@final
@dataclass(frozen=True)
class Vocabulary:
    """The words that have a number of their own.

    Build it from training texts only: a vocabulary that has seen the test texts knows which of their words matter.

    Formula: 0 is no word (the text has ended), 1 is any unknown word, and the i-th word of ``words`` is i + 2.

    Args:
        words: Each word once, in the order of their numbers.

    Raises:
        InputError: If a word is listed twice.

    Example:
        >>> vocabulary = Vocabulary.of(["to be or not to be", "be it so"], n_words=4)
        >>> vocabulary.words, len(vocabulary)
        (('be', 'to'), 4)
        >>> vocabulary.numbers(["not to be", ""], length=4).tolist()
        [[1, 3, 2, 0], [1, 0, 0, 0]]
    """

    PADDING: ClassVar[int] = 0
    UNKNOWN: ClassVar[int] = 1
    _FIRST: ClassVar[int] = 2

    words: tuple[str, ...]
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        number = {word: self._FIRST + place for place, word in enumerate(self.words)}
        if len(number) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise InputError(f"words must each be listed once; got {twice!r} twice. Remove one of them.")
        object.__setattr__(self, "_number", number)

    @classmethod
    def of(cls, texts: Iterable[str], *, n_words: int) -> "Vocabulary":
        """The most frequent words of some texts; words that are equally frequent are taken in alphabetical order.

        Args:
            texts: The training texts.
            n_words: How many numbers there may be at most, with the two that stand for no word and an unknown word.

        Raises:
            InputError: If ``n_words`` leaves no word a number.
        """
        check_at_least(n_words, cls._FIRST + 1, "n_words")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: n_words - cls._FIRST]))

    def __len__(self) -> int:
        """How many numbers there are, from 0 on."""
        return self._FIRST + len(self.words)

    def numbers(self, texts: Collection[str], *, length: int) -> Tensor:
        """The first words of each text as numbers.

        A text without words is one unknown word, so that no row is padding alone: a network that averages over words
        would divide by zero.

        Args:
            texts: Any texts, n of them.
            length: Words of each text to keep; a shorter text is filled up with 0.

        Returns:
            Shape (n, length), int64.

        Raises:
            InputError: If ``length`` is below 1.
        """
        check_at_least(length, 1, "length")
        numbers = np.full((len(texts), length), self.PADDING, dtype=np.int64)
        number, unknown = self._number.get, self.UNKNOWN
        for row, text in zip(numbers, texts, strict=True):
            known = [number(word, unknown) for word in words_of(text)[:length]]
            row[: max(len(known), 1)] = known or unknown
        return torch.from_numpy(numbers)
