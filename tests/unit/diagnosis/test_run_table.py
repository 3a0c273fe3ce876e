"""Runs of other training loops: written by save_run, or named by a table."""

import json

import numpy as np
import pytest
import torch
from made_runs import rows_of, settings_of, write_run

from calibrant import Predictions, TemperatureScaling, TopLabel, save
from calibrant.diagnosis import baseline_of, diagnose, grouped, read_runs, save_run
from calibrant.errors import FileError, InputError
from calibrant.files.choose import LoadOptions
from calibrant.report.diagnosis import diagnosis_page


def parts(seed, scale=3.0):
    return {part: rows_of(150, part, scale=scale, noise=0.2, seed=seed) for part in ("calibration", "test")}


@pytest.fixture
def table(tmp_path):
    """A csv file and the predictions it names: two seeds of ce, two learning rates of focal."""
    lines = ["name,seed,calibration,test,lr"]
    for name, seed, lr, scale in (("ce", 0, 0.1, 3), ("ce", 1, 0.1, 3), ("focal", 0, 0.1, 1), ("focal", 0, 0.01, 2)):
        stem = f"{name}-{seed}-{lr}"
        for part, samples in parts(seed, scale).items():
            save(samples, tmp_path / f"{stem}-{part}.csv")
        lines.append(f"{name},{seed},{stem}-calibration.csv,{stem}-test.csv,{lr}")
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "runs.csv"


def test_a_table_gives_the_diagnosis_of_the_same_runs_of_train(table, tmp_path):
    ours = [write_run(tmp_path / f"ce-{seed}", settings_of("ce", seed), **parts(seed)) for seed in (0, 1)]
    ours.append(write_run(tmp_path / "focal-0", settings_of("focal", 0), **parts(0, 1.0)))
    lines = table.read_text().splitlines()[:4]
    (tmp_path / "three.csv").write_text("\n".join(lines))
    quick = {"draws": 0, "resamples": 100}
    found, expected = (diagnose(read_runs(paths), **quick) for paths in ([tmp_path / "three.csv"], ours))
    assert [one.name for one in found.candidates] == ["ce", "focal"]
    assert found.baseline == "ce"
    for one, other in zip(found.calibratability, expected.calibratability, strict=True):
        for name, spread in one.ece.items():
            assert spread.mean == pytest.approx(other.ece[name].mean, abs=1e-6)
            assert spread.mean > 0
    assert "ce" in diagnosis_page(found).verdict.headline


def test_names_are_the_given_ones_with_options_where_several_share_one(table):
    candidates = grouped(read_runs([table]))
    assert [one.name for one in candidates] == ["ce", "focal(lr=0.1)", "focal(lr=0.01)"]
    assert [one.seeds for one in candidates] == [(0, 1), (0,), (0,)]
    assert baseline_of(candidates).name == "ce"


def test_a_saved_run_is_read_back(tmp_path):
    probs = {part: Predictions.from_probs(samples.probs, samples.labels) for part, samples in parts(1, 1.0).items()}
    folder = save_run(tmp_path / "runs" / "mixup-1", name="mixup", seed=1, options={"alpha": 0.2}, **probs)
    (run,) = read_runs([folder])
    assert (run.seed, run.options) == (1, {"name": "mixup", "alpha": 0.2})
    np.testing.assert_allclose(run.test.probs, parts(1, 1.0)["test"].probs, atol=1e-6)


def repeated(samples, times):
    return samples[torch.arange(len(samples)).repeat_interleave(times)]


