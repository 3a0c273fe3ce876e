"""Networks that train in threads end as those that train in turns."""

from dataclasses import replace

import pytest
import torch
from experiments.trained import train_side_by_side

from calibrant import catalogue
from calibrant.datasets import DigitsReader, split_dataset
from calibrant.models import build_model
from calibrant.training import Recipe, Session, TrainingData, train_together

RECIPE = Recipe(epochs=3, batch_size=64, learning_rate=0.05)


@pytest.fixture(scope="module")
def data():
    dataset = DigitsReader().read()
    return TrainingData.of(dataset, split_dataset(dataset, "8:1:1", seed=0)).on(torch.device("cpu"))


def sessions_of(data, *recipes):
    return [
        Session(
            build_model("digits_cnn", n_classes=10, in_channels=1, image_size=8, seed=recipe.seed),
            catalogue.parse_any_loss(loss),
            data,
            recipe,
        )
        for loss, recipe in recipes
    ]


def test_in_threads_as_in_turns_to_the_last_bit(data):
    cases = [
        ("ce", RECIPE),
        ("meta_focal(objective=sece)", replace(RECIPE, seed=1)),
        ("mmce", replace(RECIPE, epochs=2)),
    ]
    in_turns, in_threads = sessions_of(data, *cases), sessions_of(data, *cases)
    train_together(in_turns)
    ended = []
    train_side_by_side(
        in_threads,
        after_epoch=lambda session, record: ended.append((in_threads.index(session), record.epoch)),
        after_failure=lambda _session, error: pytest.fail(str(error)),
    )
    assert sorted(ended) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    for one, other in zip(in_turns, in_threads, strict=True):
        expected, found = one.state(), other.state()
        assert expected.keys() == found.keys()
        assert all(torch.equal(values, found[name]) for name, values in expected.items())


def test_a_network_that_diverges_is_reported_and_the_others_finish(data):
    sessions = sessions_of(data, ("ce", replace(RECIPE, learning_rate=1e6)), ("ce", RECIPE))
    failed = []
    train_side_by_side(
        sessions, after_epoch=lambda *_: None, after_failure=lambda session, _error: failed.append(session)
    )
    assert failed == [sessions[0]]
    assert [session.is_finished for session in sessions] == [False, True]


def test_an_error_in_a_thread_is_raised(data):
    def fail(*_):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        train_side_by_side(sessions_of(data, ("ce", RECIPE)), after_epoch=fail, after_failure=fail)
