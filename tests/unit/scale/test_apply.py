"""Maps applied to many files, and to one that is read some rows at a time."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.cli.conftest import calibrant  # noqa: F401  # a fixture
from tests.unit.scale.test_state import predictions_of

from calibrant import TemperatureScaling, load, save, save_map
from calibrant.calibrators import StructuredVectorScaling
from calibrant.scale import apply as module

SAMPLES = predictions_of(900, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ROWS", (64, 128))
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
    assert "from an earlier run of this command: 1 file" in shown
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
