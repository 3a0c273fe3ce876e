"""Notes on a candidate's runs."""

from dataclasses import replace

import pytest

from calibrant.diagnosis import diagnose, read_runs
from calibrant.diagnosis.runs import candidate_notes, grouped
from calibrant.report.diagnosis import diagnosis_notes


@pytest.fixture
def learned(made, hands):
    """Runs of γ-Net, a seed each, from the shares of samples at the limit epoch by epoch; None where nobody looked."""

    def runs(*shares):
        for seed, share in enumerate(shares):
            epochs = [hands.epoch(place + 1, test=hands.looked()) for place in range(len(share))]
            told = [{} if each is None else {"gamma_mean": 1.0, "gamma_clipped": each} for each in share]
            records = [replace(epoch, learned=each) for epoch, each in zip(epochs, told, strict=True)]
            yield made("meta_focal", seed, records=records)

    return lambda *shares: read_runs(list(runs(*shares)))


def test_runs_in_which_gamma_ended_at_its_limit_are_counted(learned):
    (candidate,) = grouped(learned([0.0, 0.0], [0.0, 0.375], [0.5, 0.0]))
    assert list(candidate_notes(candidate)) == ["γ at its limit in 1 of 3 runs in the end (seed 1: 37.5% of samples)"]


def test_the_last_epoch_in_which_somebody_looked_counts(learned):
    (candidate,) = grouped(learned([0.0, 1.0, None], [0.25, 0.25, None]))
    assert list(candidate_notes(candidate)) == [
        "γ at its limit in 2 of 2 runs in the end (seed 0: 100.0% of samples, seed 1: 25.0% of samples)"
    ]


def test_a_gamma_below_its_limit_and_a_loss_without_gamma_have_no_note(learned, made):
    (candidate,) = grouped(learned([0.0]))
    assert list(candidate_notes(candidate)) == []
    (plain,) = grouped(read_runs([made("ce", records=[])]))
    assert not any("γ" in note for note in candidate_notes(plain))


def test_the_report_says_it_where_it_notes_other_things(learned):
    found = diagnose(learned([0.5]), resamples=2, draws=0)
    assert any(
        line.startswith("meta_focal: γ at its limit in 1 of 1 run in the end") for line in diagnosis_notes(found)
    )
