"""``docs/reproduce.md``: the command, the data and the recorded time of every table that has a study."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from shlex import quote
from statistics import mean

from calibrant import catalogue
from experiments.page import joined, table
from experiments.posthoc_maps.networks import OTHER_DIVISION, PUBLISHED
from experiments.records import Record, Records
from experiments.runner import Cell, Study, Table, finished, selected

__all__ = ["GUIDE", "device_seconds", "page_of_guide"]

GUIDE = Path(__file__).parents[1] / "docs" / "reproduce.md"
INTRODUCTION = """
# Reproduce a table

<!-- Written by `python -m experiments reproduce` from the studies and their records. -->

A study is a grid of cells: a network or a fit, with its seed and everything else that decides its numbers. `run` runs
the cells that have no record and appends one line of JSON for each as it ends, so that a run which was stopped resumes;
`table` writes the study's page and figures from the records alone; `check` holds them against the paper's numbers and
claims. In a clone of the repository:

```sh
pip install -e '.[download]'
python -m experiments list                    # the studies
python -m experiments run refinement --quick  # a small grid on bundled data, on a CPU: does it run here?
python -m experiments list refinement         # the cells, and which have a record
```

Name a file of your own by `--records`, as below: without it the records are those of the repository, whose cells are
not run again. `--together 4` trains four networks of one data set side by side on one GPU, `--workers 2` runs two cells
in processes of their own, `--minutes 50` begins no cell after that time, `--device cuda:1` names the device. A cell
that failed has a record with its error and runs again. `check` prints a verdict for every published number that your
records have, and ends with status 1 where one contradicts that of our records.

Times are those of our records: what a device spent, divided among the cells that ran on it at once. That of all cells
of a table is given where every network and data set of it has a record.
"""
# Beside data sets that have a reader: name, files, where they are from, and for what.
_TABLE_3 = "refinement, Table 3"
_WEIGHTS = {"torchvision": "https://download.pytorch.org/models", "timm": "https://huggingface.co/timm"}
BESIDE = (
    (
        "CIFAR-10.1",
        "`cifar10.1_v6_data.npy`, `cifar10.1_v6_labels.npy`",
        "https://github.com/modestyachts/CIFAR-10.1",
        _TABLE_3,
    ),
    ("CIFAR-10.2", "`cifar102_test.npz`", "https://github.com/modestyachts/cifar-10.2", _TABLE_3),
    (
        "CINIC-10, not in the paper",
        "`cinic10_sample.npz` with `images` and `labels`: 32 x 32 images from its ImageNet part",
        "https://datashare.ed.ac.uk/handle/10283/3192",
        _TABLE_3,
    ),
    (
        "ImageNet-v2",
        "`imagenetv2-matched-frequency-format-val`, unpacked: a folder for each class number",
        "https://github.com/modestyachts/ImageNetV2",
        _TABLE_3,
    ),
    (
        "ImageNet, validation part alone",
        "`val/<wnid>/`, also inside `imagenet`: the 50,000 pictures of `ILSVRC2012_img_val.tar`, in folders",
        "https://image-net.org/download.php",
        "posthoc-maps, Table 3",
    ),
    *(
        (
            f"{network}, {made.origin}",
            f"`{made.file}`",
            _WEIGHTS[made.origin.partition(",")[0]],
            "posthoc-maps, Table 3",
        )
        for network, made in PUBLISHED.items()
    ),
    (
        "BloodMNIST in another division",
        f"`{OTHER_DIVISION}`, laid out as `bloodmnist.npz`; not published",
        "https://medmnist.com",
        "posthoc-maps, `division=other`",
    ),
)
DATA = """
Put the publishers' files into one folder, packed as they are, and name it by `--data`; `--download` fetches those with
a name in the first column. What is missing is named before a cell begins. The files of refinement's Table 3 must be
there when its networks are trained: without them their records lack these numbers. ImageNet is not at hand here: its
cells are tried on a few made pictures, and the commands below leave them out until you add `--only data=imagenet`, or
the conditions of a table. Its pictures are read in batches: memory holds a few of these. A network whose training is
stopped resumes from a state that is at most a minute old, beside the records or in the folder that `--networks` names;
`calibrant train --dataset imagenet` resumes after its last epoch. Studies that are not in the last column need
no files: the network of Neural Clamping, a ResNet-110, and its predictions are in the repository. The networks of
posthoc-maps are trained once for all their cells, into a folder beside the records or one that `--networks` names; such
a training resumes after its last epoch, and a fit of Neural Clamping after its last minute.
"""
# Tables without a study, and what is missing.
ABSENT = (
    (
        "Meta-Regularization, Table 3, Patra et al. (2023)",
        "copied there from their paper, whose weights and pruning schedule are not public",
    ),
)


def page_of_guide(studies: Sequence[Study]) -> str:
    """Return the page, of the studies that have tables."""
    studies = [study for study in studies if study.tables]
    parts = [INTRODUCTION, _data(studies)]
    ordered = sorted(studies, key=_paper)
    for paper, own in groupby(ordered, key=_paper):
        parts += [f"## {paper}", *(_section(study) for study in own)]
    return joined([*parts, table("Tables without a study", ["table", "what is missing"], ABSENT)])


def _paper(study: Study) -> str:
    return study.title.partition(":")[0]


def _names(study: Study) -> list[str]:
    """Return the data sets that are not bundled."""
    return list(
        dict.fromkeys(str(cell.settings["data"]) for cell in study.cells(quick=False) if "data" in cell.settings)
    )


def _data(studies: Sequence[Study]) -> str:
    rows = []
    for name in dict.fromkeys(name for study in studies for name in _names(study)):
        reader = catalogue.datasets.parse(name)
        files = ", ".join(
            f"`{file.name}`" + (f" ({file.size / 1e6:,.0f} MB)" if file.size else "") for file in reader.remote
        )
        files = files or f"none to download: {reader.why_no_remote}"
        users = ", ".join(study.name for study in studies if name in _names(study))
        rows.append([f"`{name}`", reader.title, files, f"<{reader.homepage}>", users])
    rows += [["", title, files, f"<{source}>", users] for title, files, source, users in BESIDE]
    return f"{table('Data', ['name', 'data set', 'files', 'from', 'for'], rows)}\n{DATA}"


def _section(study: Study) -> str:
    names = _names(study)
    data = " --data data --download" if names else ""
    fetched = [name for name in names if catalogue.datasets.parse(name).remote]
    data += "".join(f" --only data={name}" for name in fetched) if len(fetched) < len(names) else ""
    data += "".join(f" --only {quote(condition)}" for condition in study.fetched)
    own = f"--records mine/{study.name}.jsonl"
    records = Records(study.folder / "records.jsonl").read()
    page = f" Our records: [{study.page_name}]({study.page_name})." if records else " There are no records of it yet."
    cells = study.cells(quick=False)
    done, _ = finished(cells, records)
    seconds = device_seconds(list(done.values()))
    rows = [_row(entry, cells, done, seconds) for entry in study.tables]
    heads = ["what", "add to `run`", "cells", "with a record", "time of these", "time of all", "device"]
    return f"""
