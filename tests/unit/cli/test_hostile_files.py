"""Files made to mislead, to fill the memory, or to write on somebody's terminal; each case has its test.

==========================================================  ========================================================
case                                                        test
==========================================================  ========================================================
a flipped bit in a map                                      test_fuzz: test_no_flipped_bit_of_a_map_is_accepted
a map with T = -1                                           test_a_map_that_turns_the_classes_around_is_not_applied
numbers of a map out of range                               test_map_file: test_numbers_out_of_their_range_...
n_classes = 2**24 in a map of 2 kB                          test_map_file: test_a_count_of_classes_...
a confidence of 40 x 4,000, or a million layers, in 2 kB    test_a_confidence_claims_no_more_than_its_weights
an npz that expands without end, with scores or without     test_an_npz_that_expands_..., test_a_message_needs_...
a csv.gz that expands without end                           test_a_csv_that_expands_without_end_is_refused
large arrays that apply has no use for                      test_apply_reads_only_what_it_hands_on
escapes in names of classes, files, arrays and methods      test_no_name_reaches_the_terminal_unescaped
HTML, links, headings and pictures in names                 test_no_name_is_markup_on_a_page
float8 and float4                                           test_numbers_that_cannot_be_computed_with_are_refused
nested and expanded tensors                                 test_tensors_that_are_not_stored_as_they_are_are_refused
altered numbers in a .pt                                    test_a_pt_whose_numbers_were_altered_is_refused
sizes, scales and records of a run that cannot be           test_a_run_that_cannot_be_is_refused
rows of more than 1 MiB, and 100,000 columns, in a CSV      test_any_number_of_classes_comes_back_from_csv
what killed writers left                                    test_atomic: test_what_a_killed_writer_left_...
warnings of eight threads                                   test_errors_and_checks: test_warnings_of_threads_...
array names that lead out of an archive                     test_no_array_name_that_leads_elsewhere_is_handed_on
a job summary, or an output, that cannot be written         test_what_nobody_can_be_given_ends_in_a_sentence
running out of memory                                       test_running_out_of_memory_is_called_that
==========================================================  ========================================================
"""

import gzip
import json
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from made_runs import rows_of, settings_of, write_run
from safetensors import safe_open
from safetensors.torch import save_file

from calibrant import errors
from calibrant.confidence import ConfidenceHead, NeighbourConfidence, load_confidence, save_confidence
from calibrant.diagnosis.runs import read_runs
from calibrant.errors import FileError
from calibrant.files import load, save, save_map, text
from calibrant.files.map_file import contents_metadata
from calibrant.files.save import load_scores
from calibrant.maps import Scale
from calibrant.predictions import Predictions
from calibrant.text import markdown_code, markdown_text, terminal_text
from calibrant.training import load_network
from calibrant.training.folder import RunFolder

ESCAPES = "cat\x1b[2J\x1b]0;owned\x07\x9b31m\r\nAll is well\u202e"
MARKUP = "<script>alert(1)</script>![x](http://evil/x.png)[y](javascript:z)|`code`&lt;"


