"""Structured vector and matrix scaling: beside probmetrics at a hundred classes, alone at a thousand."""

import time

import numpy as np

from benchmarks.bounds import Bound
from benchmarks.memory import peak_in_a_process_of_its_own, print_peak
from benchmarks.peers import Rows, rival_fits
from benchmarks.timing import in_turns
from calibrant import Predictions, catalogue
from calibrant.metrics import nll

__all__ = ["report"]

METHODS = ("svs", "sms")
# How much worse the test log-loss may be, and how much memory a thousand classes may take.
WORSE, GIGABYTES = 1e-3, 24


def report() -> str:
    """The section of the results."""
    bounds: list[Bound] = []
    beside = [_beside(method, bounds) for method in METHODS]
    alone = [_alone(method, bounds) for method in METHODS]
    about = (
        "Rows like those of a network (`Rows.like_a_network`), 5,000 x 100 to fit on and 20,000 to judge by. Peers get "
        "probabilities."
    )
    about_many_classes = (
        "At 25,000 x 1000, alone: processor seconds of the fit in this run, and its peak memory above the input, in a "
        "process of its own. The log-loss is on 5,000 other rows."
    )
    lines = [
        "## Structured vector and matrix scaling, from float32 logits",
        "",
        about,
        "",
        "| method | ours: test log-loss | peers: test log-loss, time in times ours |",
        "|---|---|---|",
        *beside,
        "",
        about_many_classes,
        "",
        "| method | seconds | memory | test log-loss | of temperature scaling |",
        "|---|---|---|---|---|",
        *alone,
    ]
    return "\n".join([*lines, "", *map(str, bounds)]) + "\n"


def _beside(method: str, bounds: list[Bound]) -> str:
    rows, judged = Rows.like_a_network(5_000, 100).prepare(), Rows.like_a_network(20_000, 100, seed=1)
    predictions = Predictions(rows.logits, rows.labels)
    fit = {name: (lambda run=run: run(rows)) for name, run in rival_fits(method).items()}
    times = in_turns({"ours": lambda: catalogue.parse_calibrator(method).fit(predictions[:]), **fit}, rounds=3)
    ours = nll(catalogue.parse_calibrator(method).fit(predictions).transform(Predictions(judged.logits, judged.labels)))
    words = []
    for name, run in rival_fits(method).items():
        theirs = _log_loss(run(rows)(judged), judged)
        words.append(f"{name} {theirs:.5f}, {times[name] / times['ours']:.2f}")
        bounds += [
            Bound(f"test log-loss of {method} above that of {name}", ours - theirs, at_most=WORSE),
            Bound(f"time of {method} in times that of {name}", times["ours"] / times[name], at_most=1),
        ]
    return f"| {method} | {ours:.5f} | {'; '.join(words)} |"


def _alone(method: str, bounds: list[Bound]) -> str:
    rows, judged = Rows.like_a_network(25_000, 1000), Rows.like_a_network(5_000, 1000, seed=1)
    predictions = Predictions(rows.logits, rows.labels)
    test = Predictions(judged.logits, judged.labels)
    start = time.process_time()
    fitted = catalogue.parse_calibrator(method).fit(predictions)
    seconds = time.process_time() - start
    megabytes = peak_in_a_process_of_its_own("benchmarks.structured_scaling", rows, method)
    bounds.append(Bound(f"GiB of {method} at 25,000 x 1000", megabytes / 1024, at_most=GIGABYTES))
    of_temperature = nll(catalogue.parse_calibrator("temperature").fit(predictions).transform(test))
    return (
        f"| {method} | {seconds:.1f} | {megabytes:.0f} MB | {nll(fitted.transform(test)):.5f} | {of_temperature:.5f} |"
    )


def _log_loss(probs: np.ndarray, judged: Rows) -> float:
    return float(-np.log(np.take_along_axis(probs, judged.labels_array[:, None], axis=1)).mean())


def _fit(predictions: Predictions, method: str) -> None:
    if len(predictions) >= predictions.n_classes:  # the warming up has too few rows to fit
        catalogue.parse_calibrator(method).fit(predictions)


if __name__ == "__main__":
    print_peak(_fit)
