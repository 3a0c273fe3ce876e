"""What the tests of diagnosis share: real runs on a few digits, and folders written by hand whose logits are known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_runs import CPU, rows_of, settings_of, write_run

from calibrant import catalogue
from calibrant.calibrators import TemperatureScaling
from calibrant.datasets import Dataset, DigitsReader
from calibrant.diagnosis import (
    MAPS,
    Candidate,
    Evaluated,
    EvaluatedCandidate,
    EvaluatedRun,
    Oracle,
    Outcome,
    evaluate_candidates,
    grouped,
    read_runs,
)
from calibrant.predictions import TopLabel
from calibrant.training import EpochRecord, HeldOutRecord, Recipe, Run, RuntimeOptions, train_runs


@pytest.fixture(scope="session")
def digits():
    """Few of the digits, on which :func:`trained` has its runs."""
    whole = DigitsReader().read()
    return Dataset("digits", whole.class_names, whole.training[:320], whole.test[:200], pixel_scale=whole.pixel_scale)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, digits):
    """Two losses with two seeds each, trained on 320 digits for two epochs and traced, by name of their folder."""
    out = tmp_path_factory.mktemp("trained")
    recipe = {"epochs": 2, "batch_size": 32, "learning_rate": 0.05}
    runs = [
        Run(
            out / f"{loss.partition('(')[0]}-{seed}",
            "digits_cnn",
            catalogue.parse_any_loss(loss),
            Recipe(**recipe, seed=seed),
        )
        for loss in ("ce", "label_smoothing(smoothing=0.1)")
        for seed in (0, 1)
    ]
    train_runs(runs, digits, split="half-test", device=CPU, runtime=RuntimeOptions(traced=True))
    return {run.folder.name: run.folder for run in runs}


@pytest.fixture(scope="session")
def runs(trained):
    return read_runs(list(trained.values()))


@pytest.fixture
def made(tmp_path):
    """Write a run by hand: its loss and seed, and how its logits come about."""

    def make(loss="ce", seed=0, *, name=None, n=400, k=4, scale=3.0, noise=0.0, records=(), learning=None, **settings):
        settings.setdefault("epochs", len(records) or 3)
        # Losses differ in what their logits are, and so do seeds.
        own = 10 * sum(map(ord, loss)) + seed
        parts = [rows_of(n, part, k=k, scale=scale, noise=noise, seed=own) for part in ("calibration", "test")]
        path = tmp_path / (name or f"run {len(list(tmp_path.iterdir()))}")
        return write_run(path, settings_of(loss, seed, k=k, **settings), *parts, records=records, learning=learning)

    return make


@pytest.fixture
def evaluated_of():
    """The runs of these folders, grouped and evaluated by a temperature alone unless given."""

    def judge(*paths, maps=MAPS[:1]):
        return evaluate_candidates(grouped(read_runs(paths)), maps=maps)

    return judge


@pytest.fixture
def evaluated_tops():
    """Candidates made of answers alone: by name, the answers of each run, as they are and after a temperature."""

    def make(n_bins=15, scaled=None, **tops):
        def run(name, seed, top):
            after = top if scaled is None else scaled[name][seed]
            outcomes = {
                "uncalibrated": Outcome(top, {}),
                "temperature": Outcome(after, {}, None if after is not None else "it could not be fitted"),
            }
            return EvaluatedRun(seed, outcomes, 1.0, Oracle(0.0, 1.0), {}, 100, 10)

        candidates = tuple(
            EvaluatedCandidate(
                Candidate(name, name, {"loss.loss": name}, ()),
                tuple(run(name, seed, top) for seed, top in enumerate(runs)),
            )
            for name, runs in tops.items()
        )
        first = next(iter(tops.values()))[0]
        return Evaluated(candidates, (TemperatureScaling(),), n_bins, len(first), 10)

    return make


def answers(n=600, *, overconfidence=0.0, separation=1.0, seed=0, rows=0):
    """Answers whose true log-odds are known, claimed too high by a shift; worse separated where they are noisy."""
    difficulty = np.random.default_rng([rows, 1]).normal(1.0, 1.5, n)
    right = np.random.default_rng([rows, 2]).random(n) < 1 / (1 + np.exp(-difficulty))
    own = np.random.default_rng([seed, 3])
    claimed = separation * difficulty + (1 - separation) * own.normal(1.0, 1.5, n) + overconfidence
    return TopLabel(torch.from_numpy(1 / (1 + np.exp(-claimed))), torch.from_numpy(right))


def looked(accuracy=0.8, ece=0.1, temperature=1.5, optimal_ece=0.02):
    return HeldOutRecord(accuracy, 0.7, ece, temperature, optimal_ece, 9.0)


def epoch_record(epoch, **parts):
    return EpochRecord(epoch, 1.0, 0.1, 1.0, 0.5, parts)


@pytest.fixture
def hands():
    """The pieces that a test puts together itself."""

    class Hands:
        settings = staticmethod(settings_of)
        rows = staticmethod(rows_of)
        write = staticmethod(write_run)
        answers = staticmethod(answers)
        looked = staticmethod(looked)
        epoch = staticmethod(epoch_record)
        path = Path

    return Hands
