"""The pages of the studies are what their records say."""

import importlib
import json
from pathlib import Path

import pytest
from experiments.__main__ import STUDIES
from experiments.conclusions import PAGE, page_of_results
from experiments.overconfidence.results import numbers_of
from experiments.records import Records
from experiments.reproduce import GUIDE, page_of_guide
from experiments.runner import finished

ROOT = Path(__file__).parents[2]


RUN = [study for study in STUDIES.values() if (study.folder / "records.jsonl").exists()]


@pytest.mark.parametrize("study", RUN, ids=lambda study: study.name)
def test_the_page_of_a_paper_is_the_one_its_records_give(study):
    done, _ = finished(study.cells(quick=False), Records(study.folder / "records.jsonl").read())
    page = ROOT / "docs" / study.page_name
    assert page.read_text(encoding="utf-8") == study.page(list(done.values()), images=None), (
        f"run `python -m experiments table {study.name}`"
    )


def test_the_conclusions_are_what_the_records_of_all_studies_give(tmp_path):
    page = page_of_results(images=tmp_path)
    assert PAGE.read_text(encoding="utf-8") == page, "run `python -m experiments results`"
    figures = sorted(path.name for path in tmp_path.iterdir())
    assert len(figures) == 5
    assert all(f"(images/{name})" in page and (PAGE.parent / "images" / name).exists() for name in figures)


def test_the_conclusions_compare_losses_on_whole_training_sets():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("| [ResNet-32, CIFAR-10]"))
    records = Records(ROOT / "experiments" / "overconfidence" / "records.jsonl").read()
    whole = numbers_of([each for each in records if "train_samples" not in each["cell"] and "numbers" in each])
    errors = [f"{whole[f'cifar10.{method}.none.ece'].value:.1f}" for method in ("CE", "LS (0.05)", "Focal (3)")]
    assert [line.split(" | ")[4].strip("*") for line in lines[first : first + 3]] == errors


def test_the_page_of_commands_is_what_the_studies_and_their_records_give():
    assert GUIDE.read_text(encoding="utf-8") == page_of_guide(list(STUDIES.values())), (
        "run `python -m experiments reproduce`"
    )


def test_the_page_of_the_tabular_study_is_the_one_its_records_give(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("benchmarks.tabular_page")
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    lines = (ROOT / "benchmarks" / "tabular.jsonl").read_text(encoding="utf-8").splitlines()
    module.write_page([json.loads(line) for line in lines])
    written = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert written == (ROOT / "docs" / "tabular-study.md").read_text(encoding="utf-8")
