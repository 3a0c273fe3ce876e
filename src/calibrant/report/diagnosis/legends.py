"""What must be said below a diagnosis' tables for them not to mislead; once for the terminal and the page."""

from calibrant import catalogue
from calibrant.diagnosis import Diagnosis, ShiftPanel
from calibrant.diagnosis.refinement import NOT_AN_IDENTITY

__all__ = [
    "COEFFICIENTS",
    "DIRECTION",
    "EPOCHS",
    "EQUATION_9",
    "LEARNED",
    "LOSSES",
    "REFINEMENT",
    "SPLITS",
    "calibratability_legend",
    "marks_legend",
    "shift_legend",
    "sizes_legend",
]

_BLIND = "not corrected, and blind to the noise of rows"  # what such a t-test is

LOSSES = "After so many epochs; mean over runs, and the range of runs. γ is that of the rows set apart to calibrate."
REFINEMENT = (
    "auroc as it is and after each map: a temperature hardly changes the order of confidences, bins lose some of it. "
    "aupr and aurc depend on accuracy: compare them among candidates of the same. A map that changes answers, as svs "
    "does, makes another classifier: its ece and auroc go with its own accuracy."
)
SPLITS = (
    "By a temperature that is cross-fitted on the test rows: calibration is what it mends, refinement what remains. A "
    "richer map would find more to mend."
)
EQUATION_9 = (
    f"{NOT_AN_IDENTITY[0].upper()}{NOT_AN_IDENTITY[1:]} Reliability, resolution and uncertainty are Murphy's, of the "
    "top-label Brier score; refinement is uncertainty − resolution."
)
DIRECTION = (
    "Mean confidence − accuracy: overconfident above 0, underconfident below, neither where the 95 % interval holds 0. "
    "It is 0, too, where confident answers claim too much and modest ones too little."
)
COEFFICIENTS = "Chosen off such a curve, which is of test rows, the best coefficient flatters."
EPOCHS = (
    "The lowest ECE that any temperature would give on the test rows, after so many epochs: an oracle's. The lowest of "
    "many noisy numbers is too low, so a small rise to the end is nothing."
)
LEARNED = (
    "Top logits of training rows, by the epoch from which they were answered right to the end. The rank correlation of "
    "epoch and logit is clearly negative where the network still tells hard rows from easy ones."
)


def calibratability_legend(found: Diagnosis) -> str:
    """Below the ECEs."""
    seeds = " Mean ± standard deviation over seeds." if _has_seeds(found) else ""
    return (
        f"ECE with {found.n_bins} bins: as the network is, then after each map, fitted on its calibration rows"
        f"{_unusual(found)}. "
        f"optimal: the lowest of any temperature, searched on the test rows; an oracle, and no method.{seeds}"
    )


def marks_legend(found: Diagnosis) -> str:
    """What the marks mean; empty where there are none."""
    if not found.verdicts:
        return ""
    covers = {verdict.raw_ece.covers_seeds for verdict in found.verdicts}
    seeds = ", and of seeds where either has several runs" if len(covers) > 1 else " and of seeds" * any(covers)
    corrected = f", corrected for {len(found.verdicts)} comparisons (Holm)" if len(found.verdicts) > 1 else ""
    said = f"✓ better, ✗ worse than {found.baseline} on the same rows beyond the noise of rows{seeds}{corrected}."
    if not any(test.note is None for each in found.calibratability for test in each.t_tests.values()):
        return said
    return (
        f"{said} ▲ higher, ▼ lower than {found.baseline} by a t-test of runs at .05, as in Wang et al. 2021: {_BLIND}."
    )


def sizes_legend(found: Diagnosis) -> str:
    """Below the curves over calibration rows."""
    draws = found.validation_sizes[0].draws
    return (
        f"ECE after maps fitted on so many calibration rows, mean over runs and {draws} draw{'s' * (draws > 1)}; the "
        "last column is all of them, once."
    )


def shift_legend(panel: ShiftPanel) -> str:
    """Below the tables of shifts."""
    said = (
        "Nothing is fitted on shifted rows: the maps are those of the clean calibration rows. Severity 3 of one "
        "corruption is not as bad as severity 3 of another."
    )
    if any(test.note is None for level in panel.levels for test in level.t_tests.values()):
        said += f" ▲ higher, ▼ lower than {panel.baseline} there by a t-test of runs at .05: {_BLIND}."
    if any(row.differences for row in panel.rows):
        said += f" ✓ better, ✗ worse than {panel.baseline} on the rows of a file, as above."
    return said


def _unusual(found: Diagnosis) -> str:
    """The options of maps that are not as a person gets them by the name alone."""
    known = catalogue.calibrators
    told = [
        f"{name} with {option} {value}"
        for name, options in found.map_settings.items()
        for option, value in options.items()
        if name in known and value != known[name].settings()[option]
    ]
    return f" ({', '.join(told)})" if told else ""


def _has_seeds(found: Diagnosis) -> bool:
    return any(len(each.seeds) > 1 for each in found.candidates)
