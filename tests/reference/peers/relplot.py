"""relplot: smECE by its authors."""

from collections.abc import Iterator

import numpy as np
import relplot
from cases import CERTAIN_AND_WRONG
from question import COARSE_MESH, HALF_WEIGHT_AT_ONE, Question, WrongAnswer, said

PEER = "relplot"

QUESTIONS = (
    Question(
        "smece",
        "smECE(confidence, correct), reflected kernel (the default)",
        lambda data: relplot.smECE(data.confidence, data.correct.astype(float)),
        tolerance=COARSE_MESH,
        left_out=HALF_WEIGHT_AT_ONE,
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """The cases, with what the installed version says."""
    rows = CERTAIN_AND_WRONG["rows"]
    answer = said(lambda: relplot.smECE(np.array(rows["confidence"]), np.array(rows["correct"], dtype=float)))
    yield WrongAnswer(call="smECE(confidence, correct)", answer=answer, **CERTAIN_AND_WRONG)
