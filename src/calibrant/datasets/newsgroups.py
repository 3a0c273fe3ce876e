"""20 Newsgroups, divided by date into training and test, and the vocabulary that encodes its texts."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import AtLeastOne, check_at_least, check_known
from calibrant.datasets import publisher_files
from calibrant.datasets.dataset import Dataset, DatasetReader, RemoteFile, Samples
from calibrant.errors import FileError, InputError, UnknownNameError, check_expansion, reading
from calibrant.paper import Paper

_WORD = re.compile("[a-z]+")


def words_of(text: str) -> list[str]:
    """Return the words of an English text: runs of the letters a to z, in lower case. An accent splits a word."""
    return _WORD.findall(text.lower())


@final
@dataclass(frozen=True)
class Vocabulary:
    """The words that have a number: 0 is no word (the text has ended), 1 any unknown word, i + 2 the i-th known one."""

    PADDING: ClassVar[int] = 0
    UNKNOWN: ClassVar[int] = 1
    _FIRST: ClassVar[int] = 2

    words: tuple[str, ...]  # distinct, in the order of their numbers

    @classmethod
    def of(cls, texts: Iterable[str], *, n_words: int) -> "Vocabulary":
        """Build a vocabulary of the most frequent words, ties in alphabetical order; it has ``n_words`` numbers."""
        check_at_least(n_words, cls._FIRST + 1, "n_words")
        counts = Counter(word for text in texts for word in words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ranked[: n_words - cls._FIRST]))

    def __len__(self) -> int:
        """Return how many word numbers there are, from 0."""
        return self._FIRST + len(self.words)

    def numbers(self, texts: Collection[str], *, length: int) -> Tensor:
        """Return the first ``length`` words of each text as numbers, (n, length) int64, padded with 0.

        A text without words is one unknown word, so that no sample is padding alone: a network that averages over words
        would divide by zero.
        """
        check_at_least(length, 1, "length")
        numbers = np.full((len(texts), length), self.PADDING, dtype=np.int64)
        number = {word: self._FIRST + place for place, word in enumerate(self.words)}
        for row, text in zip(numbers, texts, strict=True):
            known = [number.get(word, self.UNKNOWN) for word in words_of(text)[:length]]
            row[: max(len(known), 1)] = known or self.UNKNOWN
        return torch.from_numpy(numbers)


Headers: TypeAlias = Literal["all", "subject", "none"]

_CATEGORIES = (
    *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
    *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"),
    *("talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
)
_PUBLISHED = {"20news-bydate-train": 11_314, "20news-bydate-test": 7_532}  # messages in each part
_ARCHIVE = "20news-bydate.tar.gz"
_JSON = ("20newsgroups-train.jsonl", "20newsgroups-test.jsonl")

_FIRST_HEADER = re.compile(r"[A-Za-z-]+:\s")
_SUBJECT = re.compile(r"^subject:(.*(?:\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE)


class _Part(NamedTuple):
    """The texts of one part, and the number of each one's group."""

    where: str
    texts: list[str]
    labels: list[int]


