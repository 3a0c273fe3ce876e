"""Studies that were run before the runner: listed, checked and tabulated, and never run again."""

import pytest
from experiments.__main__ import main
from experiments.earlier import EARLIER
from experiments.runner import Place

from calibrant.errors import InputError


@pytest.mark.parametrize("study", EARLIER, ids=lambda study: study.name)
def test_every_cell_has_its_record_and_nothing_is_left_to_run(study, tmp_path, capsys):
    cells = study.cells(quick=False)
    assert len({cell.key for cell in cells}) == len(cells) > 0
    copied = tmp_path / "records.jsonl"
    copied.write_bytes((study.folder / "records.jsonl").read_bytes())
    assert main(["check", study.name]) == 0
    assert main(["run", study.name, "--device", "cpu", "--records", str(copied)]) == 0
    assert "0 to run" in capsys.readouterr().out


@pytest.mark.parametrize("study", EARLIER, ids=lambda study: study.name)
def test_a_cell_without_a_record_cannot_be_run(study):
    with pytest.raises(InputError, match="history"):
        study.prepare(Place(device="cpu", commit="x"), [], quick=False)


def test_a_run_without_records_says_where_the_program_is(tmp_path, capsys):
    assert main(["run", "training", "--device", "cpu", "--records", str(tmp_path / "records.jsonl")]) == 2
    assert "history" in capsys.readouterr().err


def test_a_study_without_a_small_grid_says_so(capsys):
    assert main(["run", "meta", "--quick"]) == 2
    err = capsys.readouterr().err
    assert "meta has its records alone" in err
    assert "(neural-clamping, " in err  # the studies that have a small grid