def test_whole_weights_are_repetitions_and_only_their_ratios_matter(tmp_path):
    times = torch.randint(0, 4, (150,), generator=torch.Generator().manual_seed(3))
    folders = {"weighted": [], "scaled": [], "repeated": []}
    for name, scale in (("ce", 3.0), ("focal", 1.0)):
        samples = parts(0, scale)
        for kind, change in (
            ("weighted", lambda part: part.with_weights(times)),
            ("scaled", lambda part: part.with_weights(0.37 * times)),
            ("repeated", lambda part: repeated(part, times)),
        ):
            of_kind = {part: change(rows) for part, rows in samples.items()}
            folders[kind].append(save_run(tmp_path / f"{name}-{kind}", name=name, **of_kind))
    quick = {"maps": [TemperatureScaling()], "draws": 0, "resamples": 100}  # others have penalties by effective number
    found, scaled, expected = (diagnose(read_runs(runs), **quick) for runs in folders.values())
    assert (found.n, expected.n, expected.effective_n) == (int((times > 0).sum()), int(times.sum()), None)
    assert found.effective_n == pytest.approx(float(times.sum()) ** 2 / float(times.square().sum()))
    assert "(effective " in diagnosis_page(found).facts
    for one, other, same in zip(*(each.calibratability for each in (found, expected, scaled)), strict=True):
        assert one.accuracy.mean == pytest.approx(other.accuracy.mean)
        assert one.temperature.mean == pytest.approx(other.temperature.mean, rel=1e-6)
        for name in one.ece:
            assert one.ece[name].mean == pytest.approx(same.ece[name].mean, abs=1e-9)
            assert one.ece[name].mean == pytest.approx(other.ece[name].mean, abs=1e-6)
        assert one.optimal_ece.mean == pytest.approx(other.optimal_ece.mean, abs=1e-6)
    for one, other in zip(found.directions, expected.directions, strict=True):
        assert one.gap.mean == pytest.approx(other.gap.mean, abs=1e-9)
        assert one.high - one.low > other.high - other.low  # repetitions are no evidence
    for one, other in zip(found.refinement, expected.refinement, strict=True):
        for row, same in zip(one.rows, other.rows, strict=True):
            for name in ("auroc", "aupr_error", "nll", "brier"):
                assert row.metrics[name].mean == pytest.approx(same.metrics[name].mean, abs=1e-6)
            assert row.murphy["resolution"].mean == pytest.approx(same.murphy["resolution"].mean, abs=1e-9)


def test_weights_of_a_table_are_named_and_alike_in_all_runs(table, tmp_path):
    lines = table.read_text().splitlines()
    for stem in ("ce-0-0.1", "ce-1-0.1"):
        for part, samples in parts(int(stem[3])).items():
            weights = np.linspace(0.5, 2, len(samples)) + (stem == "ce-1-0.1" and part == "calibration")
            save(samples.with_weights(weights), tmp_path / f"{stem}-{part}.csv")
    (tmp_path / "two.csv").write_text("\n".join(lines[:3]))
    read = read_runs([tmp_path / "two.csv"], LoadOptions(weights="weights"))
    assert [float(run.calibration.weights[0]) for run in read] == [0.5, 1.5]
    assert diagnose(read, draws=1, resamples=100).validation_sizes[0].points[0].ece["temperature"].mean > 0
    assert read_runs([tmp_path / "two.csv"])[0].test.weights is None
    with pytest.raises(InputError, match="nearest is 'weights'"):
        read_runs([tmp_path / "two.csv"], LoadOptions(weights="weigths"))
    with pytest.raises(InputError, match="of calibrant train"):
        read_runs([write_run(tmp_path / "own", settings_of("ce", 0), **parts(0))], LoadOptions(weights="weights"))
    save(parts(1)["test"].with_weights(range(150)), tmp_path / "ce-1-0.1-test.csv")
    with pytest.raises(InputError, match="other weights"):
        read_runs([tmp_path / "two.csv"], LoadOptions(weights="weights"))


def test_mistakes_in_a_table_are_named(table, tmp_path):
    def written(text, name="bad.csv"):
        (tmp_path / name).write_text(text)
        return [tmp_path / name]

    good = table.read_text().splitlines()
    for text, words in (
        ("name,test\nce,x.npz\n", "run 1 has no calibration"),
        ("name,calibration,test\nce,missing.npz,missing.npz\n", "no calibration file"),
        (good[0] + "\n" + good[1].replace("ce,0", "ce,first"), "whole numbers"),
        (good[0] + "\n", "has none"),
        (good[0] + "\n" + good[1] + ",9,9", "more values than headings"),
        ("\n".join([*good, good[1]]), "named once|named twice"),
    ):
        with pytest.raises(InputError, match=words):
            read_runs(written(text))
    with pytest.raises(FileError, match="Did you mean calibration"):
        read_runs(written(json.dumps([{"name": "ce", "calibraton": "x"}]), "bad.json"))
    save(TopLabel([0.9, 0.8], [True, False]), tmp_path / "top.csv")
    with pytest.raises(FileError, match="every class"):
        read_runs(written("name,calibration,test\na,top.csv,top.csv\n"))
    with pytest.raises(InputError, match="got both"):
        read_runs([table, write_run(tmp_path / "own", settings_of("ce", 0), **parts(0))])
    with pytest.raises(InputError, match="shifted images"):
        _ = read_runs([table])[0].settings
    with pytest.raises(InputError, match="Predictions of every class"):
        save_run(tmp_path / "x", name="x", calibration=TopLabel([0.5], [True]), test=parts(0)["test"])
