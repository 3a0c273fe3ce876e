"""Run folders, read and found fit to be diagnosed together."""

import shutil

import pytest
import torch

from calibrant.diagnosis import diagnose, read_runs
from calibrant.errors import FileError, InputError
from calibrant.files import load


def test_a_trained_run_is_read_with_all_it_left(trained):
    run, other = read_runs([trained["ce-0"], trained["label_smoothing-1"]])
    assert (run.seed, other.seed) == (0, 1)
    assert run.settings.loss["loss"] == "ce"
    assert [record.epoch for record in run.records] == [1, 2]
    torch.testing.assert_close(run.test.logits, load(trained["ce-0"] / "test.npz").logits)
    assert len(run.calibration) == 100
    assert run.calibration.class_names == run.settings.class_names
    assert run.learning.learned_epoch.shape == run.learning.max_logit.shape == (320,)
    assert run.records[-1].held_out["test"].accuracy == float(run.test.correct.double().mean())


def test_predictions_are_read_when_asked_for_and_not_kept(made):
    (run,) = read_runs([made()])
    assert run.test is not run.test
    (run.path / "calibration.npz").write_bytes(b"PK no archive")
    with pytest.raises(FileError, match=r"calibration\.npz"):
        _ = run.calibration


def test_a_run_that_was_not_traced_has_no_learning(made):
    assert read_runs([made()])[0].learning is None


def test_no_runs_are_refused():
    with pytest.raises(InputError, match="there must be a run to diagnose; got none"):
        read_runs([])


def test_one_run_may_be_given_by_itself_and_as_text(made):
    folder = made()
    assert [run.path for given in (folder, str(folder)) for run in read_runs(given)] == [folder, folder]


@pytest.mark.parametrize("wrong", [[], ["runs/ce-0"]])
def test_runs_are_read_before_they_are_diagnosed(wrong):
    with pytest.raises(InputError, match=r"Call read_runs"):
        diagnose(wrong)


def test_what_is_no_run_is_refused_and_runs_inside_are_hinted_at(made, tmp_path):
    with pytest.raises(FileError, match=r"nowhere must be the folder of a run .* it has no settings\.json\.$"):
        read_runs([tmp_path / "nowhere"])
    made(), made(seed=1)
    with pytest.raises(FileError, match=r"It holds 2 such folders: name those \(.*\*\)\."):
        read_runs([tmp_path])


def test_another_kind_of_settings_is_refused(tmp_path):
    (tmp_path / "settings.json").write_text('{"format": "calibrant.clamp/1"}')
    with pytest.raises(FileError, match="must be the settings of a run by calibrant train; it is not"):
        read_runs([tmp_path])


def test_an_unfinished_run_is_refused(made):
    path = made()
    (path / "weights.safetensors").unlink()
    with pytest.raises(FileError, match=r"must hold a finished run; this one was stopped\. Run its"):
        read_runs([path])


def test_a_run_that_came_without_its_weights_is_read(made, hands):
    path = made(records=[hands.epoch(1), hands.epoch(2)], epochs=2)
    (path / "weights.safetensors").unlink()
    (run,) = read_runs([path])
    assert len(run.test.labels) == 400
    (path / "test.npz").unlink()  # stopped while it wrote what it had come to
    with pytest.raises(FileError, match="this one was stopped"):
        read_runs([path])


@pytest.mark.parametrize(("part", "use"), [("calibration", "to fit the maps on"), ("test", "to evaluate")])
def test_a_run_without_one_of_its_parts_is_refused(made, part, use):
    path = made()
    (path / f"{part}.npz").unlink()
    with pytest.raises(FileError, match=rf"must have {part} samples {use}; it has no {part}\.npz\. Train with a split"):
        read_runs([path])


def test_damaged_epoch_records_are_refused(made):
    path = made()
    for text in ("not json\n", '{"epoch": 1}\n'):
        (path / "epochs.jsonl").write_text(text)
        with pytest.raises(FileError, match=r"epochs\.jsonl must be a whole file of epoch records"):
            read_runs([path])


def test_a_damaged_learning_trace_is_refused(made):
    path = made(learning=([1, 2], [0.0, 1.0]))
    (path / "learning.npz").write_bytes(b"PK")
    with pytest.raises(FileError, match=r"learning\.npz must be a whole NumPy archive"):
        _ = read_runs([path])[0].learning


def test_a_run_named_twice_is_refused_also_by_another_path_or_as_a_copy(made, tmp_path):
    path = made(name="one")
    with pytest.raises(InputError, match=r"each run must be named once; .*one is named twice"):
        read_runs([path, path.parent / "." / "one"])
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(InputError, match=r"one and .*copy have the same settings and the same seed, so they are one"):
        read_runs([path, tmp_path / "copy"])


def test_other_test_samples_are_refused(made, hands, tmp_path):
    first = made(name="first")
    with pytest.raises(
        InputError, match=r"the same test samples, .*first has 400 test samples and .*fewer has 300\. Diagnose them"
    ):
        read_runs([first, made(seed=1, n=300, name="fewer")])
    test = hands.rows(400, "test")
    labels = test.labels.clone()
    labels[7], labels[9] = (labels[7] + 1) % 4, (labels[9] + 1) % 4
    turned = type(test).from_logits(test.logits, labels)
    other = hands.write(tmp_path / "other", hands.settings(seed=1), hands.rows(400, "calibration"), turned)
    message = (
        rf"row 7 .* is of class {int(test.labels[7])} in .*first and {int(labels[7])} in .*other \(2 samples differ\)"
    )
    with pytest.raises(InputError, match=message):
        read_runs([first, other])


def test_other_classes_are_refused(made):
    first = made(name="first")
    with pytest.raises(InputError, match=r"the same classes, .*first has 4 and .*five has 5\."):
        read_runs([first, made(seed=1, k=5, name="five")])
    renamed = made(seed=1, class_names=("class 0", "class 1", "cat", "class 3"), name="renamed")
    with pytest.raises(InputError, match=r"class 2 is 'class 2' in .*first and 'cat' in .*renamed"):
        read_runs([first, renamed])
