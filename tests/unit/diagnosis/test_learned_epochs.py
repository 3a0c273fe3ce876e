"""When samples were learned, and what their top logits tell of it."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from calibrant.diagnosis import grouped, learned_epoch_groups, read_runs
from calibrant.errors import InputError


@pytest.fixture
def candidates(made):
    """Candidates from the traces of their runs: loss, then learned epochs and logits of each run; of nine epochs."""

    def make(**losses):
        paths = [
            made(loss, seed, learning=trace, epochs=9)
            for loss, runs in losses.items()
            for seed, trace in enumerate(runs)
        ]
        return grouped(read_runs(paths))

    return make


def test_samples_are_grouped_by_epoch_and_those_never_learned_stand_apart(candidates):
    epochs = [1, 1, 2, 2, 3, 3, 9, 9, 10, 10]
    (found,) = learned_epoch_groups(candidates(ce=[(epochs, np.arange(10.0))]), groups=4, n_bins=5)
    assert [(group.first, group.last) for group in found.groups] == [(1, 1), (2, 2), (3, 3), (4, 9), (None, None)]
    assert [group.rows for group in found.groups] == [2, 2, 2, 2, 2]
    assert found.groups[3].mean == 6.5
    assert found.edges == pytest.approx(np.linspace(0, 9, 6))
    assert found.groups[4].counts == (0, 0, 0, 0, 2)
    assert sum(sum(group.counts) for group in found.groups) == 10
    assert sum(group.share for group in found.groups) == pytest.approx(1)


def test_groups_hold_as_equal_parts_as_whole_epochs_allow(candidates):
    epochs = np.repeat(np.arange(1, 10), 100)
    (found,) = learned_epoch_groups(candidates(ce=[(epochs, np.sin(epochs * 1.0))]), groups=3)
    assert [(group.first, group.last) for group in found.groups[:-1]] == [(1, 3), (4, 6), (7, 9)]
    (crowded,) = learned_epoch_groups(candidates(focal=[([1] * 90 + [5] * 10, np.zeros(100))]), groups=4)
    assert [(group.first, group.last) for group in crowded.groups[:-1]] == [(1, 1), (2, 5)]


def test_candidates_share_groups_and_edges_and_runs_are_added_up(candidates):
    wide = [([1, 2, 3, 10], [8.0, 6.0, 4.0, -2.0])] * 2
    tight = [([1, 2, 3, 10], [1.0, 1.1, 1.0, 1.1])]
    first, second = learned_epoch_groups(candidates(ce=wide, label_smoothing=tight), groups=3)
    assert first.edges == second.edges
    assert (first.edges[0], first.edges[-1]) == (-2, 8)
    assert [(group.first, group.last) for group in first.groups] == [
        (group.first, group.last) for group in second.groups
    ]
    assert (first.runs, first.groups[0].rows, second.groups[0].rows) == (2, 2, 1)


def test_the_correlation_is_spearmans_and_shows_whether_hard_samples_are_still_known(candidates):
    rng = np.random.default_rng(1)
    epochs = rng.integers(1, 11, 3000)
    known, lost = (epochs, 10.0 - epochs + rng.normal(size=3000)), (epochs, rng.normal(size=3000))
    first, second = learned_epoch_groups(candidates(ce=[known], label_smoothing=[lost]))
    expected = spearmanr(epochs, known[1].astype(np.float32)).statistic
    assert first.rank_correlation.mean == pytest.approx(expected, abs=1e-6)
    assert first.rank_correlation.mean < -0.8
    assert abs(second.rank_correlation.mean) < 0.1


def test_samples_learned_all_at_once_have_no_correlation(candidates):
    (found,) = learned_epoch_groups(candidates(ce=[([1, 1, 1], [0.0, 1.0, 2.0])]))
    assert math.isnan(found.rank_correlation.mean)
    assert [group.rows for group in found.groups] == [3, 0]


def test_samples_of_which_none_was_learned_are_one_group(candidates):
    (found,) = learned_epoch_groups(candidates(ce=[([10, 10], [1.0, 1.0])]))
    assert [(group.first, group.rows) for group in found.groups] == [(None, 2)]


def test_runs_without_a_trace_are_left_out_and_without_any_it_is_noted(candidates):
    (found,) = learned_epoch_groups(candidates(ce=[None, ([1, 2], [0.0, 1.0])], focal=[None]))
    assert (found.candidate, found.runs) == ("ce", 1)
    with pytest.raises(InputError, match=r"none was\. Train with --trace"):
        learned_epoch_groups(candidates(brier=[None]))


def test_trained_runs_count_every_training_sample(trained):
    found = learned_epoch_groups(grouped(read_runs(list(trained.values()))))
    assert [sum(group.rows for group in each.groups) for each in found] == [640, 640]
