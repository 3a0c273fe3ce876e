"""Messages become numbered words: the same from every layout, by a vocabulary that has not seen the test part."""

import gzip
import io
import json
import shutil
import tarfile
from collections import Counter

import numpy as np
import pytest
import torch

from calibrant.datasets.newsgroups import Newsgroups, Vocabulary, words_of
from calibrant.errors import FileError, InputError

PARTS = ("20news-bydate-train", "20news-bydate-test")
GROUPS = [
    *["alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"],
    *["comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"],
    *["sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns"],
    *["talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"],
]
BODY_WORDS = ["the", "orbit", "of", "a", "shuttle", "church", "hockey", "goal", "window", "driver", "key", "price"]


def body(part, label, message):
    """The text of a message: always the same, and different for each."""
    generator = np.random.default_rng([part, label, message])
    return " ".join(generator.choice(BODY_WORDS, size=5 + 3 * message))


def messages(part):
    """Group, file name and content of each message; file names are not in the order of their numbers."""
    for label, group in enumerate(GROUPS):
        for message, file in enumerate(("9", "10", "101")):
            head = f"From: jane{label}@example.org\nSubject: Re: On\n topic{part}\nLines: 3\n"
            yield group, file, f"{head}\n{body(part, label, message)}\n\nCaf\xe9\n"


def write_folders(folder):
    for part, name in enumerate(PARTS):
        for group, file, text in messages(part):
            path = folder / name / group / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))


def write_archive(folder):
    with tarfile.open(folder / "20news-bydate.tar.gz", "w:gz") as tar:
        for part in (1, 0):
            for group, file, text in reversed(list(messages(part))):
                entry = tarfile.TarInfo(f"./{PARTS[part]}/{group}/{file}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode("latin-1")))


def json_lines(part):
    """The messages as JSON, in the order of file names, with the subject as their only header."""
    lines = []
    for group, _, text in sorted(messages(part)):
        said = text.partition("\n\n")[2]
        lines.append(json.dumps({"label": GROUPS.index(group), "category": group, "text": f"Re: on topic\n{said}"}))
    return lines


def write_json(folder, *, lines=json_lines, suffix=".jsonl.gz"):
    opened = gzip.open if suffix.endswith(".gz") else open
    for part, name in enumerate(("train", "test")):
        with opened(folder / f"20newsgroups-{name}{suffix}", "wt", encoding="utf-8") as file:
            file.write("\n".join(lines(part)) + "\n")


def replaced(line, new):
    """The JSON lines with one of the training part replaced."""
    return lambda part: [new if (part, number) == (0, line) else old for number, old in enumerate(json_lines(part), 1)]


def same(first, second):
    return all(
        torch.equal(getattr(first, part).inputs, getattr(second, part).inputs)
        and torch.equal(getattr(first, part).labels, getattr(second, part).labels)
        for part in ("training", "test")
    )


def test_words_are_runs_of_letters_in_lower_case():
    assert words_of("Don't e-mail: X11R5_beta, 42!\tNAÏVE") == ["don", "t", "e", "mail", "x", "r", "beta", "na", "ve"]
    assert words_of("...") == []


def test_the_vocabulary_is_ordered_by_frequency_and_then_alphabet():
    vocabulary = Vocabulary.of(["b b c a", "c d"], n_words=100)
    assert vocabulary.words == ("b", "c", "a", "d")
    assert len(vocabulary) == 6
    assert Vocabulary.of(["c d", "b b c a"], n_words=5).words == ("b", "c", "a")


def test_numbers_agree_with_a_plain_count():
    texts = [body(0, label, message) for label in range(20) for message in range(3)]
    vocabulary = Vocabulary.of(texts, n_words=8)
    counts = Counter(word for text in texts for word in text.split())
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:6]
    for row, text in zip(vocabulary.numbers(texts, length=9).tolist(), texts, strict=True):
        expected = [kept.index(word) + 2 if word in kept else 1 for word in text.split()][:9]
        assert row == expected + [0] * (9 - len(expected))


