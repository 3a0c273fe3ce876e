"""Samples to train, calibrate and test: sizes, disjointness, repeatability."""

import pytest
import torch

from calibrant.datasets.dataset import Dataset, Samples, all_splits, split_dataset
from calibrant.errors import CalibrantWarning, InputError, UnknownNameError


def numbered(first, n, n_classes):
    """Samples that carry their own number, so that one can see where each went."""
    rows = torch.arange(first, first + n)
    return Samples(rows[:, None], rows % n_classes)


def dataset(n_training=1000, n_test=200, n_validation=None, n_classes=4):
    names = tuple("abcdefghij"[:n_classes])
    validation = None if n_validation is None else numbered(50_000, n_validation, n_classes)
    training, test = numbered(0, n_training, n_classes), numbered(100_000, n_test, n_classes)
    return Dataset("numbers", names, training, test, validation)


def rows(part):
    return part.inputs[:, 0].tolist()


def parts(split):
    return [part for part in (split.training, split.calibration, split.test, split.meta) if part is not None]


@pytest.mark.parametrize(
    ("protocol", "sizes"),
    [("holdout", (900, 100, 200)), ("8:1:1", (800, 100, 200, 100)), ("half-test", (1000, 100, 100))],
)
def test_sizes_are_those_of_the_papers(protocol, sizes):
    assert tuple(map(len, parts(split_dataset(dataset(), protocol, seed=0)))) == sizes


def test_the_sizes_on_cifar_are_45000_and_5000():
    split = split_dataset(dataset(50_000, 10_000, n_classes=10), "holdout", seed=1)
    assert (len(split.training), len(split.calibration), len(split.test)) == (45_000, 5_000, 10_000)


@pytest.mark.parametrize("protocol", list(all_splits()))
def test_no_sample_is_in_two_parts_and_none_is_lost(protocol):
    whole = dataset(n_validation=40)
    split = split_dataset(whole, protocol, seed=3)
    placed = [row for part in parts(split) for row in rows(part)]
    assert len(placed) == len(set(placed))
    given = rows(whole.training) + rows(whole.test) + (rows(whole.validation) if protocol == "official" else [])
    assert sorted(placed) == sorted(given)


@pytest.mark.parametrize("protocol", list(all_splits()))
def test_labels_stay_with_their_inputs(protocol):
    for part in parts(split_dataset(dataset(n_validation=40), protocol, seed=3)):
        assert torch.equal(part.inputs[:, 0] % 4, part.labels)


@pytest.mark.parametrize("protocol", ["holdout", "8:1:1", "half-test"])
def test_a_seed_repeats_and_another_one_does_not(protocol):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (split_dataset(dataset(), protocol, seed=seed) for seed in (5, 5, 6))
    assert rows(first.calibration) == rows(again.calibration)
    assert rows(first.calibration) != rows(other.calibration)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_draw_is_at_random_without_regard_to_class_or_place():
    # A tenth of 1,000 from the first half: 50 on average, with a deviation of 4.7.
    halves = [
        sum(row < 500 for row in rows(split_dataset(dataset(), "holdout", seed=s).calibration)) for s in range(40)
    ]
    assert 47 < sum(halves) / len(halves) < 53
    # A draw by class would give 25 of each class every time.
    counts = {int((split_dataset(dataset(), "holdout", seed=s).calibration.labels == 0).sum()) for s in range(10)}
    assert len(counts) > 3


def test_the_test_part_is_untouched_where_training_is_divided():
    whole = dataset()
    for protocol in ("holdout", "8:1:1"):
        assert split_dataset(whole, protocol, seed=0).test is whole.test
    assert split_dataset(whole, "half-test", seed=0).training is whole.training


def test_official_needs_a_validation_part():
    whole = dataset(n_validation=40)
    assert split_dataset(whole, "official", seed=0).calibration is whole.validation
    with pytest.raises(InputError, match=r"'official' needs a validation part.*numbers has none\. Use 'holdout'"):
        split_dataset(dataset(), "official", seed=0)


def test_a_part_without_samples_is_an_error():
    with pytest.raises(InputError, match="the calibration part of numbers divided by 'holdout' has none"):
        split_dataset(dataset(n_training=9), "holdout", seed=0)


def test_a_part_without_a_class_is_refused():
    with pytest.warns(CalibrantWarning, match=r"the calibration part of numbers .*\(2 samples\) lacks [23] of 4"):
        split_dataset(dataset(n_training=20), "holdout", seed=0)


def test_an_unknown_protocol_and_a_wrong_seed_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean holdout"):
        split_dataset(dataset(), "hold-out", seed=0)
    for seed in (-1, 1.5, True):
        with pytest.raises(InputError, match="seed must be"):
            split_dataset(dataset(), "holdout", seed=seed)
