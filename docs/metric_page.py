"""The page of metrics, from their docstrings."""

import inspect
import re

from calibrant import catalogue
from calibrant.metrics import Metric
from calibrant.report.evaluation import FAMILIES

INTRODUCTION = """\
# Metrics: what each number is, and when it misleads

<!-- Written by `make docs` from the docstrings; edit those. -->

Notation: sample i has probabilities p_i, predicted class ŷ_i = argmax p_i, confidence c_i = max p_i, and correctness
a_i = 1 if ŷ_i is the label y_i, else 0. There are n samples, k classes and b bins. acc and conf are the means of a and
c in a bin.

**Bins** have edges (lo, hi]; 0 goes to the first, 1 to the last; there are 15 by default. A number within 2.4e-7 above
an edge counts as lying on it, because float32 cannot represent 0.2. **Ties** are exchangeable: no number depends on the
order of the samples. **Confidence near 1** is ranked by its log-odds, because a third of a good network's float32
confidences are exactly 1.0. A **probability of exactly 0** is read as 1e-30 in every type; the log-loss counts the true
class as 1e-15 at least, and a warning says where one was given 0, since without that floor the log-loss is infinite.
All other numbers take the probabilities unchanged. The report counts the zeros.

**Intervals** are 95 % and come from a bootstrap of the metric's state (1,000 draws; the L2 debiased error has an
analytic one, accuracy has Wilson's). Noise inflates every plug-in calibration error; resampling and the noise floor
show by how much, and the interval is corrected for it. It is therefore an interval for the *true* error: it can lie
below the plain value, and it reaches down to 0 unless p is at most .05. In simulations with 500 samples of models that
are calibrated, a little and strongly overconfident it covers the truth in at least 86 % of cases; with more bins and
classes than samples to fill them, as SCE of 100 classes and 2,000 samples, it does not. The areas and rates of ranked
samples (`auroc`, `aurc`, ...) have an interval from the influence of every
sample instead, on the log-odds scale, because resampling a few errors underestimates their uncertainty: with 50 errors
in 1,000 samples it covers the truth in at least 93 % of cases. Those of skewed means, as log-losses and Brier scores,
and of differences in them, are bias-corrected and accelerated (Efron, 1987); differences of ranks have the spread of
Student's t for the right or wrong samples, whichever are fewer. **Noise floor**: the mean value for perfectly
calibrated models with the same confidences, by redrawing the labels from the predicted probabilities. **p**: the share
of those whose value is at least as large.

Which to use? **Select** models and calibrators by a proper score (`nll` or `brier`): a method that destroys information
can still have a low calibration error. **Report** `ece` with its floor, because readers know it; `smece` or
`ece_l1_debiased` where bins or bias are in doubt; `sce`, `tl_ece` or `skce` if more than the top label matters.
**Always** report `auroc` or `e_aurc` beside them: a model can be perfectly calibrated and unable to separate right from
wrong predictions.

Four more functions decompose scores: `corp` (top-label Brier and log-loss = miscalibration − discrimination +
uncertainty, exactly, by isotonic regression, without bins; with the noise floor of the miscalibration), `murphy`
(top-label Brier = reliability − resolution + uncertainty + within-bin terms, exactly), `calibration_refinement`
(log-loss and Brier split by a cross-fitted temperature), and `refinement_terms` (the terms of equation 9 of "On the
Dark Side of Calibration", which is not an identity, beside what is).
"""


def metric_page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for family, heading in FAMILIES.items():
        parts.append(f"## {heading}\n")
        parts += [entry(metric) for metric in catalogue.metrics.values() if metric.family == family]
    return "\n".join(parts)


def entry(metric: Metric) -> str:
    """Return the entry of one metric, from its docstring."""
    text = inspect.cleandoc(metric.__doc__ or "")
    summary, *sections = re.split(r"^(Formula|Estimator|Bias|Cost): ", text, flags=re.MULTILINE)
    fields = dict(zip(sections[::2], sections[1::2], strict=True))
    better = {True: "lower is better", False: "higher is better", None: "neither high nor low is better"}
    lines = [f"### `{metric.name}`: {metric.title}", "", " ".join(summary.split()), ""]
    paper = metric.paper
    where = f", {paper.where}" if paper.where else ""
    source = f"{paper.short}, {paper.link}{where}"
    lines += [f"*{better[metric.lower_is_better].capitalize()}.* {source}.", ""]
    for name, value in fields.items():
        body = " ".join(value.split())
        lines.append(f"- **{name}**: {f'`{body}`' if name == 'Formula' else body}")
    return "\n".join(lines) + "\n"
