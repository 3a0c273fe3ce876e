"""Words for a comparison that recommends no method."""

from calibrant.comparison import Comparison, WhyUncalibrated
from calibrant.report.comparison.phrases import ENOUGH

__all__ = ["headline_for_nothing", "step_for_nothing"]


def headline_for_nothing(board: Comparison) -> str:
    """The headline of a comparison that recommends no method."""
    tried = len(board.fitted) - 1
    none = f"{'no method' if tried == 1 else f'none of {tried} methods'} lowers the log-loss {ENOUGH}."
    if board.cautions and len(board.fitted) > 1:
        return f"These two sets do not carry any advice, as said below: {none}"
    assert board.why_uncalibrated is not None, "no method is recommended"
    return {
        WhyUncalibrated.nothing_helps: f"Leave the predictions as they are: {none}",
        WhyUncalibrated.too_few_samples: f"Too few test rows to tell whether anything helps: {none}",
        WhyUncalibrated.nothing_fitted: "Nothing to compare: no method could be fitted on the calibration rows.",
    }[board.why_uncalibrated]


def step_for_nothing(board: Comparison) -> str:
    """The next step after a comparison that recommends no method."""
    assert board.why_uncalibrated is not None, "no method is recommended"
    return {
        WhyUncalibrated.nothing_helps: "Leave the confidence as it is; recalibrating could only add noise.",
        WhyUncalibrated.too_few_samples: (
            "Compare on more test rows before deciding; until then leave the confidence as it is."
        ),
        WhyUncalibrated.nothing_fitted: "Fit on other rows: the reasons below the table say what they must have.",
    }[board.why_uncalibrated]