def peak():
    """Kilobytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def rows(n=60, names=("a", "b", "c")):
    chance = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, 3, generator=chance)
    labels = (logits / 2).softmax(1).multinomial(1, generator=chance)[:, 0]
    return Predictions.from_logits(logits, labels, class_names=names)


def resealed(path, change):
    """Write a file again with something else in it, and the digest of that."""
    with safe_open(str(path), framework="pt") as file:
        document, held = json.loads(file.metadata()["calibrant"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(document, held)
    save_file(held, path, metadata=contents_metadata(document, held))


def test_a_map_that_turns_the_classes_around_is_not_applied(calibrant, tmp_path):
    save(rows(), tmp_path / "rows.npz")
    save_map(Scale(torch.tensor(1.0), n_classes=3), tmp_path / "map.safetensors")
    resealed(tmp_path / "map.safetensors", lambda _, held: held["temperature"].neg_())
    code, _, err = calibrant(
        "apply", tmp_path / "map.safetensors", tmp_path / "rows.npz", "-o", tmp_path / "calibrated.npz"
    )
    assert code == 2
    assert "temperature must be above 0; got -1" in err
    assert not (tmp_path / "calibrated.npz").exists()


@pytest.mark.parametrize("claim", [{"layers": 40, "units": 4000}, {"layers": 10**6}, {"units": 10**12}])
def test_a_confidence_claims_no_more_than_its_weights(tmp_path, claim):
    path = tmp_path / "head.safetensors"
    save_confidence(ConfidenceHead(3, layers=3, units=4), path)
    resealed(path, lambda document, _: document["sizes"].update(claim))
    before = peak()
    with pytest.raises(FileError, match="weights must be of"):
        load_confidence(path)
    assert peak() - before < 1 << 15


def test_a_trust_score_of_very_many_classes_takes_no_memory(tmp_path):
    path = tmp_path / "trust.safetensors"
    save_confidence(NeighbourConfidence(torch.eye(2), torch.tensor([0, 1]), n_classes=2), path)
    resealed(path, lambda document, _: document["sizes"].update(n_classes=1 << 40))
    before = peak()
    assert load_confidence(path).n_classes == 1 << 40
    assert peak() - before < 1 << 15


def bomb(path, **arrays):
    """An npz of arrays of zeros, of given shapes, that are never made here."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for _ in range(4 * int(np.prod(shape)) >> 20):
                    member.write(bytes(1 << 20))


LARGE = (1 << 15, 1 << 9)  # 64 MiB of float32


def test_an_npz_that_expands_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "_ALWAYS_ALLOWED", 1 << 24)  # 1 GiB takes long to pack
    path = tmp_path / "bomb.npz"
    bomb(path, logits=LARGE, labels=(1 << 18,))
    assert path.stat().st_size < 1 << 17
    before = peak()
    with pytest.raises(FileError, match="must not expand to more than"):
        load(path)
    assert peak() - before < 1 << 15


def test_a_message_needs_no_array_to_be_read(tmp_path):
    path = tmp_path / "bomb.npz"
    bomb(path, **{f"x{place}": (1 << 10, 1 << 10) for place in range(8)})
    before = peak()
    with pytest.raises(FileError, match=r"found 'x0' \(1024 x 1024\), 'x1'"):
        load(path)
    assert peak() - before < 1 << 15


def test_an_array_that_is_smaller_than_it_says_is_refused_before_memory_is_taken(tmp_path):
    path = tmp_path / "liar.npz"
    np.savez(path, labels=np.zeros(4, dtype=np.int64))
    with zipfile.ZipFile(path, "a") as archive, archive.open("logits.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 38, 4)}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(64))
    with pytest.raises(FileError, match="smaller than its header says"):
        load(path)


def test_a_csv_that_expands_without_end_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"logit_0,logit_1,label\n")
        for _ in range(120):
            file.write(b"0,0,0\n" * (1 << 17))
    monkeypatch.setattr(errors, "_ALWAYS_ALLOWED", 1 << 25)  # the text is 94 MB, so that the test is quick
    monkeypatch.setattr(errors, "_MOST_TIMES", 10)
    with pytest.raises(FileError, match="must not expand"):
        load(path)


@pytest.mark.parametrize("suffix", [".csv.gz", ".jsonl.gz"])
def test_a_compressed_file_that_was_cut_short_is_refused_and_the_next_one_read(tmp_path, suffix):
    path, whole = tmp_path / f"cut{suffix}", tmp_path / f"whole{suffix}"
    lines = b"logit_0,logit_1,label\n" + b"0,0,0\n" * (1 << 19)
    if suffix == ".jsonl.gz":
        lines = b'{"confidence": 1, "correct": 1}\n' * (1 << 17)
    whole.write_bytes(gzip.compress(lines, compresslevel=1))
    path.write_bytes(whole.read_bytes()[:-100])
    for _ in range(2):  # the second one hung with pyarrow 18
        with pytest.raises(FileError, match="must be a whole"):
            load(path)
    assert len(load(whole)) in {1 << 19, 1 << 17}


