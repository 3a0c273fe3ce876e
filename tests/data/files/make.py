"""Write thirty files of predictions as people have them: one model of three classes, one of two, in every usual form.

``write_files(folder)`` returns, for every file, the arguments of ``calibrant evaluate`` that read it.
"""

import gzip
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file

N, NAMES = 60, ("cat", "dog", "eel")
_rng = np.random.default_rng(17)
LABELS = _rng.integers(0, 3, N)
LOGITS = np.round(_rng.normal(size=(N, 3)) + 1.5 * np.eye(3)[LABELS], 3)
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
WORDS = [NAMES[label] for label in LABELS]
POSITIVE = _rng.integers(0, 2, N)
P = np.round(1 / (1 + np.exp(-_rng.normal(size=N) - 2.0 * POSITIVE + 1.0)), 6)
FOLDS = ["val" if row % 3 == 0 else "test" for row in range(N)]


def _table(header: str, columns: Iterable[Iterable[Any]], mark: str = ",") -> str:
    rows = zip(*columns, strict=True)
    return "\n".join([header.replace(",", mark), *(mark.join(map(str, row)) for row in rows)]) + "\n"


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _columns(prefix: str, names: Iterable[Any], values: Any = PROBS) -> dict[str, Any]:
    return {f"{prefix}{name}": column for name, column in zip(names, values.T, strict=True)}


def _hugging_face(folder: Path) -> None:
    folder.mkdir()
    table = pa.table({"text": ["x"] * N, "logits": LOGITS.tolist(), "label": LABELS})
    data = folder / "data-00000-of-00001.arrow"
    with pa.OSFile(str(data), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    names = {"label": {"names": list(NAMES), "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": names}))
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0", "_split": "test"}
    (folder / "state.json").write_text(json.dumps(state))


def _text(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())

    return write


