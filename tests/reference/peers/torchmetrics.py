"""torchmetrics: binned errors, in float32."""

from collections.abc import Iterator

import numpy as np
import torch
from question import ROUNDED_TO_FLOAT32, Question, WrongAnswer, said, tensors
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

PEER = "torchmetrics"

_PHANTOM_BIN = {"ties": "confidences of 1.0 fall in the peer's phantom bin"}

QUESTIONS = tuple(
    Question(
        metric,
        f"multiclass_calibration_error(probs, labels, num_classes=k, n_bins=15, norm='{norm}')",
        lambda data, norm=norm: multiclass_calibration_error(
            *tensors(data), num_classes=data.n_classes, n_bins=15, norm=norm
        ).item(),
        # Whatever comes in, the peer casts confidences to float32 before it bins them.
        tolerance=ROUNDED_TO_FLOAT32,
        options={"n_bins": 15},
        left_out=_PHANTOM_BIN,
    )
    for metric, norm in (("ece", "l1"), ("mce", "max"))
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    probs, labels = [[1.0, 0.0], [0.95, 0.05]], [1, 0]
    yield WrongAnswer(
        case="confidence of 1.0 falls in a phantom bin",
        call="multiclass_calibration_error(probs, labels, num_classes=2, n_bins=15)",
        right=0.475,
        derivation="both rows lie in the last bin: |mean confidence 0.975 - accuracy 0.5|; "
        "apart they give (|1 - 0| + |0.95 - 1|)/2 = 0.525",
        answer=said(
            lambda: multiclass_calibration_error(torch.tensor(probs), torch.tensor(labels), num_classes=2, n_bins=15)
        ),
        metric="ece",
        options={"n_bins": 15},
        rows={"confidence": [1.0, 0.95], "correct": [0, 1]},
    )
    # 53/64 is exact in float32, so rounding of the confidence itself plays no part.
    confidence, correct, times = [0.828125] * 3, [0, 1, 1], 1_333_333
    yield WrongAnswer(
        case="sums in float32 over four million rows",
        call="binary_calibration_error(confidence.float(), correct, n_bins=15)",
        right=0.828125 - 2 / 3,
        derivation="one bin: |confidence 53/64 - accuracy 2/3|",
        answer=said(
            lambda: binary_calibration_error(
                torch.tensor(confidence).repeat(times), torch.tensor(correct).repeat(times), n_bins=15
            )
        ),
        metric="ece",
        options={"n_bins": 15},
        rows={"confidence": confidence, "correct": correct, "times": times},
    )
    rounded = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [1.0000001, 0.0]]
    yield WrongAnswer(
        case="one probability of 1.0000001 turns all probabilities into logits",
        call="multiclass_calibration_error(probs, labels, num_classes=2, n_bins=15)",
        right=None,
        derivation="a probability above 1 is an error of the input, to be named; with 1.0 in its place the error is "
        "(0.1 + 0.2 + 0.7 + 0.0)/4 = 0.25",
        answer=said(
            lambda: multiclass_calibration_error(
                torch.tensor(rounded), torch.tensor([0, 0, 1, 0]), num_classes=2, n_bins=15
            )
        ),
        metric="ece",
        options={"n_bins": 15},
        rows={"probs": rounded, "labels": [0, 0, 1, 0]},
    )
    yield from _plug_in_bias()


def _plug_in_bias() -> Iterator[WrongAnswer]:
    generator = np.random.default_rng(0)
    for n, draws in ((200, 200), (1_000, 100), (5_000, 50)):

        def one(n: int = n) -> float:
            confidence = generator.uniform(0.5, 1, n)
            correct = generator.random(n) < confidence
            # The column of the answer that was given; label 1 where it was right.
            probs = torch.from_numpy(np.stack([1 - confidence, confidence], axis=1))
            labels = torch.from_numpy(correct.astype(np.int64))
            return multiclass_calibration_error(probs, labels, num_classes=2, n_bins=15).item()

        yield WrongAnswer(
            case=f"plug-in ECE of a perfectly calibrated model, {n} rows",
            call=f"mean of multiclass_calibration_error(..., n_bins=15) over {draws} draws, confidence ~ U(0.5, 1)",
            right=0.0,
            derivation="not an error of the sum but of silence: the truth is 0 and nothing says so",
            answer=float(np.mean([one() for _ in range(draws)])),
        )