def test_json_lines_that_expand_without_end_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(70):
            file.write(b'{"confidence":1, "correct":1}  \n' * (1 << 15))
    monkeypatch.setattr(errors, "_ALWAYS_ALLOWED", 1 << 25)
    monkeypatch.setattr(errors, "_MOST_TIMES", 10)
    with pytest.raises(FileError, match="must not expand"):
        load(path)


@pytest.mark.parametrize("command", [["evaluate", "--stream"], ["trend", "--by", "label"], ["state", "-o", "p.state"]])
def test_damaged_lines_of_json_that_are_streamed_are_refused(calibrant, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"probs": [0.5, 0.5], "label": 0}\n{"probs": [0.5,\n')
    code, _, err = calibrant(command[0], "p.jsonl", *command[1:])
    assert code == 2
    assert "line 2 holds none" in " ".join(err.split())


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("p.csv", "prob_größe,prob_b,label\n.5,.5,b\n", 1),
        ("p.csv", "prob_a,prob_b,label\n.5,.5,a\n.5,.5,größe\n", 3),
        ("p.jsonl", '{"probs": [0.5, 0.5], "label": 0}\n{"probs": [0.5, 0.5], "label": "größe"}\n', 2),
    ],
)
@pytest.mark.parametrize("streamed", [[], ["--stream"]])
def test_text_that_is_not_in_utf_8_is_refused_by_its_line_and_the_cure_is_named(
    calibrant, tmp_path, name, text, line, streamed
):
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    code, _, err = calibrant("evaluate", str(tmp_path / name), *streamed)
    assert code == 2
    assert f"line {line} is in another encoding" in " ".join(err.split())
    assert f"iconv -f WINDOWS-1252 -t UTF-8 {name} > utf-8-{name}" in " ".join(err.split())
    assert "codec" not in err


@pytest.mark.parametrize("marks", ["[]", "{}"])
def test_json_lines_nested_without_end_are_refused(tmp_path, marks):
    deep = "[" * 100_000 + "]" * 100_000 if marks == "[]" else '{"a":' * 100_000 + "1" + "}" * 100_000
    (tmp_path / "p.jsonl").write_text(f'{{"probs": {deep}, "label": 1}}\n')
    with pytest.raises(FileError, match="nests too deep"):
        load(tmp_path / "p.jsonl")
    wide = ", ".join(["[0.5, 0.5]"] * 1000)
    (tmp_path / "p.jsonl").write_text(f'{{"text": "{"[" * 1000}", "f": [{wide}], "probs": [0.5, 0.5], "label": 1}}\n')
    assert len(load(tmp_path / "p.jsonl")) == 1


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_table_that_expands_without_end_is_refused(tmp_path, monkeypatch, suffix):
    from pyarrow import feather, parquet

    path = tmp_path / f"bomb{suffix}"
    zeros = np.zeros(1 << 21)
    table = pa.table({"logit_0": zeros, "logit_1": zeros, "label": zeros.astype(np.int64)})
    if suffix == ".parquet":
        parquet.write_table(table, path, compression="zstd")
    else:
        feather.write_feather(table, path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    monkeypatch.setattr(errors, "_ALWAYS_ALLOWED", 1 << 24)
    monkeypatch.setattr(errors, "_MOST_TIMES", 10)
    with pytest.raises(FileError, match="must not expand"):
        load(path)


def test_apply_reads_only_what_it_hands_on(tmp_path):
    path = tmp_path / "rows.npz"
    bomb(path, other=LARGE)
    with zipfile.ZipFile(path, "a") as archive:
        for name, values in {"logits": np.eye(3), "ids": np.arange(3)}.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values)
    before = peak()
    scores = load_scores(path)
    assert (set(scores.others), scores.left) == ({"ids"}, ("other",))
    assert peak() - before < 1 << 15