#{table(f"`{study.name}`", heads, rows)}

```sh
python -m experiments run {study.name}{data} {own}
python -m experiments table {study.name} {own} --out mine
python -m experiments check {study.name} {own}
```

{page.strip()}"""


def _row(what: Table, cells: Sequence[Cell], done: Mapping[str, Record], seconds: Mapping[str, float]) -> list[str]:
    own = selected(cells, what.only)
    kinds: dict[tuple[object, ...], list[float]] = {_kind(cell): [] for cell in own}
    for cell in own:
        kinds[_kind(cell)] += [seconds[cell.key]] if cell.key in seconds else []
    spent = sum(map(sum, kinds.values()))
    whole = sum(mean(kinds[_kind(cell)]) for cell in own) if all(kinds.values()) else None
    devices = ", ".join(sorted({done[cell.key]["device"] for cell in own if cell.key in seconds}))
    only = " ".join(f"--only {quote(condition)}" for condition in what.only)
    counts = [str(len(own)), str(sum(cell.key in done for cell in own))]
    return [what.title, f"`{only}`" if only else "", *counts, _time(spent), _time(whole or 0.0), devices]


def _kind(cell: Cell) -> tuple[object, ...]:
    """Return what decides about how long a cell takes."""
    return tuple(cell.settings.get(name) for name in ("data", "network", "train_samples"))


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds else ""
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def device_seconds(records: Sequence[Record]) -> dict[str, float]:
    """Return how long the device worked for each cell, by its key: time is divided among the cells that run at once.

    Args:
        records: With ``seconds`` and ``finished``; others are left out.
    """
    spans = {}
    for record in records:
        if "finished" in record:
            end = datetime.fromisoformat(record["finished"]).timestamp()
            spans[Cell(record["cell"]).key] = (end - record["seconds"], end)
    shares = dict.fromkeys(spans, 0.0)
    for begin, end in pairwise(sorted({time for span in spans.values() for time in span})):
        running = [key for key, (first, last) in spans.items() if first <= begin and end <= last]
        for key in running:
            shares[key] += (end - begin) / len(running)
    return shares
