"""20 Newsgroups: messages to twenty discussion groups of 1993, divided by date into training and test."""

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

import torch

from calibrant.checks import check_at_least, check_known
from calibrant.datasets.canonical import Layout, find_files, missing_files, open_file
from calibrant.datasets.dataset import Dataset, Examples
from calibrant.datasets.integrity import check_file
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.datasets.words import Vocabulary
from calibrant.errors import FileError, InputError, UnknownNameError
from calibrant.paper import Paper

__all__ = ["Headers", "Newsgroups"]

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
    r"""Which of twenty newsgroups a message was sent to.

    Some groups are close: five are about computers, three about religion. The test messages are later than the
    training messages, so a calibrator fitted on held-out training messages meets other words and need not carry over.
    Replies quote each other, and signatures name people; both help to tell the group, and are kept.

    Two layouts are read, the first that is there. The publisher's: the folders ``20news-bydate-train`` and
    ``20news-bydate-test`` with a folder for each group and a file for each message (Latin-1), unpacked or straight from
    ``20news-bydate.tar.gz``; rows are ordered by group and file name. JSON lines: ``20newsgroups-train.jsonl`` and
    ``20newsgroups-test.jsonl``, or the same with ``.gz``, an object with ``category``, ``text`` and perhaps ``label``
    on each line; rows keep their order, and texts are taken as they are. The publisher gives out the archive alone, so
    only that has a digest; of unpacked folders the number of messages is checked, of JSON lines the layout.

    Formula: the input is the first ``max_length`` words as numbers; see :class:`calibrant.datasets.words.Vocabulary`.

    Args:
        n_words: Numbers for words, with 0 for no word and 1 for an unknown word. The words are the most frequent ones
            of the training part; 20,000 leave about one word in twenty of the test part unknown.
        max_length: Words of each message to keep. Nine messages in ten have fewer than 500.
        headers: Which header lines of a message to keep. ``subject``, the subject alone, is what a reader would see.
            ``all`` is the usual choice elsewhere and makes the task easier, for a sender's address or organisation
            often tells the group. ``none`` is the hardest. JSON lines have no headers left to choose from.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import tempfile
        >>> lines = [json.dumps({"category": name, "text": f"All about {name}"}) for name in _CATEGORIES]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in _JSON:
        ...         _ = Path(folder, name).write_text("\n".join(lines))
        ...     dataset = Newsgroups(max_length=6).read(Path(folder))
        >>> dataset.training.inputs[0].tolist(), dataset.class_names[0]
        ([3, 2, 15, 16, 0, 0], 'alt.atheism')
    """

    name: ClassVar[str] = "newsgroups"
    title: ClassVar[str] = "20 Newsgroups"
    n_classes: ClassVar[int] = len(_CATEGORIES)
    paper: ClassVar[Paper] = Paper(
        "Lang", 1995, "NewsWeeder: Learning to Filter Netnews", "doi:10.1016/B978-1-55860-377-6.50048-7"
    )
    homepage: ClassVar[str] = "http://qwone.com/~jason/20Newsgroups/"
    remote: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            f"http://qwone.com/~jason/20Newsgroups/{_ARCHIVE}",
            "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        ),
    )

    n_words: int = 20_000
    max_length: int = 500
    headers: Headers = "subject"

    def __post_init__(self) -> None:
        check_at_least(self.n_words, 3, "n_words")
        check_at_least(self.max_length, 1, "max_length")
        check_known(self.headers, get_args(Headers), "headers")

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        training, test = self._parts(Path(folder), checked=checked)
        vocabulary = Vocabulary.of(training.texts, n_words=self.n_words)
        return Dataset(
            name=self.name,
            class_names=_CATEGORIES,
            training=self._examples(training, vocabulary),
            test=self._examples(test, vocabulary),
            n_words=len(vocabulary),
        )

    def _examples(self, part: _Part, vocabulary: Vocabulary) -> Examples:
        missing = [_CATEGORIES[label] for label in sorted(set(range(len(_CATEGORIES))) - set(part.labels))]
        if missing:
            raise FileError(
                f"{part.where} must have messages of all {len(_CATEGORIES)} newsgroups; missing: {', '.join(missing)}. "
                f"Get the whole of it from {self.homepage}."
            )
        return Examples(vocabulary.numbers(part.texts, length=self.max_length), torch.tensor(part.labels))

    def _parts(self, folder: Path, *, checked: bool) -> list[_Part]:
        for place in (folder, folder / _ARCHIVE.removesuffix(".tar.gz")):
            lacking = [name for name in _PUBLISHED if not (place / name).is_dir()]
            if not lacking:
                return self._unpacked_parts(place, checked=checked)
            if len(lacking) < len(_PUBLISHED):
                raise missing_files(self, place, " and ".join(_PUBLISHED), lacking)
        layouts = [Layout((_ARCHIVE,)), Layout(_JSON)]
        found = find_files(self, folder, layouts)
        if found.layout == layouts[0]:
            if checked:
                check_file(found.paths[_ARCHIVE], digest=self.remote[0].digest)
            return _archived(found.paths[_ARCHIVE], self.headers)
        if self.headers != "subject":
            raise InputError(
                f"headers must be left at 'subject' for JSON lines, whose texts are taken as they are; got "
                f"{self.headers!r}. Read {_ARCHIVE} to choose."
            )
        return [_json_part(found.paths[name]) for name in _JSON]

    def _unpacked_parts(self, folder: Path, *, checked: bool) -> list[_Part]:
        parts = [_part(str(folder / name), _unpacked(folder / name), self.headers) for name in _PUBLISHED]
        for part, expected in zip(parts, _PUBLISHED.values(), strict=True):
            if checked and len(part.texts) != expected:
                raise FileError(
                    f"{part.where} must hold the {expected:,} messages that were published; got {len(part.texts):,}. "
                    f"Unpack {_ARCHIVE} again, or, if these are your own messages, pass checked=False (--unchecked)."
                )
        return parts