def test_no_array_name_that_leads_elsewhere_is_handed_on(calibrant, tmp_path):
    held = {"logits": np.eye(3), "labels": np.arange(3), "ids": np.arange(3), "layer/4": np.ones(3)}
    np.savez(tmp_path / "rows.npz", **held, **{"../../evil": np.ones(3), "/abs": np.ones(3), "c:\\x": np.ones(3)})
    save_map(Scale(torch.tensor(2.0), n_classes=3), tmp_path / "map.safetensors")
    out = tmp_path / "calibrated.npz"
    code, said, _ = calibrant("apply", tmp_path / "map.safetensors", tmp_path / "rows.npz", "-o", out)
    assert code == 0
    assert "Not copied: ../../evil" in said
    with np.load(out) as archive:
        assert set(archive.files) == {"logits", "labels", "ids", "layer/4"}


def is_harmless(text):
    return all(char == "\n" or char.isprintable() for char in text)


def test_no_name_reaches_the_terminal_unescaped(calibrant, tmp_path):
    odd = tmp_path / f"{ESCAPES.replace('/', '')}.npz"
    save(rows(names=[ESCAPES, f"{ESCAPES}b", "c"]), odd)
    code, out, err = calibrant("evaluate", odd, "--resamples", 100, "--markdown", tmp_path / "r.md")
    assert code == 0, err
    assert is_harmless(out)
    assert is_harmless(err)
    assert not any(line.startswith("All is well") for line in out.splitlines())
    assert is_harmless((tmp_path / "r.md").read_text())
    save_map(Scale(torch.tensor(2.0), n_classes=3), tmp_path / "map.safetensors")
    resealed(tmp_path / "map.safetensors", lambda document, _: document["map"].update(kind="scale"))
    resealed(
        tmp_path / "map.safetensors",
        lambda document, _: document.update(
            method=ESCAPES, method_settings={}, rows=1, seconds=0.0, certificate=None, notes=[]
        ),
    )
    np.savez(tmp_path / "more.npz", logits=np.eye(3), **{f"ids{ESCAPES}": np.arange(3), f"z{ESCAPES}": np.arange(4)})
    code, out, err = calibrant(
        "apply", tmp_path / "map.safetensors", tmp_path / "more.npz", "-o", tmp_path / f"{ESCAPES}o.npz"
    )
    assert code == 0, err
    assert r"cat\x1b[2J" in out
    assert is_harmless(out + err)
    code, out, err = calibrant("evaluate", tmp_path / f"{ESCAPES}.csv")
    assert code == 2
    assert r"\x1b[2J" in err
    assert is_harmless(out + err)
    assert err.count("\n") == 1


def test_a_file_name_in_brackets_is_no_mark_up(calibrant, tmp_path):
    save(rows(), tmp_path / "[bold]a[ b].npz")
    code, out, err = calibrant("evaluate", tmp_path / "[bold]a[ b].npz", "--resamples", 100)
    assert code == 0, err
    assert "[bold]a[ b].npz" in out


