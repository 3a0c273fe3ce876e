"""netcal: binned and kernel errors, right on float64 without ties."""

from collections.abc import Callable, Iterator
from typing import Any

import netcal.binning
import netcal.metrics
import netcal.scaling
import numpy as np
from cases import IMPOSSIBLE, TIED, best_temperature, share_impossible
from data import DATASETS, Dataset
from numpy.typing import NDArray
from question import EVEN_BINS, Question, WrongAnswer, said

PEER = "netcal"


def _netcal(measure: Any) -> Callable[[Dataset], float]:
    # With two labels the peer takes the class-1 column; confidence and correctness say the top label is meant.
    return lambda data: measure.measure(data.confidence, data.correct.astype(int))


QUESTIONS = (
    Question(
        "ece",
        "ECE(bins=15).measure(confidence, correct), float64",
        _netcal(netcal.metrics.ECE(bins=15)),
        options={"n_bins": 15},
    ),
    Question(
        "mce",
        "MCE(bins=15).measure(confidence, correct), float64",
        _netcal(netcal.metrics.MCE(bins=15)),
        options={"n_bins": 15},
    ),
    Question(
        "ace",
        f"ECE(bins={EVEN_BINS}, equal_intervals=False).measure(confidence, correct), float64",
        _netcal(netcal.metrics.ECE(bins=EVEN_BINS, equal_intervals=False)),
        options={"n_bins": EVEN_BINS},
        left_out={"ties": "the peer raises: two of its edges coincide"},
    ),
    Question(
        "mmce",
        "MMCE().measure(probs, labels), float64",
        lambda data: netcal.metrics.MMCE().measure(data.probs, data.labels),
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    tied = {name: np.array(column) for name, column in TIED["rows"].items()}
    yield WrongAnswer(
        case="equal-mass bins of tied confidences",
        call="ECE(bins=5, equal_intervals=False).measure(confidence, correct)",
        answer=said(
            lambda: netcal.metrics.ECE(bins=5, equal_intervals=False).measure(tied["confidence"], tied["correct"])
        ),
        options={"n_bins": 5},
        **TIED,
    )
    probs, labels = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.6, 0.1]], [0, 1, 0]
    yield WrongAnswer(
        case="a class without labels",
        call="ECE(bins=15).measure(probs, labels)",
        right=(0.3 + 0.2 + 0.6) / 3,
        derivation="three rows in three bins: (|0.7 - 1| + |0.8 - 1| + |0.6 - 0|)/3",
        answer=said(lambda: netcal.metrics.ECE(bins=15).measure(np.array(probs), np.array(labels))),
        metric="ece",
        options={"n_bins": 15},
        rows={"probs": probs, "labels": labels},
    )
    data = DATASETS["overconfident"]()

    def temperature(probs: NDArray[Any]) -> float:
        scaling = netcal.scaling.TemperatureScaling()
        scaling.fit(probs, data.labels)
        return 1 / np.asarray(scaling.temperature).item()

    yield WrongAnswer(
        case="temperature scaling of float32 probabilities",
        call="TemperatureScaling().fit(probs.astype(float32), labels), data set overconfident",
        answer=said(lambda: temperature(data.probs.astype(np.float32))),
        **best_temperature(data.logits, data.labels),
    )
    confidence, correct = np.full(10, 0.5), np.array([1] * 8 + [0] * 2)
    yield WrongAnswer(
        case="histogram binning counts a confidence on an edge in one bin and reads it from another",
        call="HistogramBinning(bins=10).fit(confidence, correct).transform(confidence), ten times 0.5",
        right=0.8,
        derivation="all rows are in one bin, and eight of ten are hits; the empty bin below has its middle, 0.45",
        answer=said(
            lambda: netcal.binning.HistogramBinning(bins=10).fit(confidence, correct).transform(confidence[:1])[0]
        ),
    )
    for method, kind in (
        ("isotonic", netcal.binning.IsotonicRegression),
        ("histogram binning", netcal.binning.HistogramBinning),
    ):
        yield WrongAnswer(
            case=f"{method} one-vs-rest gives the true class probability 0",
            call=f"{kind.__name__}().fit(probs, labels), float64: share of held-out rows",
            answer=said(lambda kind=kind: _share_impossible(kind())),
            **IMPOSSIBLE,
        )


def _share_impossible(calibrator: Any) -> float:
    data = DATASETS["overconfident"]()
    probs = calibrator.fit(data.probs[:500], data.labels[:500]).transform(data.probs[1_000:])
    return share_impossible(probs, data.labels[1_000:])
