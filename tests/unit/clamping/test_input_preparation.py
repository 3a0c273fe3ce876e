"""What the network is shown: x + δ, clipped if the space says so, and augmented if that is wanted."""

import torch

from calibrant.clamping import InputSpace
from calibrant.clamping.inputs import InputPreparation, augmented

INPUTS = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
DELTA = torch.linspace(-2, 2, 64).reshape(1, 8, 8)


def test_delta_is_added_and_nothing_else_done():
    assert torch.equal(InputPreparation().add_delta(INPUTS, DELTA), INPUTS + DELTA)
    assert torch.equal(InputPreparation(InputSpace()).add_delta(INPUTS, DELTA), INPUTS + DELTA)


def test_a_space_that_clips_brings_pixels_back_to_its_range():
    space = InputSpace(mean=(0.5,), std=(0.25,), clips=True)
    normalised = (INPUTS - 0.5) / 0.25
    pixels = InputPreparation(space).add_delta(normalised, DELTA) * 0.25 + 0.5
    assert torch.allclose(pixels, (INPUTS + 0.25 * DELTA).clamp(0, 1), atol=1e-6)


def test_delta_takes_the_type_of_the_inputs():
    assert InputPreparation().add_delta(INPUTS.half(), DELTA).dtype == torch.float16


def test_neither_inputs_nor_delta_are_changed():
    before = INPUTS.clone(), DELTA.clone()
    InputPreparation(InputSpace(clips=True)).add_delta(INPUTS, DELTA).zero_()
    assert torch.equal(INPUTS, before[0])
    assert torch.equal(DELTA, before[1])


def test_rows_that_are_not_augmented_are_seen_once_and_as_they_are():
    preparation = InputPreparation(views=7)
    assert preparation.n_views == 1
    assert preparation.augmented(INPUTS, preparation.generator(0)) is INPUTS


def test_augmented_rows_are_seen_in_several_views():
    preparation = InputPreparation(augmentation="crop-flip", views=7, seed=3)
    assert preparation.n_views == 7
    views = [preparation.augmented(INPUTS, preparation.generator(view)) for view in (0, 1, 0)]
    assert torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[1])
    assert torch.equal(views[0], augmented(INPUTS, "crop-flip", preparation.generator(0), None))


def test_draws_differ_between_views_and_seeds():
    drawn = [
        tuple(torch.rand(3, generator=InputPreparation(seed=seed).generator(view)).tolist())
        for seed in range(3)
        for view in range(50)
    ]
    assert len(set(drawn)) == 150


def test_the_draws_of_large_seeds_can_be_had_and_those_of_small_ones_are_what_they_were():
    for seed in (2**45, 2**63 - 1):
        draws = {float(torch.rand((), generator=InputPreparation(seed=seed).generator(number))) for number in range(4)}
        assert len(draws) == 4
    assert InputPreparation(seed=3).generator(2).initial_seed() == 300_011
