"""The numbers that decide a training: the rate of each step by hand, and what is refused."""

import math

import pytest
import torch

from calibrant.errors import InputError, UnknownNameError
from calibrant.training import RECIPES, Recipe
from calibrant.training.recipe import learning_rates


def rates(recipe, steps):
    return torch.cat([learning_rates(recipe, epoch, steps) for epoch in range(recipe.epochs)]).tolist()


def test_cosine_falls_along_half_a_wave_by_the_step():
    found = rates(Recipe(epochs=5, learning_rate=0.4), 3)
    assert found == pytest.approx([0.2 * (1 + math.cos(math.pi * step / 15)) for step in range(15)], rel=1e-6)
    assert found[0] == pytest.approx(0.4)
    assert 0 < found[-1] < 0.01


def test_warmup_rises_in_a_straight_line_and_then_the_wave_begins():
    found = rates(Recipe(epochs=6, learning_rate=1.0, warmup=2), 4)
    assert found[:8] == pytest.approx([step / 8 for step in range(1, 9)])
    assert found[8:] == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 16)) for step in range(16)], rel=1e-6)


def test_steps_fall_at_the_start_of_each_milestone():
    recipe = Recipe(epochs=6, learning_rate=0.1, schedule="steps", milestones=(2, 5), decay=0.2)
    assert rates(recipe, 2) == pytest.approx([0.1] * 4 + [0.02] * 6 + [0.004] * 2)


def test_a_milestone_within_the_warmup_counts():
    recipe = Recipe(epochs=3, learning_rate=1.0, schedule="steps", milestones=(1,), warmup=2)
    assert rates(recipe, 2) == pytest.approx([0.25, 0.5, 0.075, 0.1, 0.1, 0.1])


def test_a_constant_rate_stays_but_for_the_warmup():
    assert rates(Recipe(epochs=3, learning_rate=0.3, schedule="constant", warmup=1), 2) == pytest.approx(
        [0.15, 0.3, 0.3, 0.3, 0.3, 0.3]
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"epochs": 2.5}, "epochs must be a whole number; got 2.5"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"epochs": 5, "warmup": 5}, "warmup must be shorter than the 5 epochs; got 5"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0 and finite"),
        ({"momentum": 1.5}, "momentum must be between 0 and 1; got 1.5"),
        ({"weight_decay": -1e-4}, "weight_decay must be at least 0"),
        ({"weight_decay": float("nan")}, "weight_decay must be at least 0 and finite; got nan"),
        ({"decay": 2}, "decay must be between 0 and 1"),
        ({"mixup": -0.1}, "mixup must be at least 0"),
        ({"clip": 0}, "clip must be above 0"),
        ({"nesterov": True, "momentum": 0}, "nesterov needs a momentum above 0"),
        ({"milestones": (3,)}, r"milestones must be given with schedule='steps' alone; got \(3,\)"),
        ({"schedule": "steps"}, r"milestones must be given with schedule='steps'"),
        ({"schedule": "steps", "milestones": (4, 2)}, "milestones must rise"),
        ({"schedule": "steps", "milestones": (2, 2)}, "milestones must rise"),
        ({"schedule": "steps", "milestones": (0, 2)}, "each of milestones must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused_with_words(changes, said):
    with pytest.raises(InputError, match=said):
        Recipe(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schedule": "cosin"}, "schedule must be one of cosine, steps, constant.*Did you mean cosine"),
        ({"precision": "float16"}, "precision must be one of auto, float32, bfloat16"),
        ({"augmentation": "flip"}, "augmentation must be one of none, crop, crop-flip"),
    ],
)
def test_an_unknown_word_is_refused_with_those_that_are_known(changes, said):
    with pytest.raises(UnknownNameError, match=said):
        Recipe(**changes)


def test_milestones_and_warmup_keep_their_share_of_other_epochs():
    recipe = Recipe(epochs=200, schedule="steps", milestones=(100, 150), warmup=10)
    shorter = recipe.changed({"epochs": 20, "learning_rate": 0.2})
    assert (shorter.milestones, shorter.warmup, shorter.learning_rate) == ((10, 15), 1, 0.2)
    assert recipe.changed({"epochs": 2}).milestones == (1, 2)
    assert recipe.changed({"epochs": 1}).milestones == (1,)
    assert recipe.changed({"epochs": 20, "milestones": (3,)}).milestones == (3,)
    assert recipe.changed({}) == recipe


def test_the_papers_recipes_are_as_the_papers_say():
    overconfidence = RECIPES["overconfidence"]
    assert (overconfidence.epochs, overconfidence.batch_size, overconfidence.weight_decay) == (200, 512, 1e-4)
    assert overconfidence.milestones == (100, 150)
    for name, decay in (("dark-side", 0.1), ("dark-side-by-5", 0.2)):
        recipe = RECIPES[name]
        assert (recipe.epochs, recipe.milestones, recipe.decay) == (300, (150, 225), decay)
    assert RECIPES["overconfidence-newsgroups"].milestones == (50,)
    assert RECIPES["overconfidence-newsgroups"].warmup == 5
    imagenet = RECIPES["dark-side-imagenet"]
    assert (imagenet.epochs, imagenet.milestones, imagenet.decay) == (100, (30, 60, 90), 0.1)
    meta = RECIPES["meta-regularization"]
    assert (meta.epochs, meta.batch_size, meta.weight_decay, meta.milestones) == (350, 128, 5e-4, (150, 250))
    assert all((recipe.learning_rate, recipe.momentum) == (0.1, 0.9) for recipe in RECIPES.values())


@pytest.mark.parametrize(("changes", "message"), [({"epochs": "20"}, "epochs must be"), ({"epoch": 20}, "mean epochs")])
def test_changes_are_options_of_a_recipe(changes, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        Recipe().changed(changes)
