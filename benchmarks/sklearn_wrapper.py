"""CalibratedClassifier beside scikit-learn's CalibratedClassifierCV, both with one temperature, on digits."""

import platform
from functools import partial

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks.bounds import Bound
from benchmarks.timing import in_turns
from calibrant.integrations.sklearn import CalibratedClassifier

__all__ = ["report"]

MOST = 1.2
CLOSE = 1e-6


def report() -> str:
    """The section of the results."""
    features, labels = load_digits(return_X_y=True)
    features, estimator = features / 16, LogisticRegression()
    about = (
        "Processor seconds to fit a logistic regression and its temperature in five folds; the largest difference of "
        "any probability. Defaults differ: ours trains the estimator once more, on all samples, and keeps one model."
    )
    lines = [
        f"## A temperature in a classifier of scikit-learn, digits, on one thread of {platform.machine()}",
        "",
        about,
        "",
        "| | ours | CalibratedClassifierCV | ratio | difference |",
        "|---|---|---|---|---|",
    ]
    bounds = []
    for ours, theirs in ((False, False), (True, True), (False, True)):
        a = CalibratedClassifier(estimator, method="temperature", ensemble=ours)
        b = CalibratedClassifierCV(estimator, method="temperature", ensemble=theirs, cv=5)
        times = in_turns({"ours": partial(a.fit, features, labels), "theirs": partial(b.fit, features, labels)})
        ratio = times["ours"] / times["theirs"]
        name, difference = "both defaults", "-"
        if ours == theirs:
            name = f"ensemble={ours}"
            error = float(np.abs(a.predict_proba(features) - b.predict_proba(features)).max())
            difference = f"{error:.0e}"
            bounds.append(Bound(f"times CalibratedClassifierCV, {name}", ratio, at_most=MOST))
            bounds.append(Bound(f"difference of probabilities, {name}", error, at_most=CLOSE))
        lines.append(f"| {name} | {times['ours']:.3f} | {times['theirs']:.3f} | **{ratio:.2f}** | {difference} |")
    return "\n".join([*lines, "", *map(str, bounds)]) + "\n"