def _npz(**arrays: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        path.write_bytes(stream.getvalue())

    return write


def _pair(path: Path) -> None:
    np.save(path, PROBS)
    np.save(path.with_name("y_test.npy"), LABELS)


def _two_logits(path: Path) -> None:
    np.save(path, LOGITS)
    np.save(path.with_name("targets.npy"), LABELS.astype(float)[:, None])


def _parquet(table: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table, path)


# Of a model of three classes. Name: how the file is written, and how it is read.
_P3 = [*PROBS.T]
THREE: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "plain.csv": (_text(_table("prob_0,prob_1,prob_2,label", [*_P3, LABELS])), ()),
    "logits.csv": (_text(_table("logit_0,logit_1,logit_2,label", [*LOGITS.T, LABELS])), ()),
    "plural.csv": (_text(_table("id,probs_0,probs_1,probs_2,label", [range(N), *_P3, LABELS])), ()),
    "from-one.csv": (_text(_table("prob_1,prob_2,prob_3,label", [*_P3, LABELS + 1])), ()),
    "float-labels.csv": (_text(_table("prob_0,prob_1,prob_2,label", [*_P3, LABELS.astype(float)])), ()),
    "class-names.csv": (
        _text(_table("cat,dog,eel,species", [*_P3, WORDS])),
        ("--probs", "--scores", "cat,dog,eel", "--labels", "species"),
    ),
    "bare-numbers.csv": (
        _text(_table(",0,1,2,y_true", [range(N), *_P3, LABELS])),
        ("--probs", "--scores", "[0-9]*", "--labels", "y_true"),
    ),
    "full-names.csv": (
        _text(_table("animal_cat,animal_dog,animal_eel,label", [*_P3, [f"animal_{word}" for word in WORDS]])),
        ("--probs", "--scores", "animal"),
    ),
    "percent.csv": (
        _text(_table("prob_0,prob_1,prob_2,label", [*(np.round(100 * column, 4) for column in _P3), LABELS])),
        ("--normalise",),
    ),
    "semicolon.csv": (_text(_table("prob_0,prob_1,prob_2,label", [*_P3, LABELS], ";")), ("--separator", ";")),
    "bar.csv": (_text(_table("prob_cat,prob_dog,prob_eel,label", [*_P3, WORDS], "|")), ("--separator", "|")),
    "tab.tsv": (_text(_table("prob_0,prob_1,prob_2,label", [*_P3, LABELS], "\t")), ()),
    "tab.tsv.gz": (_text(_table("prob_0,prob_1,prob_2,label", [*_P3, LABELS], "\t")), ()),
    "packed.csv.gz": (_text(_table("prob_cat,prob_dog,prob_eel,label", [*_P3, WORDS])), ()),
    "windows.csv": (_text("\ufeff" + _table("prob_0,prob_1,prob_2,label", [*_P3, LABELS]).replace("\n", "\r\n")), ()),
    "arrays.jsonl": (
        _text(_lines({"probs": p.tolist(), "label": int(y)} for p, y in zip(PROBS, LABELS, strict=True))),
        (),
    ),
    "objects.jsonl.gz": (
        _text(
            _lines({"scores": dict(zip(NAMES, p, strict=True)), "label": y} for p, y in zip(PROBS, WORDS, strict=True))
        ),
        ("--probs", "--scores", "scores.*"),
    ),
    "options.jsonl": (
        _text(
            _lines(
                {"question": "Which?", "logprobs": np.log(p).tolist(), "answer": "ABC"[y]}
                for p, y in zip(PROBS, LABELS, strict=True)
            )
        ),
        ("--labels", "answer", "--class-names", "A,B,C"),
    ),
    "arrays.npz": (_npz(logits=LOGITS.astype(np.float32), labels=LABELS.astype(np.uint8)), ()),
    "netcal.npz": (_npz(predictions=PROBS, ground_truth=LABELS[:, None]), ()),
    "words.npz": (_npz(probabilities=PROBS, targets=np.array(WORDS), class_names=np.array(NAMES)), ()),
    "scores.npy": (_pair, ("--probs", "--labels", "y_test.npy")),
    "test_logits.npy": (_two_logits, ("--labels", "targets.npy")),
    "frame.parquet": (_parquet(pa.table({**_columns("prob_", NAMES), "label": WORDS, "id": range(N)})), ()),
    "lists.parquet": (_parquet(pa.table({"logits": LOGITS.tolist(), "label": LABELS})), ()),
    "frame.feather": (
        lambda path: pyarrow.feather.write_feather(pa.table({**_columns("p", range(3)), "y": LABELS}), str(path)),
        ("--probs", "--scores", "p[0-9]", "--labels", "y"),
    ),
    "tensors.pt": (lambda path: torch.save({"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}, path), ()),
    "tensors.safetensors": (
        lambda path: save_file({"probs": torch.tensor(PROBS), "targets": torch.tensor(LABELS)}, path),
        (),
    ),
    "hugging-face": (_hugging_face, ()),
}
# Of a model of two classes: one probability per sample.
TWO: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "sklearn.csv": (
        _text(_table("y_pred_proba,target", [P, POSITIVE])),
        ("--positive", "y_pred_proba", "--labels", "target"),
    ),
    "words.csv": (
        _text(_table("p_fraud,label", [P, np.where(POSITIVE, "fraud", "fine")])),
        ("--positive", "p_fraud", "--positive-class", "fraud"),
    ),
    "signs.parquet": (
        _parquet(pa.table({"p": P, "label": 2 * POSITIVE - 1})),
        ("--positive", "p", "--positive-class", "1"),
    ),
    "netcal-binary.npz": (_npz(predictions=P, ground_truth=POSITIVE), ()),
}
# Only the confidence of the predicted class, and whether it is right; and two parts in one file.
TOP: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "language-model.jsonl": (
        _text(
            _lines(
                {"question": "Who?", "confidence": float(p.max()), "correct": bool(p.argmax() == y)}
                for p, y in zip(PROBS, LABELS, strict=True)
            )
        ),
        (),
    ),
    "verbal.csv": (
        _text(_table("conf,correct", [PROBS.max(1), np.where(PROBS.argmax(1) == LABELS, "yes", "no")])),
        ("--confidence", "conf"),
    ),
}
SPLIT: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "split.csv": (_text(_table("prob_0,prob_1,prob_2,label,fold", [*_P3, LABELS, FOLDS])), ("--split", "fold"))
}


def write_files(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write all files into a folder; return the arguments that read each."""
    read = {}
    for name, (write, arguments) in {**THREE, **TWO, **TOP, **SPLIT}.items():
        write(folder / name)
        read[name] = arguments
    return read