@final
@dataclass(frozen=True)
class Newsgroups(DatasetReader):
    """Messages of twenty newsgroups, by the group that they were sent to.

    Some groups are close: five are about computers, three about religion. The test messages are later than the
    training messages, so a calibrator fitted on held-out training messages need not carry over. Quotes and signatures,
    which help to tell the group, are kept.

    Two layouts are read, the first that is there. The publisher's: the folders ``20news-bydate-train`` and
    ``20news-bydate-test`` with a folder for each group and a file for each message (Latin-1), unpacked or straight from
    ``20news-bydate.tar.gz``; samples are ordered by group and file name. JSON lines: ``20newsgroups-train.jsonl`` and
    ``20newsgroups-test.jsonl``, or the same with ``.gz``, an object with ``category``, ``text`` and perhaps ``label``
    on each line, in their own order and with unchanged texts. Only the archive has a published digest; of unpacked
    folders the number of messages is checked, of JSON lines the layout.

    Args:
        n_words: Numbers for words, with 0 for no word and 1 for an unknown word. The words are the most frequent ones
            of the training part; 20,000 leave about one word in twenty of the test part unknown.
        max_length: Words of each message to keep. Nine messages in ten have fewer than 500.
        headers: Header lines of a message to keep. ``subject`` is what a reader would see. ``all`` is the usual choice
            elsewhere and makes the task easier, for a sender's address or organisation often shows the group. ``none``
            is the hardest. JSON lines have no headers left to choose from.
    """

    name = "newsgroups"
    title = "20 Newsgroups"
    n_classes = len(_CATEGORIES)
    paper = Paper("Lang", 1995, "NewsWeeder: Learning to Filter Netnews", "doi:10.1016/B978-1-55860-377-6.50048-7")
    homepage = "http://qwone.com/~jason/20Newsgroups/"
    remote = (
        RemoteFile(
            f"http://qwone.com/~jason/20Newsgroups/{_ARCHIVE}",
            "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        ),
    )

    n_words: Annotated[int, partial(check_at_least, least=3)] = 20_000
    max_length: AtLeastOne = 500
    headers: Headers = "subject"

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        training, test = self._parts(Path(folder), checked=checked)
        vocabulary = Vocabulary.of(training.texts, n_words=self.n_words)
        training_samples, test_samples = (self._samples(part, vocabulary) for part in (training, test))
        return Dataset(self.name, _CATEGORIES, training_samples, test_samples, n_words=len(vocabulary))

    def _samples(self, part: _Part, vocabulary: Vocabulary) -> Samples:
        missing = [_CATEGORIES[label] for label in sorted(set(range(len(_CATEGORIES))) - set(part.labels))]
        if missing:
            raise FileError(
                f"{part.where} must have messages of all {len(_CATEGORIES)} newsgroups; missing: {', '.join(missing)}. "
                f"Get the whole of it from {self.homepage}."
            )
        return Samples(vocabulary.numbers(part.texts, length=self.max_length), torch.tensor(part.labels))

    def _parts(self, folder: Path, *, checked: bool) -> list[_Part]:
        for place in (folder, folder / _ARCHIVE.removesuffix(".tar.gz")):
            lacking = [name for name in _PUBLISHED if not (place / name).is_dir()]
            if not lacking:
                return self._unpacked_parts(place, checked=checked)
            if len(lacking) < len(_PUBLISHED):
                raise publisher_files.missing_files(self, place, " and ".join(_PUBLISHED), lacking)
        layouts = [publisher_files.FileLayout((_ARCHIVE,)), publisher_files.FileLayout(_JSON)]
        files = publisher_files.find_files(self, folder, layouts)
        if files.layout == layouts[0]:
            if checked:
                publisher_files.check_file(files.paths[_ARCHIVE], digest=self.remote[0].digest)
            return _archived(files.paths[_ARCHIVE], self.headers)
        if self.headers != "subject":
            raise InputError(
                f"headers must be left at 'subject' for JSON lines, whose texts are taken as they are; got "
                f"{self.headers!r}. Read {_ARCHIVE} to choose."
            )
        return [_json_part(member) for member in files.members()]

    def _unpacked_parts(self, folder: Path, *, checked: bool) -> list[_Part]:
        parts = [_part(str(folder / name), _unpacked(folder / name), self.headers) for name in _PUBLISHED]
        for part, expected in zip(parts, _PUBLISHED.values(), strict=True):
            if checked and (n := len(part.texts)) != expected:
                wanted = f"must hold the {expected:,} messages that were published"
                raise FileError(f"{part.where} {wanted}; got {n:,}. {publisher_files.UNCHECKED}")
        return parts


_Message: TypeAlias = tuple[str, str, bytes]  # its group, its file name and its content


def _part(where: str, messages: Iterable[_Message], headers: Headers) -> _Part:
    part = _Part(where, [], [])
    for category, file, content in sorted(messages):
        part.labels.append(_label(category, f"{where}/{category}/{file}"))
        part.texts.append(_text(content, headers))
    return part


def _text(content: bytes, headers: Headers) -> str:
    """Return the body of a message, with the headers that are wanted."""
    message = content.decode("latin-1").replace("\r\n", "\n")
    # A file that does not begin like a message is all text: its first paragraph is not a header.
    if headers == "all" or not _FIRST_HEADER.match(message):
        return message
    head, _, body = message.partition("\n\n")
    subject = _SUBJECT.search(head) if headers == "subject" else None
    return body if subject is None else f"{subject[1]}\n\n{body}"


def _unpacked(folder: Path) -> Iterator[_Message]:
    for path in folder.glob("[!.]*/[!.]*"):  # hidden files are not messages
        with reading(path, "file"):
            yield path.parent.name, path.name, path.read_bytes()


def _archived(archive: Path, headers: Headers) -> list[_Part]:
    parts: dict[str, list[_Message]] = {part: [] for part in _PUBLISHED}
    size = 0
    for entry, stream in publisher_files.archived_files(archive):
        part, category, file = ("", "", *PurePosixPath(entry.name).parts)[-3:]
        if part in parts and not file.startswith("."):
            size += entry.size
            check_expansion(archive, size)
            parts[part].append((category, file, stream.read()))
    return [_part(f"{archive}:{name}", messages, headers) for name, messages in parts.items()]


def _json_part(member: publisher_files.Member) -> _Part:
    part = _Part(member.where, [], [])
    with reading(member.where, "file of JSON lines"):
        for number, line in enumerate(member.stream, start=1):
            if line.strip():
                label, text = _record(line, f"{member.where}, line {number}")
                part.labels.append(label)
                part.texts.append(text)
    return part


def _record(line: bytes, where: str) -> tuple[int, str]:
    shape = '{"category": "sci.space", "text": "..."}'
    try:
        record = json.loads(line.rstrip())
    except ValueError as error:
        reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise FileError(f"{where} must be JSON such as {shape}; reading failed: {reason}. Correct the line.") from error
    category, text = (record.get("category"), record.get("text")) if isinstance(record, dict) else (None, None)
    if not isinstance(category, str) or not isinstance(text, str):
        raise FileError(f"{where} must have a category and a text, as {shape}; got {line[:60]!r}. Correct the line.")
    label = _label(category, where)
    if record.get("label", label) != label:
        raise FileError(
            f"{where}: the label of {category} must be {label}, its place in alphabetical order from 0; got "
            f"{record['label']!r}. Correct the label, or leave it out: the category says enough."
        )
    return label, text


def _label(category: str, where: str) -> int:
    try:
        check_known(category, _CATEGORIES, f"{where}: the category")
    except UnknownNameError as error:
        raise FileError(str(error)) from error
    return _CATEGORIES.index(category)