class _Message(NamedTuple):
    """A message as it lies on disk. Sorted, messages come by group and file name, whatever held them."""

    category: str
    file: str
    content: bytes


def _part(where: str, messages: Iterable[_Message], headers: Headers) -> _Part:
    part = _Part(where, [], [])
    for message in sorted(messages):
        part.labels.append(_label(message.category, f"{where}/{message.category}/{message.file}"))
        part.texts.append(_text(message.content, headers))
    return part


def _text(content: bytes, headers: Headers) -> str:
    """What a message says, and as much of its head as is wanted."""
    message = content.decode("latin-1").replace("\r\n", "\n")
    # A file that does not begin like a message is all text: its first paragraph is no head.
    if headers == "all" or not _FIRST_HEADER.match(message):
        return message
    head, _, body = message.partition("\n\n")
    subject = _SUBJECT.search(head) if headers == "subject" else None
    return body if subject is None else f"{subject[1]}\n\n{body}"


def _unpacked(folder: Path) -> Iterator[_Message]:
    for path in folder.glob("[!.]*/[!.]*"):  # hidden files are no messages
        with open_file(path) as stream:
            yield _Message(path.parent.name, path.name, stream.read())


def _archived(archive: Path, headers: Headers) -> list[_Part]:
    found: dict[str, list[_Message]] = {part: [] for part in _PUBLISHED}
    # Unpacked outside tarfile, which may take a compressed stream that was cut short for one that has ended.
    with open_file(archive) as unzipped, tarfile.open(fileobj=unzipped, mode="r|") as tar:
        for entry in tar:
            part, category, file = ("", "", *PurePosixPath(entry.name).parts)[-3:]
            stream = tar.extractfile(entry) if part in found and not file.startswith(".") else None
            if stream is not None:
                found[part].append(_Message(category, file, stream.read()))
        unzipped.read()  # to its end, where the checksum is
    return [_part(f"{archive}:{name}", messages, headers) for name, messages in found.items()]


def _json_part(path: Path) -> _Part:
    part = _Part(str(path), [], [])
    with open_file(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                label, text = _record(line, f"{path}, line {number}")
                part.labels.append(label)
                part.texts.append(text)
    return part


def _record(line: bytes, where: str) -> tuple[int, str]:
    shape = '{"category": "sci.space", "text": "..."}'
    try:
        record = json.loads(line.rstrip())
    except ValueError as error:
        reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise FileError(f"{where} must be JSON such as {shape}; reading it failed: {reason}. Mend the line.") from error
    category, text = (record.get("category"), record.get("text")) if isinstance(record, dict) else (None, None)
    if not isinstance(category, str) or not isinstance(text, str):
        raise FileError(f"{where} must have a category and a text, as {shape}; got {line[:60]!r}. Mend the line.")
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
