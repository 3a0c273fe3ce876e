"""Cells of a study run once, whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import counting_study
import pytest
from counting_study import Counting, place
from experiments.records import Records, alone
from experiments.runner import Cell, _run_and_answer, finished, run_cells, selected

from calibrant.errors import InputError


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records.jsonl")


def study_of(tmp_path, *settings):
    return Counting(tmp_path / "begun", list(settings)).study()


def run(study, records, **options):
    said = []
    return run_cells(study, records, place(), progress=said.append, **options), said


def begun(tmp_path):
    return Counter((tmp_path / "begun").read_text(encoding="utf-8").split())


def test_a_study_killed_at_any_moment_loses_and_repeats_no_finished_cell(tmp_path, records):
    cells = 12
    command = [sys.executable, counting_study.__file__, str(tmp_path), str(cells)]
    kept, before = {}, {}
    (tmp_path / "held").touch()  # so that it cannot end before it is killed
    for enough in (2, 6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while len(records.read()) < enough:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        # The next one starts while the workers of this one may still be ending.
        kept[enough], before[enough] = {record["cell"]["seed"] for record in records.read()}, begun(tmp_path)
    (tmp_path / "held").unlink()
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(record["cell"]["seed"] for record in records.read()) == list(range(cells))
    for enough, seeds in kept.items():
        assert len(seeds) >= enough
        assert all(begun(tmp_path)[str(seed)] == before[enough][str(seed)] for seed in seeds), (
            "a finished one ran again"
        )


def test_only_missing_cells_run_and_each_record_says_where_it_was_made(tmp_path, records):
    first = study_of(tmp_path, {"seed": 1}, {"seed": 2})
    report, _ = run(first, records)
    assert report == (2, {}, 0)
    report, said = run(study_of(tmp_path, {"seed": 1}, {"seed": 2}, {"seed": 3}), records)
    assert report == (1, {}, 0)
    assert "2 done, 1 to run" in said[0]
    assert begun(tmp_path) == {"1": 1, "2": 1, "3": 1}
    last = records.read()[-1]
    assert last["numbers"] == {"square": 9}
    assert last["commit"] == "a commit"
    assert {"device", "torch", "python", "seconds", "finished"} <= set(last)


def test_a_torn_last_line_is_dropped_and_its_cell_runs_again(tmp_path, records):
    study = study_of(tmp_path, {"seed": 1}, {"seed": 2})
    run(study, records)
    whole = records.path.read_bytes()
    torn = whole[:-20]
    records.path.write_bytes(torn)
    assert len(records.read()) == 1  # readers ignore it
    report, said = run(study, records)
    assert report.done == 1
    assert any("torn" in line for line in said)
    assert [record["cell"]["seed"] for record in records.read()] == [1, 2]


def test_a_broken_line_in_the_middle_is_refused_by_its_number(tmp_path, records):
    run(study_of(tmp_path, {"seed": 1}, {"seed": 2}), records)
    lines = records.path.read_text(encoding="utf-8").splitlines(keepends=True)
    records.path.write_text("{broken\n" + lines[1], encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        records.read()


def test_two_runners_cannot_share_a_study(tmp_path, records):
    study = study_of(tmp_path, {"seed": 1})
    with records.writing(), pytest.raises(InputError, match=f"process {os.getpid()}"):
        run(study, records)
    assert run(study, records)[0].done == 1  # the lock is free again


def test_what_one_does_alone_others_wait_for(tmp_path):
    order = []

    def second():
        with alone(tmp_path / "network"):
            order.append("second")

    with alone(tmp_path / "network"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_a_changed_grid_is_reported_and_its_old_records_are_kept(tmp_path, records):
    run(study_of(tmp_path, {"seed": 1, "epochs": 10}), records)
    changed = study_of(tmp_path, {"seed": 1, "epochs": 20})
    report, said = run(changed, records)
    assert report.done == 1
    assert any("grid has changed" in line and "epochs=10" in line for line in said)
    done, strangers = finished(changed.cells(quick=False), records.read())
    assert len(done) == len(strangers) == 1


def test_a_cell_that_fails_or_dies_is_reported_and_the_others_continue(tmp_path, records):
    study = study_of(
        tmp_path, {"seed": 1, "does": "raise"}, {"seed": 2, "does": "die"}, {"seed": 3, "does": "nan"}, {"seed": 4}
    )
    report, _ = run(study, records)
    assert report.done == 1
    assert sorted(report.failed) == sorted(cell.key for cell in study.cells(quick=False)[:3])
    assert "out of memory" in report.failed[Cell({"seed": 1, "does": "raise"}).key]
    assert "exit code 9" in report.failed[Cell({"seed": 2, "does": "die"}).key]
    # A failed cell is not finished: it runs again, and the one that died by chance now ends.
    report, said = run(study, records)
    assert report.done == 1
    assert "1 done, 3 to run" in said[0]


def test_no_cell_begins_after_the_time_is_up(tmp_path, records):
    report, _ = run(study_of(tmp_path, {"seed": 1}, {"seed": 2}), records, seconds=0)
    assert report == (0, {}, 2)


def test_cells_given_together_have_a_record_each(tmp_path, records):
    study = study_of(tmp_path, *({"seed": seed} for seed in range(5)))
    assert run(study, records, together=2)[0] == (5, {}, 0)
    assert [(each["cell"]["seed"], each["together"]) for each in records.read()] == [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 2),
        (4, 1),
    ]


def test_the_time_of_a_resumed_cell_is_that_of_all_its_runs():
    sent, numbers = [], {"before": [{"commit": "c", "epoch": 3, "seconds": 100.0}]}
    pipe = SimpleNamespace(send=sent.append)
    _run_and_answer(pipe, lambda _cells, report: report(0, numbers), [{"seed": 0}], place())
    ((_, answer),) = sent
    assert 100 <= answer["seconds"] < 110
    assert answer["numbers"] == numbers


def test_a_failure_of_cells_given_together_costs_those_without_an_answer(tmp_path, records):
    fails = ["with all", "alone", "no", "no"]
    study = study_of(tmp_path, *({"seed": seed, "fails": each} for seed, each in enumerate([*fails, "no"])))
    report, _ = run(study, records, together=4)
    assert report.done == 3
    errors = {each["cell"]["seed"]: each["error"].splitlines()[-1] for each in records.read() if "error" in each}
    assert errors == {0: "RuntimeError: out of memory", 1: "RuntimeError: not finite"}


def test_a_worker_that_dies_costs_all_its_cells_and_is_replaced(tmp_path, records):
    cells = [{"seed": 1}, {"seed": 2, "does": "die"}, {"seed": 3}, {"seed": 4}]
    report, _ = run(study_of(tmp_path, *cells), records, together=3)
    assert report.done == 2
    assert {each["cell"]["seed"] for each in records.read() if "error" in each} == {2, 3}


def test_only_the_cells_that_are_asked_for_run(tmp_path, records):
    study = study_of(tmp_path, *({"seed": seed} for seed in range(4)))
    assert run(study, records, only=["seed=2", "seed=3"])[0].done == 2
    assert begun(tmp_path) == {"2": 1, "3": 1}


@pytest.mark.parametrize(
    ("condition", "message"),
    [("seed", "names seed, size"), ("sede=1", "names seed, size"), ("seed=7", "value of the grid: 1, 2")],
)
def test_a_condition_that_no_cell_meets_is_refused_with_what_there_is(condition, message):
    with pytest.raises(InputError, match=message):
        selected([Cell({"seed": 1}), Cell({"seed": 2, "size": 3})], [condition])


def test_none_selects_the_cells_without_a_setting():
    cells = [Cell({"seed": 1}), Cell({"seed": 2}), Cell({"seed": 1, "size": 3})]
    assert selected(cells, ["size=None", "seed=1"]) == cells[:1]


def test_a_run_with_nothing_left_says_how_to_have_records_of_ones_own(tmp_path, records):
    study = study_of(tmp_path, {"seed": 1})
    run(study, records)
    assert any("--records" in line for line in run(study, records)[1])


def test_data_that_are_not_there_are_reported(tmp_path, records):
    with pytest.raises(InputError, match="--data must exist"):
        run_cells(study_of(tmp_path, {"seed": 1}), records, place(tmp_path / "nowhere"))
    assert records.read() == []


def test_a_cell_that_is_declared_twice_is_refused(tmp_path, records):
    with pytest.raises(InputError, match="there twice"):
        run(study_of(tmp_path, {"seed": 1, "a": 2}, {"a": 2, "seed": 1}), records)


def test_a_record_is_whole_json_on_one_line(tmp_path, records):
    run(study_of(tmp_path, {"seed": 1, "name": "δ"}), records)
    content = records.path.read_text(encoding="utf-8")
    assert content.count("\n") == 1
    assert json.loads(content)["cell"] == {"seed": 1, "name": "δ"}


@pytest.mark.parametrize("left", [None, b'{"cell": {"seed": 1}}\n'], ids=["removed", "replaced"])
def test_records_that_are_removed_or_replaced_while_a_study_runs_are_written_again(tmp_path, left):
    records = Records(tmp_path / "folder" / "records.jsonl")
    with records.writing() as writer:
        for seed in (1, 2):
            writer.append({"cell": {"seed": seed}})
        shutil.rmtree(records.path.parent)
        if left is not None:
            records.path.parent.mkdir()
            records.path.write_bytes(left)
        writer.append({"cell": {"seed": 3}})
        assert [record["cell"]["seed"] for record in records.read()] == [1, 2, 3]
        records.path.unlink()
    assert [record["cell"]["seed"] for record in records.read()] == [1, 2, 3]


def test_studies_are_listed_and_recorded_without_fcntl_as_on_windows(tmp_path):
    script = (
        "import os, sys, types\n"
        "import experiments.__main__\n"
        "for name in [one for one in sys.modules if one.startswith('experiments')]:\n"
        "    del sys.modules[name]\n"
        "held = []\n"
        "def locking(descriptor, mode, size):\n"
        "    if held: raise PermissionError('locked')\n"
        "    held.append(descriptor)\n"
        "sys.modules['fcntl'] = None\n"
        "sys.modules['msvcrt'] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)\n"
        "for name in ('uname', 'pread', 'pwrite'):\n"
        "    delattr(os, name)\n"
        "sys.platform = 'win32'\n"
        "import experiments.records\n"
        "sys.platform = 'linux'\n"
        "from pathlib import Path\n"
        "from experiments.__main__ import main\n"
        "from experiments.records import Records\n"
        "records = Records(Path(sys.argv[1]))\n"
        "with records.writing() as writer:\n"
        "    writer.append({'cell': {}})\n"
        "    try:\n"
        "        with records.writing():\n"
        "            pass\n"
        "    except ValueError as error:\n"
        "        print(error)\n"
        "print(records.read())\n"
        "sys.exit(main(['list']))\n"
    )
    command = [sys.executable, "-c", script, tmp_path / "records.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
    assert "another does so (process" in done.stdout
    assert "[{'cell': {}}]" in done.stdout
    assert "neural-clamping" in done.stdout