def test_a_text_without_words_is_one_unknown_word():
    numbers = Vocabulary(("a",)).numbers(["", "42", "a"], length=3)
    assert numbers.tolist() == [[1, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert numbers.dtype == torch.int64


def test_folders_archive_and_json_lines_give_the_same_examples(tmp_path):
    readers = {"folders": write_folders, "archive": write_archive, "json": write_json}
    for name, write in readers.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    read = {name: Newsgroups(max_length=12).read(tmp_path / name, checked=False) for name in readers}
    assert same(read["folders"], read["archive"])
    assert same(read["folders"], read["json"])
    dataset = read["folders"]
    assert dataset.class_names == tuple(GROUPS)
    assert dataset.training.inputs.shape == dataset.test.inputs.shape == (60, 12)
    assert dataset.training.labels.tolist() == [label for label in range(20) for _ in range(3)]


def test_rows_come_by_group_and_then_by_file_name(tmp_path):
    write_folders(tmp_path)
    dataset = Newsgroups(headers="none").read(tmp_path, checked=False)
    # As text, "10" < "101" < "9": the third row is the file 9, whose body has 5 words; then "caf", for é is no letter.
    assert (dataset.training.inputs[:3] != 0).sum(1).tolist() == [8 + 1, 11 + 1, 5 + 1]


def test_the_archive_and_the_unpacked_sub_folder_may_be_named_themselves(tmp_path):
    write_archive(tmp_path)
    with tarfile.open(tmp_path / "20news-bydate.tar.gz") as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.3 and older have none
        tar.extractall(tmp_path / "other" / "20news-bydate", **safely)  # noqa: S202  # of this test
    reader = Newsgroups(max_length=12)
    from_file = reader.read(tmp_path / "20news-bydate.tar.gz", checked=False)
    assert same(from_file, reader.read(tmp_path / "other", checked=False))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_json_lines_are_read_plain_or_compressed_and_keep_their_order(tmp_path, suffix):
    write_json(tmp_path, lines=lambda part: [*reversed(json_lines(part)), ""], suffix=suffix)
    dataset = Newsgroups().read(tmp_path)
    assert dataset.test.labels.tolist() == [label for label in reversed(range(20)) for _ in range(3)]


def test_the_vocabulary_comes_from_the_training_part_alone(tmp_path):
    write_folders(tmp_path)
    dataset = Newsgroups(max_length=40).read(tmp_path, checked=False)
    words = {"re", "on", "topic", "caf", *BODY_WORDS}
    assert dataset.n_words == len(words) + 2
    assert not (dataset.training.inputs == Vocabulary.UNKNOWN).any()
    for path in (tmp_path / PARTS[1]).glob("*/*"):
        path.write_text("Subject: zebra zebra\n\nzebra " + path.read_text("latin-1").split("\n\n")[1])
    changed = Newsgroups(max_length=40).read(tmp_path, checked=False)
    assert changed.n_words == dataset.n_words
    assert torch.equal(changed.training.inputs, dataset.training.inputs)
    assert (changed.test.inputs[:, :3] == Vocabulary.UNKNOWN).all()


def test_n_words_and_max_length_bound_the_inputs(tmp_path):
    write_folders(tmp_path)
    dataset = Newsgroups(n_words=5, max_length=4).read(tmp_path, checked=False)
    assert dataset.n_words == 5
    assert dataset.training.inputs.shape[1] == 4
    assert int(dataset.training.inputs.max()) == 4
    assert int(dataset.training.inputs.min()) == 1  # every text has at least four words


@pytest.mark.parametrize(
    ("headers", "first"),
    [("all", "from jane example org subject re on topic lines"), ("subject", "re on topic"), ("none", "")],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_headers_are_kept_as_asked(tmp_path, headers, first, newline):
    write_folders(tmp_path)
    for path in tmp_path.glob("*/*/*"):
        path.write_bytes(path.read_bytes().replace(b"\n", newline))
    dataset = Newsgroups(headers=headers, max_length=60).read(tmp_path, checked=False)
    texts = [f"{first} {body(0, label, message)} caf" for label in range(20) for message in (1, 2, 0)]
    assert torch.equal(dataset.training.inputs, Vocabulary.of(texts, n_words=20_000).numbers(texts, length=60))


def test_a_file_that_does_not_begin_with_a_header_is_all_text(tmp_path):
    write_folders(tmp_path)
    (tmp_path / PARTS[0] / GROUPS[0] / "10").write_text("No header here.\n\nOne two three.")
    dataset = Newsgroups(headers="none").read(tmp_path, checked=False)
    assert int((dataset.training.inputs[0] != 0).sum()) == 6


def test_an_empty_message_is_one_unknown_word(tmp_path):
    write_folders(tmp_path)
    (tmp_path / PARTS[1] / GROUPS[0] / "10").write_bytes(b"")
    dataset = Newsgroups().read(tmp_path, checked=False)
    assert dataset.test.inputs[0].tolist() == [1] + [0] * 499


def test_hidden_files_are_no_messages(tmp_path):
    write_folders(tmp_path)
    (tmp_path / PARTS[0] / ".DS_Store").write_bytes(b"\0")
    (tmp_path / PARTS[0] / GROUPS[0] / ".DS_Store").write_bytes(b"\0")
    assert len(Newsgroups().read(tmp_path, checked=False).training) == 60


def test_header_choices_are_refused_for_json_lines(tmp_path):
    write_json(tmp_path)
    with pytest.raises(InputError, match="headers must be left at 'subject' for JSON lines"):
        Newsgroups(headers="none").read(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"category": "sci.space", "text": "cut', r"train\.jsonl\.gz, line 7 must be JSON .* failed: Unterminated"),
        ('{"category": "sci.spice", "text": ""}', r"line 7: the category must be .* Did you mean sci\.space\?"),
        ('{"category": "sci.space"}', "line 7 must have a category and a text"),
        ('{"category": 14, "text": ""}', "line 7 must have a category and a text"),
        ('["sci.space", "text"]', "line 7 must have a category and a text"),
        ('{"category": "sci.space", "label": 15, "text": ""}', r"line 7: the label of sci\.space must be 14.*got 15"),
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path, line, message):
    write_json(tmp_path, lines=replaced(7, line))
    with pytest.raises(FileError, match=message):
        Newsgroups().read(tmp_path)


def test_an_empty_text_and_a_missing_label_are_allowed_in_json_lines(tmp_path):
    write_json(tmp_path, lines=replaced(1, '{"category": "sci.space", "text": ""}'))
    training = Newsgroups().read(tmp_path).training
    assert training.inputs[0].tolist() == [1] + [0] * 499
    assert int(training.labels[0]) == 14


def test_bytes_that_are_no_text_are_named_by_file_and_number(tmp_path):
    write_json(tmp_path, suffix=".jsonl")
    path = tmp_path / "20newsgroups-test.jsonl"
    path.write_bytes(path.read_bytes().replace(b"hockey", b"hock\xe9y", 1))
    with pytest.raises(FileError, match=r"20newsgroups-test\.jsonl, line \d+ must be JSON"):
        Newsgroups().read(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("write", [write_archive, write_json])
def test_a_file_cut_short_is_never_taken_for_a_whole_one(tmp_path, write, share):
    write(tmp_path)
    path = max(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(FileError, match=rf"{path.name} must be a whole gzip file; .*download it again"):
        Newsgroups().read(tmp_path, checked=False)


def test_an_archive_that_is_not_the_published_one_is_refused_unless_unchecked(tmp_path):
    write_archive(tmp_path)
    with pytest.raises(FileError, match=r"must be the published data, sha256:8f1b2514.*checked=False"):
        Newsgroups().read(tmp_path)


def test_folders_with_another_number_of_messages_are_refused_unless_unchecked(tmp_path):
    write_folders(tmp_path)
    with pytest.raises(FileError, match=r"20news-bydate-train must hold the 11,314 messages .* got 60\."):
        Newsgroups().read(tmp_path)


@pytest.mark.parametrize("write", [write_folders, write_archive])
def test_an_unknown_group_is_named(tmp_path, write, monkeypatch):
    monkeypatch.setitem(globals(), "GROUPS", [*GROUPS[:-1], "talk.religion.mist"])
    write(tmp_path)
    with pytest.raises(
        FileError, match=r"talk\.religion\.mist/10: the category must be .*Did you mean talk\.religion\.misc"
    ):
        Newsgroups().read(tmp_path, checked=False)


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_group_is_named(tmp_path, part):
    write_folders(tmp_path)
    shutil.rmtree(tmp_path / part / "sci.med")
    with pytest.raises(FileError, match=rf"{part} must have messages of all 20 newsgroups; missing: sci\.med\."):
        Newsgroups().read(tmp_path, checked=False)


def test_missing_files_are_named_with_the_place_to_get_them(tmp_path):
    with pytest.raises(FileError, match=r"newsgroups needs 20news-bydate\.tar\.gz or .* http://qwone\.com"):
        Newsgroups().read(tmp_path)
    write_folders(tmp_path)
    shutil.rmtree(tmp_path / PARTS[1])
    with pytest.raises(FileError, match="missing: 20news-bydate-test"):
        Newsgroups().read(tmp_path)


@pytest.mark.parametrize("options", [{"n_words": 2}, {"max_length": 0}, {"n_words": 10.5}, {"headers": "some"}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        Newsgroups(**options)


@pytest.mark.parametrize("write", [write_archive, write_json])
def test_texts_that_expand_beyond_reason_are_refused(tmp_path, write, monkeypatch):
    write(tmp_path)
    monkeypatch.setattr("calibrant.errors._ALWAYS_ALLOWED", 100)
    monkeypatch.setattr("calibrant.errors._MOST_TIMES", 1)
    with pytest.raises(FileError, match="must not expand to more than"):
        Newsgroups().read(tmp_path, checked=False)
