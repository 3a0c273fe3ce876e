"""Networks that train side by side end as each would have alone."""

import pytest
import torch

from calibrant import catalogue
from calibrant.errors import FitError
from calibrant.training import Recipe, Run, train_runs, train_together
from calibrant.training.folder import RunFolder

# Different losses, seeds, lengths and numbers of steps an epoch.
THREE = [("ce", {"seed": 1}), ("crl", {"seed": 2, "epochs": 3}), ("mmce", {"batch_size": 80, "mixup": 0.3})]


def test_three_at_once_are_the_three_alone_to_the_last_bit(session_of):
    alone = [session_of(loss, **recipe) for loss, recipe in THREE]
    for session in alone:
        train_together([session])
    together = [session_of(loss, **recipe) for loss, recipe in THREE]
    train_together(together)
    assert [len(session.records) for session in together] == [4, 3, 4]
    for one, other in zip(alone, together, strict=True):
        expected, found = one.state(), other.state()
        assert expected.keys() == found.keys()
        assert all(torch.equal(values, found[name]) for name, values in expected.items())
    first, second = together[0].model.head.weight, together[1].model.head.weight
    assert not torch.equal(first, second)


def test_dropout_draws_as_it_would_alone(session_of, changing_network):
    alone, *together = (session_of(model=changing_network(), seed=seed, epochs=2) for seed in (1, 0, 1, 2))
    train_together([alone])
    train_together(together)
    found = together[1].state()
    assert all(torch.equal(values, found[name]) for name, values in alone.state().items())


def test_every_epoch_of_every_network_is_reported_in_turn(session_of):
    sessions = [session_of(epochs=3), session_of(epochs=1, seed=1)]
    told = []
    train_together(sessions, after_epoch=lambda session, record: told.append((sessions.index(session), record.epoch)))
    assert told == [(0, 1), (1, 1), (0, 2), (0, 3)]
    assert all(session.is_finished for session in sessions)
    train_together(sessions, after_epoch=lambda *_: pytest.fail("all were finished"))


def test_runs_that_share_a_loss_do_not_share_its_state(digits, tmp_path):
    recipes = [Recipe(epochs=2, batch_size=64, learning_rate=0.05, seed=seed) for seed in (0, 1)]
    shared = catalogue.losses.parse("crl")
    for folder, losses in {"one": [shared] * 2, "two": [catalogue.losses.parse("crl") for _ in recipes]}.items():
        runs = [
            Run(tmp_path / folder / str(recipe.seed), "digits_cnn", loss, recipe)
            for loss, recipe in zip(losses, recipes, strict=True)
        ]
        train_runs(runs, digits, split="half-test", device=torch.device("cpu"))
    for seed in ("0", "1"):
        one, two = ((tmp_path / folder / seed / "weights.safetensors").read_bytes() for folder in ("one", "two"))
        assert one == two


def test_runs_of_several_folders_and_augmentations_share_the_data(digits, train_in, tmp_path):
    recipes = {"plain": {}, "crop": {"augmentation": "crop"}, "again": {"augmentation": "crop", "seed": 1}}
    base = {"epochs": 2, "batch_size": 64, "learning_rate": 0.05}
    runs = [
        Run(tmp_path / name, "digits_cnn", catalogue.losses.parse("ce"), Recipe(**base, **recipe))
        for name, recipe in recipes.items()
    ]
    train_runs(runs, digits, split="half-test", device=torch.device("cpu"))
    weights = {name: (tmp_path / name / "weights.safetensors").read_bytes() for name in recipes}
    assert len(set(weights.values())) == 3
    alone = train_in(tmp_path / "alone", nesterov=False, **base, augmentation="crop")
    assert (alone / "weights.safetensors").read_bytes() == weights["crop"]


def test_one_that_comes_apart_is_named_and_the_others_are_finished(digits, tmp_path):
    good = Run(
        tmp_path / "good",
        "digits_cnn",
        catalogue.losses.parse("ce"),
        Recipe(epochs=2, batch_size=64, learning_rate=0.05),
    )
    bad = Run(
        tmp_path / "bad", "digits_cnn", catalogue.losses.parse("ce"), Recipe(epochs=2, batch_size=64, learning_rate=1e6)
    )
    with pytest.raises(FitError, match=r"bad: the .* must stay finite; .*learning rate"):
        train_runs([bad, good], digits, split="half-test", device=torch.device("cpu"))
    assert RunFolder(good.folder).is_finished
    assert len(RunFolder(good.folder).records()) == 2
    assert not RunFolder(bad.folder).is_finished
