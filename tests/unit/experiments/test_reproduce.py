"""What a researcher meets who wants one table: commands, data, times, and what is said of broken records."""

import json
import re
import shlex

import pytest
from experiments.__main__ import STUDIES, main, parser
from experiments.reproduce import device_seconds, page_of_guide
from experiments.runner import selected

WITH_TABLES = [study for study in STUDIES.values() if study.tables]


@pytest.mark.parametrize("study", WITH_TABLES, ids=lambda study: study.name)
def test_every_cell_is_of_a_table_and_every_table_has_cells(study):
    cells = study.cells(quick=False)
    made = [{cell.key for cell in selected(cells, table.only)} for table in study.tables]
    assert all(made)
    assert set.union(*made) == {cell.key for cell in cells}


def test_every_command_of_the_page_is_one_that_the_program_takes(capsys):
    page = page_of_guide(list(STUDIES.values()))
    commands = [line for line in page.splitlines() if line.startswith("python -m experiments")]
    assert len(commands) == 3 + 3 * len(WITH_TABLES)
    for command in commands:
        given = parser().parse_args(shlex.split(command, comments=True)[3:])
        assert given.paper is None or given.paper in STUDIES
    for study in WITH_TABLES:
        rows = page.partition(f"### `{study.name}`\n")[2].partition("```")[0]
        for only in re.findall(r"`(--only .*?)`", rows):
            assert main(["list", study.name, *shlex.split(only)]) == 0
    assert "missing" in capsys.readouterr().out


def test_a_device_is_shared_by_the_cells_that_run_at_once():
    ends = {"a": ("2026-01-01T00:00:10+00:00", 10), "b": ("2026-01-01T00:00:16+00:00", 12), "c": (None, 5)}
    records = [
        {"cell": {"name": name}, "seconds": seconds} | ({"finished": end} if end else {})
        for name, (end, seconds) in ends.items()
    ]
    # a runs alone for 4 seconds, both for 6, b alone for 6
    assert list(device_seconds(records).values()) == pytest.approx([7, 9])


@pytest.fixture
def records(tmp_path):
    """One of our records, in a file of its own."""
    path = tmp_path / "mine.jsonl"
    own = (STUDIES["refinement"].folder / "records.jsonl").read_text(encoding="utf-8")
    path.write_text(own.splitlines(keepends=True)[0], encoding="utf-8")
    return path


def test_records_of_ones_own_are_held_against_the_numbers_that_they_have(records, capsys):
    assert main(["check", "refinement", "--records", str(records)]) == 0
    printed = capsys.readouterr().out
    assert "1 of 105 cells have a record" in printed
    assert "cifar100.vgg16_bn.Baseline.none.ece" in printed
    assert "no records" not in printed


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_torn_last_line_is_noted(records, capsys, command):
    with records.open("a", encoding="utf-8") as stream:
        stream.write('{"cell": {"see')
    assert main([command, "refinement", "--records", str(records)]) == 0
    said = capsys.readouterr()
    assert "1 of 105 cells" in said.out
    assert "is torn and not used" in said.err


def test_a_page_without_records_names_the_file_and_the_cells_that_it_has(records, tmp_path, capsys):
    record = json.loads(records.read_text(encoding="utf-8"))
    record["cell"]["epochs"] = 7
    records.write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert main(["table", "refinement", "--records", str(records), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "cells that the grid does not have" in said
    assert "epochs=7" in said
    assert f"{records} has none" in said


def test_conditions_need_a_study(capsys):
    assert main(["list", "--only", "seed=0"]) == 2
    assert "--only must follow the study" in capsys.readouterr().err


def test_a_download_needs_a_folder(tmp_path, capsys):
    assert main(["run", "refinement", "--download", "--records", str(tmp_path / "records.jsonl")]) == 2
    assert "--data FOLDER" in capsys.readouterr().err


def test_a_download_is_of_the_data_of_the_selected_cells(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("experiments.__main__.download", lambda reader, folder: asked.append((reader.name, folder)))
    arguments = ["--data", str(tmp_path), "--records", str(tmp_path / "records.jsonl"), "--device", "cpu"]
    assert main(["run", "overconfidence", "--download", "--only", "data=svhn", *arguments]) == 2
    assert asked == [("svhn", tmp_path)]
    assert "svhn needs train_32x32.mat" in capsys.readouterr().err