def test_no_name_is_markup_on_a_page(calibrant, tmp_path):
    (tmp_path / "pages").mkdir()
    odd = tmp_path / f"{MARKUP.replace('/', '')}.npz"
    save(rows(200, names=[MARKUP, f"# {MARKUP}", "<img src=x onerror=y>"]), odd)
    page, summary = tmp_path / "pages" / "r.md", tmp_path / "pages" / "summary.md"
    code, _, err = calibrant(
        "evaluate", odd, "--baseline", odd, "--resamples", 100, "--markdown", page, "--figures",
        tmp_path / "pages" / "pictures (1)", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert code == 0, err
    text = page.read_text()
    assert "script" in text
    for written in (text, summary.read_text()):
        own = "\n".join(line for line in written.splitlines() if not line.startswith("!["))
        for start in ("<script", "<img", "![x]", "[y](", "|`code`", "`code`", "http://"):
            places = [place for place in range(len(own)) if own.startswith(start, place)]
            assert all(own[place - 1] == "\\" for place in places), start
    assert "](pictures%20%281%29/reliability.png)" in text


@pytest.mark.parametrize("text", [MARKUP, "# a", "1. a", "> a", "- a", "_a_ b_c", "&amp;", "**a**", "~~a~~", "a\nb"])
def test_markdown_text_comes_back_from_a_page_as_it_was(text):
    shown = markdown_text(text)
    plain = shown.replace("&#58;", ":").replace("&#49;", "1").replace("&amp;", "&").replace("\\", "")
    assert plain == terminal_text(text).replace("\\", "")
    assert "\n" not in shown
    assert markdown_code(text).startswith("`")


@pytest.mark.parametrize("text", ["75.1 % of the probabilities", "3.5", "2)5", "1e-15 at least"])
def test_a_number_at_the_start_of_a_line_is_no_list_and_is_left_alone(text):
    assert markdown_text(text) == text


def test_names_of_every_language_are_left_alone():
    for name in ("cat", "naïve café", "猫", "كلب", "👩‍🔬", "a b", "γ-Net"):
        assert terminal_text(name) == name
        assert markdown_text(name) == name


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_that_cannot_be_computed_with_are_refused(tmp_path, dtype):
    save_file({"logits": torch.eye(3).to(dtype), "labels": torch.arange(3)}, tmp_path / "rows.safetensors")
    with pytest.raises(FileError, match=r"must be float16, bfloat16, float32 or float64; got torch\.float8"):
        load(tmp_path / "rows.safetensors")


def test_numbers_of_half_a_byte_are_refused(tmp_path):
    header = {"logits": {"dtype": "F4", "shape": [4, 4], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    (tmp_path / "rows.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(FileError):
        load(tmp_path / "rows.safetensors")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_that_are_not_stored_as_they_are_are_refused(tmp_path):
    path = tmp_path / "rows.pt"
    torch.save({"logits": torch.zeros(1, 1).expand(10**10, 3), "labels": torch.zeros(3, dtype=torch.int64)}, path)
    with pytest.raises(FileError, match="must be stored whole"):
        load(path)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    torch.save({"logits": nested, "labels": torch.zeros(2, dtype=torch.int64)}, path)
    with pytest.raises(FileError):
        load(path)
    # A part of a larger tensor is stored with all of it, and is fine.
    torch.save({"logits": torch.arange(24.0).reshape(8, 3)[2:5], "labels": torch.arange(3)}, path)
    assert load(path).logits.tolist() == [[6, 7, 8], [9, 10, 11], [12, 13, 14]]


def test_a_pt_whose_numbers_were_altered_is_refused(tmp_path):
    path = tmp_path / "rows.pt"
    save(rows(), path)
    whole = bytearray(path.read_bytes())
    place = whole.index(rows().logits.numpy().tobytes()[:8])
    whole[place] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FileError, match="checksum"):
        load(path)


@pytest.fixture
def run(tmp_path):
    parts = [rows_of(8, part) for part in ("calibration", "test")]
    return write_run(tmp_path / "run", settings_of(), *parts)


WRONG = [
    {"pixel_scale": 3},
    {"pixel_scale": {"mean": [0.5], "std": [0.0], "peak": 255}},
    {"pixel_scale": {"mean": [0.5, 0.5], "std": [1.0, 1.0], "peak": 255}},
    {"pixel_scale": {"mean": ["a"], "std": [1.0], "peak": 255}},
    {"pixel_scale": {"mean": [0.5], "std": [1.0], "peak": "high"}},
    {"input_shape": []},
    {"input_shape": [-1, 8, 8]},
    {"input_shape": ["a", 8, 8]},
    {"input_shape": 3},
    {"class_names": [1, 2]},
    {"class_names": "ab"[:1]},
    {"n_words": -5},
    {"loss": "ce"},
    {"model": 3},
    {"recipe": []},
    {"split_seed": "x"},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_run_that_cannot_be_is_refused(run, wrong):
    document = json.loads((run / "settings.json").read_text())
    document["settings"] |= wrong
    (run / "settings.json").write_text(json.dumps(document))
    for read in (RunFolder(run).settings, lambda: read_runs([run]), lambda: load_network(run)):
        with pytest.raises(FileError, match=r"settings\.json"):
            read()


def test_a_network_larger_than_its_weights_is_not_made(run):
    document = json.loads((run / "settings.json").read_text())
    for change in ({"input_shape": [1, 1 << 20, 1 << 20]}, {"n_words": 1 << 40, "model": "text_cnn"}):
        (run / "settings.json").write_text(json.dumps(document | {"settings": document["settings"] | change}))
        before = peak()
        with pytest.raises(FileError, match="names or sizes differ"):
            load_network(run)
        assert peak() - before < 1 << 18  # what torch loads to work with shapes alone


def test_settings_nested_without_end_are_refused(run):
    (run / "settings.json").write_text('{"format": "calibrant.run/1", "settings": ' + "[" * 100_000)
    with pytest.raises(FileError, match=r"settings\.json"):
        read_runs([run])


@pytest.mark.parametrize("line", ["[" * 100_000, "3", "{}", '{"epoch": 1, "held_out": 5}', "\xff", '{"held_out": {}}'])
@pytest.mark.parametrize("finished", [True, False])
def test_records_that_cannot_be_are_refused(run, line, finished):
    (run / "epochs.jsonl").write_text(line, encoding="latin-1")
    if not finished:
        (run / "weights.safetensors").unlink()
    with pytest.raises(FileError, match=r"epochs\.jsonl"):
        read_runs([run])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_any_number_of_classes_comes_back_from_csv(tmp_path, monkeypatch, suffix):
    # Rows of 60,000 classes are longer than a block of 1 MiB; those of 2,000 than one of 16 kiB, and read sooner.
    monkeypatch.setattr(text, "_BLOCK", 1 << 14)
    k, path = 2000, tmp_path / f"wide{suffix}"
    logits = torch.randn(2, k, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    save(Predictions.from_logits(logits, torch.tensor([0, k - 1])), path)
    with gzip.open(path) if suffix == ".csv.gz" else path.open("rb") as file:
        assert min(map(len, file)) > 1 << 14
    loaded = load(path)
    assert torch.equal(loaded.logits, logits)
    assert loaded.labels.tolist() == [0, k - 1]


def test_a_csv_whose_names_alone_fill_more_than_a_block_comes_back(tmp_path):
    names = [f"{place:04}" + "x" * 1000 for place in range(1200)]
    save(Predictions.from_logits(torch.eye(1200)[:2], [0, 1], class_names=names), tmp_path / "wide.csv")
    assert load(tmp_path / "wide.csv").class_names == tuple(names)


COMMAND = [sys.executable, "-m", "calibrant"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_what_nobody_can_be_given_ends_in_a_sentence(calibrant, tmp_path):
    save(rows(), tmp_path / "rows.npz")
    code, _, err = calibrant(
        "evaluate", tmp_path / "rows.npz", "--resamples", 100, "--markdown", tmp_path / "r.md",
        GITHUB_STEP_SUMMARY=str(tmp_path / "nowhere" / "summary.md"),
    )  # fmt: skip
    assert code == 0
    assert "summary" in err
    assert "could not be written" in " ".join(err.split())
    assert (tmp_path / "r.md").exists()
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, "list", "corruptions"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr == "calibrant: the output could not be written: No space left on device.\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 381. GiB"),
        pa.ArrowMemoryError("malloc of size 99 failed"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: not enough memory: you tried to ..."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: ..."),
        torch.OutOfMemoryError("CUDA out of memory."),
    ],
)
def test_running_out_of_memory_is_called_that(error):
    with pytest.raises(FileError, match=r"rows\.npz must fit into memory") as raised, errors.reading("rows.npz", "x"):
        raise error
    assert "cut short" not in str(raised.value)


def test_a_file_that_needs_more_memory_than_is_left_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "free_memory", lambda: 1000)
    monkeypatch.setattr(errors, "_ALWAYS_FREE", 1000)
    save(rows(200), tmp_path / "rows.npz")
    with pytest.raises(FileError, match="must fit into memory; it needs at least"):
        load(tmp_path / "rows.npz")
