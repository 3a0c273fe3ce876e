"""Maps applied to many files, and to one that is read some rows at a time."""

import csv
import gzip
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from pyarrow import feather
from safetensors.torch import save_file
from tests.unit.cli.conftest import calibrant  # noqa: F401  # a fixture
from tests.unit.scale.test_state import predictions_of

from calibrant import TemperatureScaling, load, save, save_map
from calibrant.calibrators import StructuredVectorScaling
from calibrant.errors import FileError
from calibrant.files.choose import LoadOptions, choose
from calibrant.files.load import open_source
from calibrant.files.save import WRITERS, load_score_batches, load_scores, save_score_batches
from calibrant.maps import Scale
from calibrant.scale import Plan, find_shards
from calibrant.scale.apply import Target, apply_to_shards

save_module = sys.modules["calibrant.files.save"]  # the package's ``save`` is its function
SAMPLES = predictions_of(900, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(save_module, "_ROWS", (64, 64))
    (tmp_path / "preds").mkdir()
    for number in range(3):
        some = SAMPLES[300 * number : 300 * (number + 1)]
        columns = {f"logit_{name}": some.logits[:, i].numpy() for i, name in enumerate("abc")}
        when = pa.array(np.arange(300), pa.timestamp("s"))
        names = pa.array([None if i % 7 == 0 else f"row {i}" for i in range(300)])
        table = pa.table({"name": names, **columns, "label": some.labels.numpy(), "when": when, "prob_a": names})
        pq.write_table(table, tmp_path / "preds" / f"{number}.parquet", row_group_size=100)
    save_map(StructuredVectorScaling().fit(SAMPLES), tmp_path / "map.safetensors")
    return tmp_path


def test_files_are_calibrated_as_one_in_memory_and_keep_their_columns(folder, calibrant):  # noqa: F811
    code, shown, _ = calibrant("apply", folder / "map.safetensors", folder / "preds", "-o", folder / "out")
    assert code == 0
    assert "900 samples of 3 files" in shown
    assert "Not copied: prob_a" in shown  # it would stand uncalibrated beside the new scores
    fitted = StructuredVectorScaling().fit(SAMPLES)
    for number in range(3):
        given = pq.read_table(folder / "preds" / f"{number}.parquet")
        made = pq.read_table(folder / "out" / f"{number}.parquet")
        assert made.column_names == given.column_names[:-1]
        for name in ("name", "label", "when"):  # with their types, and where values are missing
            assert made[name].equals(given[name])
        expected = fitted.transform(SAMPLES[300 * number : 300 * (number + 1)])
        assert load(folder / "out" / f"{number}.parquet").logits.numpy() == pytest.approx(
            expected.logits.numpy(), rel=1e-6
        )
    alone = folder / "alone.parquet"
    code, _, _ = calibrant("apply", folder / "map.safetensors", folder / "preds/1.parquet", "-o", alone, "--stream")
    assert code == 0
    assert pq.read_table(alone).equals(pq.read_table(folder / "out" / "1.parquet"))


def test_a_second_run_makes_only_what_is_missing_or_differs(folder, calibrant):  # noqa: F811
    command = ("apply", folder / "map.safetensors", folder / "preds/*.parquet", "-o", folder / "out", "--stream")
    assert calibrant(*command)[0] == 0
    out = [folder / "out" / f"{number}.parquet" for number in range(3)]
    before = [path.stat().st_mtime_ns for path in out]
    out[0].write_bytes(out[0].read_bytes()[:-100])  # as no run leaves it
    os.utime(folder / "preds" / "1.parquet", ns=(1, 1))  # another file of that name, for all we know
    code, shown, _ = calibrant(*command)
    assert code == 0
    assert "from an earlier run: 1 file" in shown
    assert out[2].stat().st_mtime_ns == before[2]
    assert len(load(out[0])) == 300
    other = ("apply", "temperature(value=2)", *command[2:])  # another map
    assert "900 samples of 3 files" in calibrant(*other)[1]
    assert load(out[2]).logits.numpy() == pytest.approx(SAMPLES[600:].logits.numpy() / 2)


def test_other_kinds_are_written_as_they_are_and_by_several_processes(tmp_path, calibrant):  # noqa: F811
    save(SAMPLES[:300], tmp_path / "a.npz")
    save(SAMPLES[300:], tmp_path / "b.npz")
    save_map(TemperatureScaling().fit(SAMPLES), tmp_path / "map.safetensors")
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    code, _, _ = calibrant("apply", tmp_path / "map.safetensors", *files, "-o", tmp_path / "out", "--workers", 2)
    assert code == 0
    expected = TemperatureScaling().fit(SAMPLES).transform(SAMPLES)
    assert load(tmp_path / "out" / "b.npz").logits.numpy() == pytest.approx(expected[300:].logits.numpy(), rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("preds", "-o", "preds/out"), "must not lie in"),
        (("preds", "-o", "all.parquet"), "--out must be a folder"),
        (("preds/*.parquet", "-o", "preds"), "it is an input file"),
        (("preds", "-o", "out", "--checkpoint", "job"), "--checkpoint must be left out"),
        (("preds/0.parquet", "preds/bad.parquet", "-o", "out"), "must be a whole Parquet file"),
        (("preds/0.parquet", "empty.parquet", "-o", "out"), "must have at least one row"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, message, folder, calibrant, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder)
    whole = (folder / "preds" / "0.parquet").read_bytes()
    (folder / "preds" / "bad.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pq.read_table(folder / "preds" / "0.parquet").slice(0, 0), folder / "empty.parquet")
    if "bad" not in arguments[1]:
        (folder / "preds" / "bad.parquet").unlink()
    code, _, error = calibrant("apply", "map.safetensors", *arguments)
    assert code == 2
    assert message in " ".join(error.split())
    assert not list(folder.glob("out/*bad*"))


KINDS = (".csv", ".csv.gz", ".jsonl", ".arrow", ".npz", ".safetensors")


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(save_module, "_ROWS", (64, 64))
    monkeypatch.setattr("calibrant.files.text._JSON_CHUNK", 1 << 12)


@pytest.mark.parametrize("suffix", [*KINDS, ".feather", ".pt"])
@pytest.mark.usefixtures("few_rows")
def test_formats_with_metadata_are_not_made_twice(suffix, tmp_path, calibrant):  # noqa: F811
    (tmp_path / "preds").mkdir()
    save(SAMPLES[:300], tmp_path / "preds" / f"a{suffix}")
    command = ("apply", "temperature(value=2)", tmp_path / "preds", "-o", tmp_path / "out")
    assert calibrant(*command)[0] == 0
    assert load(tmp_path / "out" / f"a{suffix}").logits.numpy() == pytest.approx(SAMPLES[:300].logits.numpy() / 2)
    is_known = suffix in {".arrow", ".feather", ".safetensors"}
    assert ("from an earlier run: 1 file" in calibrant(*command)[1]) == is_known
    # What is made from the outcome, in memory, does not claim to be the outcome.
    again = ("apply", "temperature(value=1)", tmp_path / "out" / f"a{suffix}", "-o", tmp_path / f"b{suffix}")
    assert calibrant(*again)[0] == 0
    assert save_module.known_source(tmp_path / f"b{suffix}") is None


@pytest.mark.usefixtures("few_rows")
def test_a_csv_file_keeps_its_text_and_separators(tmp_path, calibrant):  # noqa: F811
    lines = [f'{i:03};"a;{i}";{i % 7}.50;x "y";{i % 2}' for i in range(200)]
    (tmp_path / "in.csv").write_text("\n".join(["id;quoted;logit_0;plain;label;logit_1", *(f"{a};1" for a in lines)]))
    out = tmp_path / "out.csv"
    code, _, error = calibrant("apply", "temperature(value=2)", tmp_path / "in.csv", "--separator", ";", "-o", out, "--stream")  # noqa: E501  # fmt: skip
    assert code == 0, error
    written = out.read_text().splitlines()
    assert written[0] == "id;quoted;logit_0;plain;label;logit_1"
    assert written[150] == '149;"a;149";1.25;"x ""y""";1;0.5'
    assert len(written) == 201


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.usefixtures("few_rows")
def test_decimal_commas_are_kept(stream, tmp_path, calibrant):  # noqa: F811
    lines = [f"{i};{i % 7},5;{i % 3},25;{i % 2};1" for i in range(200)]
    (tmp_path / "in.csv").write_text("\n".join(["id;logit_0;age;label;logit_1", *lines]))
    reading = ("--separator", "csv2", *stream)
    apply = ("apply", "temperature(value=2)", tmp_path / "in.csv", "-o", tmp_path / "out.csv", *reading)
    code, _, error = calibrant(*apply)
    assert code == 0, error
    written = (tmp_path / "out.csv").read_text().splitlines()
    assert written[0] == "id;logit_0;age;label;logit_1"
    assert written[150] == "149;1,25;2,25;1;0,5"
    code, out, error = calibrant("evaluate", tmp_path / "out.csv", "--resamples", 100, *reading)
    assert code == 0, error
    assert "200 samples, 2 classes" in out


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.usefixtures("few_rows")
def test_a_bad_row_late_in_a_file_is_named_and_nothing_is_written(suffix, tmp_path, calibrant):  # noqa: F811
    logits = SAMPLES.logits.clone()
    path, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    data = {"logit_0": logits[:, 0].tolist(), "logit_1": logits[:, 1].tolist(), "id": [""] * 900, "label": ["no"] * 900}
    if suffix in {".npz", ".safetensors"}:
        logits[700, 1] = float("nan")
        arrays = {"logits": logits.numpy(), "labels": SAMPLES.labels.numpy()}
        np.savez(path, **arrays) if suffix == ".npz" else save_file({"logits": logits, "labels": SAMPLES.labels}, path)
    elif suffix == ".arrow":
        table = pa.table(
            {**data, "label": [0] * 900, "logit_1": [*data["logit_1"][:700], None, *data["logit_1"][701:]]}
        )
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    else:
        names = {"label": [0] * 900, "logit_1": [*data["logit_1"][:700], None if "json" in suffix else "x"]}
        write(path, {**data, **names, "logit_1": [*names["logit_1"], *data["logit_1"][701:]]})
    code, _, error = calibrant("apply", "temperature(value=2)", path, "-o", out, "--stream")
    assert code == 2
    shown = " ".join(error.split())
    place = {".csv": "line 702", ".jsonl": "line 701"}.get(suffix.removesuffix(".gz"), "row 700 (counting from 0)")
    assert f" at {place}" in shown
    assert not out.exists()


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.usefixtures("few_rows")
def test_a_file_that_changes_while_it_is_read_is_not_written(suffix, tmp_path):
    save(SAMPLES, tmp_path / f"in{suffix}")
    shards = find_shards([tmp_path / f"in{suffix}"])
    plan = Plan.of(shards[0], LoadOptions(labels_needed=False))

    def touching(_scores, path):
        os.utime(path, ns=(1, 1))
        return Scale(torch.tensor(0.5, dtype=torch.float64), n_classes=3)

    with pytest.raises(FileError, match="must not change while it is read"):
        apply_to_shards([Target(shards[0], tmp_path / f"out{suffix}")], touching, plan, identity="")
    assert not (tmp_path / f"out{suffix}").exists()


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.usefixtures("few_rows")
def test_a_file_larger_than_memory_is_calibrated(suffix, tmp_path, calibrant, monkeypatch):  # noqa: F811
    save(SAMPLES, tmp_path / f"in{suffix}")
    size = (tmp_path / f"in{suffix}").stat().st_size
    for name, value in {"free_memory": lambda: size // 2, "_ALWAYS_FREE": 0}.items():
        monkeypatch.setattr(f"calibrant.errors.{name}", value)
    monkeypatch.setattr("calibrant.files.text._CHECKED_EVERY", 1)
    out = tmp_path / f"out{suffix}"
    code, _, error = calibrant("apply", "temperature(value=2)", tmp_path / f"in{suffix}", "-o", out, "--stream")
    assert code == 0, error
    monkeypatch.undo()
    assert load(out).logits.numpy() == pytest.approx(SAMPLES.logits.numpy() / 2)


@pytest.mark.parametrize("suffix", [".csv", ".arrow", ".npz"])
def test_a_file_without_rows_is_refused(suffix, tmp_path, calibrant):  # noqa: F811
    path = tmp_path / f"in{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=np.empty((0, 2)), labels=np.empty(0, np.int64))
    else:
        table = pa.table({"logit_0": [1.0], "logit_1": [0.5], "label": [0]})[:0]
        feather.write_feather(table, path) if suffix == ".arrow" else path.write_text("logit_0,logit_1,label\n")
    code, _, error = calibrant("apply", "temperature(value=2)", path, "-o", tmp_path / f"out{suffix}", "--stream")
    assert code == 2
    assert "at least one" in " ".join(error.split())
    assert not (tmp_path / f"out{suffix}").exists()


# Laws: some rows at a time give the file of all rows together.

_WORDS = st.text(alphabet='ab0,;"\n\t\r é', max_size=4) | st.sampled_from(["007", "1.50", "nan", "true", "2024-01-01"])
_SEPARATE = {".csv": ",", ".csv.gz": ",", ".tsv": "\t"}
IN = [
    ".csv",
    ".csv.gz",
    ".tsv",
    ".jsonl",
    ".jsonl.gz",
    ".parquet",
    ".arrow",
    ".feather",
    ".npz",
    ".safetensors",
    ".npy",
]
HALVE = Scale(torch.tensor(0.5, dtype=torch.float64), n_classes=2)


@st.composite
def columns(draw):
    """Columns by name: scores, labels and others, of which some come late to their type."""
    n, few = draw(st.integers(1, 12)), st.integers(-3, 3)
    numbers = st.one_of(few.map(float), st.floats(-20, 20, width=32))
    scores = {f"logit_{name}": draw(st.lists(numbers, min_size=n, max_size=n)) for name in ("no", "yes")}
    texts = draw(st.lists(_WORDS, min_size=n, max_size=n))
    more = draw(st.lists(st.one_of(few, numbers), min_size=n, max_size=n))
    labels = draw(st.lists(st.sampled_from(["no", "yes"]), min_size=n, max_size=n))
    order = draw(st.permutations(["logit_no", "id", "logit_yes", "label", "more"]))
    return {name: {**scores, "id": texts, "label": labels, "more": more}[name] for name in order}


def write(path, data):
    """Write columns into a file of the path's kind; those of arrays have scores as a matrix and no text but the ids."""
    suffix = "".join(path.suffixes)
    n = len(data["id"])
    if suffix in _SEPARATE:
        with gzip.open(path, "wt", newline="") if suffix.endswith(".gz") else path.open("w", newline="") as file:
            rows = csv.writer(file, delimiter=_SEPARATE[suffix])
            rows.writerows([list(data), *zip(*data.values(), strict=True)])
    elif suffix.startswith(".jsonl"):
        lines = [json.dumps(dict(zip(data, row, strict=True))) for row in zip(*data.values(), strict=True)]
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    elif suffix in {".parquet", ".arrow", ".feather"}:
        gaps = [None if word == "" else word for word in data["id"]]
        more = {"more": np.array(data["more"], np.float32), "gaps": pa.array(gaps, pa.string()).dictionary_encode()}
        lists = pa.array([[float(place)] * (place % 3) for place in range(n)])
        table = pa.table({**data, **more, "when": pa.array(range(n), pa.timestamp("s")), "lists": lists})
        table = table.replace_schema_metadata({"about": "a run"})
        if suffix == ".parquet":
            pq.write_table(table, path, row_group_size=5)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=5)
    else:
        logits = np.stack([data["logit_no"], data["logit_yes"]], 1).astype(np.float32)
        arrays = {"logits": logits, "labels": np.array([["no", "yes"].index(word) for word in data["label"]])}
        arrays |= {"more": np.array(data["more"]), "turned": np.asfortranarray(logits), "kept": logits[:, 0] > 0}
        if suffix == ".npz":
            times = np.arange(n).astype("datetime64[s]")  # cannot be read, nor can objects
            held = {
                "id": np.array(data["id"]),
                "when": times,
                "any": np.array([None] * n),
                "class_names": ["no", "yes"],
            }
            np.savez_compressed(path, **held, **arrays, other=np.ones(n + 1))
        elif suffix == ".npy":
            np.save(path, logits)
            np.save(path.with_name("labels.npy"), arrays["labels"])
        else:
            tensors = {name: torch.tensor(array).contiguous() for name, array in arrays.items()}
            tensors["rounded"] = tensors["logits"].bfloat16()
            save_file(tensors, path, {"class_names": '["no","yes"]', "about": "a run"})


def content(path):
    """Return what a file holds, in every detail."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        return table.schema, table.schema.metadata, table.to_pylist()
    if path.suffix in {".arrow", ".feather"}:
        table = pa.ipc.open_file(path).read_all()
        return table.schema, table.schema.metadata, table.to_pylist()
    if path.suffix in {".pt", ".pth"}:
        return {name: (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value
                for name, value in torch.load(path, weights_only=True).items()}  # fmt: skip
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def endings_of(given):
    """Return the endings of files that are written from those of this one: of three kinds all there are."""
    if given in {".csv", ".npz", ".parquet"}:
        return list(WRITERS)
    more = {".npy": ".npz", ".jsonl": ".npz", ".arrow": ".csv", ".safetensors": ".parquet"}
    return [ending for ending in (given, more.get(given)) if ending in WRITERS]


@pytest.mark.parametrize("given", IN)
@settings(max_examples=10)
@hypothesis.given(data=columns(), rows=st.integers(1, 7))
def test_batches_of_any_size_give_the_file_of_all_rows_together(given, data, rows):
    options = LoadOptions(kind="logits" if given == ".npy" else None, labels="labels.npy" if given == ".npy" else None)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / f"in{given}"
        write(path, data)
        loaded = load_scores(path, options)
        patch.setattr("calibrant.files.text._JSON_CHUNK", 40 * rows)
        patch.setattr("calibrant.atomic._flush", lambda *_: None)  # takes most of the time
        choice = choose(open_source(path, options), options)
        batches = list(load_score_batches(path, options, choice, rows))
        if not given.startswith(".jsonl"):
            assert max(len(batch.predictions) for batch in batches) <= rows
        all_rows, *in_batches = (
            replace(scores, predictions=HALVE.transform(scores.predictions)) for scores in (loaded, *batches)
        )
        assert endings_of(given)
        for suffix in endings_of(given):
            whole, streamed = (Path(folder) / f"{name}{suffix}" for name in ("whole", "streamed"))
            applied = save_score_batches(iter([all_rows]), whole)
            assert save_score_batches(iter(in_batches), streamed) == applied, suffix
            assert content(streamed) == content(whole), suffix
            again = load(whole)
            assert torch.equal(again.logits, all_rows.predictions.logits.to(again.logits.dtype)), suffix
            assert torch.equal(again.labels, loaded.predictions.labels), suffix
