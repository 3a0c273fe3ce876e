"""What an epoch will do: every sample once, the same for the same seed and epoch, shares drawn from Beta(α, α)."""

import pytest
import torch
from scipy import stats

from calibrant.errors import InputError
from calibrant.losses import FocalLoss
from calibrant.training import MixedBatch, Mixup
from calibrant.training.data import epoch_generator, mixing_shares, plan_epoch
from calibrant.training.stores import PADDING


@pytest.mark.parametrize(("n", "batch_size"), [(320, 32), (333, 32), (7, 7), (5, 1)])
def test_every_sample_is_used_at_most_once_an_epoch(n, batch_size):
    rows = plan_epoch(n, batch_size, seed=0, epoch=3).samples
    assert rows.shape == (n // batch_size, batch_size)
    used = rows.flatten().sort().values
    assert torch.equal(used, used.unique())
    assert (used >= 0).all()
    assert (used < n).all()


def test_samples_that_are_left_over_change_from_epoch_to_epoch():
    left = [
        set(range(100)) - set(plan_epoch(100, 30, seed=0, epoch=epoch).samples.flatten().tolist()) for epoch in (0, 1)
    ]
    assert [len(rows) for rows in left] == [10, 10]
    assert left[0] != left[1]


def test_seed_and_epoch_alone_decide_the_plan():
    torch.manual_seed(1)
    first = plan_epoch(200, 20, seed=4, epoch=7, mixup=0.3, n_meta=70)
    torch.manual_seed(2)
    again = plan_epoch(200, 20, seed=4, epoch=7, mixup=0.3, n_meta=70)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize(("seed", "epoch"), [(4, 8), (5, 7), (7, 4), (47, 0)])
def test_another_seed_or_epoch_is_another_plan_in_every_part(seed, epoch):
    first, other = (plan_epoch(200, 20, seed=s, epoch=e, mixup=0.3, n_meta=70) for s, e in ((4, 7), (seed, epoch)))
    assert not any(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_a_plan_draws_nothing_from_torchs_own_chance():
    before = torch.random.get_rng_state()
    plan_epoch(200, 20, seed=4, epoch=7, mixup=0.3, n_meta=70)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert epoch_generator(0, 1).initial_seed() != epoch_generator(1, 0).initial_seed()


def test_partners_are_a_permutation_of_each_steps_places():
    partners = plan_epoch(2000, 40, seed=0, epoch=0).partners
    assert torch.equal(partners.sort(dim=1).values, torch.arange(40).expand(50, 40))
    # Each place is as likely as any other: 50 permutations of 40 leave about one in its place each.
    assert 20 <= int((partners == torch.arange(40)).sum()) <= 90


def test_shifts_reach_the_whole_padding_evenly_and_half_is_mirrored():
    plan = plan_epoch(20_000, 100, seed=0, epoch=0)
    places = 2 * PADDING + 1
    for direction in range(2):
        counts = torch.bincount(plan.shifts[..., direction].flatten(), minlength=places)
        assert len(counts) == places
        assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert float(plan.mirrored.double().mean()) == pytest.approx(0.5, abs=4 * 0.5 / 20_000**0.5)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 4.0])
def test_shares_are_drawn_from_a_beta_distribution(alpha):
    shares = mixing_shares(20_000, alpha, torch.Generator().manual_seed(0)).double()
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    expected = stats.beta(alpha, alpha)
    error = (expected.var() / len(shares)) ** 0.5
    assert float(shares.mean()) == pytest.approx(0.5, abs=4 * error)
    assert float(shares.var()) == pytest.approx(expected.var(), rel=0.04)
    # Shares of a small α lie closer to 1 than float32 can tell, so the curves are compared away from the ends.
    inside = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    below = (shares[:, None] <= inside).double().mean(dim=0)
    assert (below - torch.from_numpy(expected.cdf(inside.numpy()))).abs().max() < 1.95 / 20_000**0.5


@pytest.mark.parametrize("alpha", [1e-3, 1e-12])
def test_a_tiny_alpha_gives_whole_samples_and_no_nan(alpha):
    shares = mixing_shares(1000, alpha, torch.Generator().manual_seed(0))
    assert ((shares < 1e-3) | (shares > 1 - 1e-3)).double().mean() > 0.95
    assert torch.isfinite(shares).all()


def test_without_mixup_every_sample_is_whole():
    assert torch.equal(plan_epoch(100, 10, seed=0, epoch=0).shares, torch.ones(10))


def test_a_mixed_batch_is_the_blend_of_samples_and_of_losses():
    inputs, labels = torch.rand(6, 2, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    partners, share = torch.tensor([1, 0, 5, 4, 3, 2]), torch.tensor(0.3, dtype=torch.float64)
    mixed = MixedBatch.of(inputs, labels, partners, share)
    by_hand = torch.stack([0.3 * inputs[i] + 0.7 * inputs[j] for i, j in enumerate(partners.tolist())])
    torch.testing.assert_close(mixed.inputs, by_hand)
    logits, loss = torch.randn(6, 3, dtype=torch.float64), FocalLoss(gamma=2)
    expected = 0.3 * loss(logits, labels) + 0.7 * loss(logits, labels[partners])
    torch.testing.assert_close(mixed.loss(loss, logits), expected)


def test_mixup_can_be_repeated_and_refuses_an_alpha_of_zero():
    inputs, labels = torch.rand(8, 3), torch.arange(8)
    first, again = (Mixup(alpha=1)(inputs, labels, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert sorted(first.partner_labels.tolist()) == list(range(8))
    assert 0 < float(first.share) < 1
    with pytest.raises(InputError, match="alpha must be above 0"):
        Mixup(alpha=0)
    with pytest.raises(InputError, match="embeddings"):
        Mixup()(torch.arange(8)[:, None], labels)
    with pytest.raises(InputError, match="tensor of floating-point"):
        Mixup()(inputs.numpy(), labels)


@pytest.mark.parametrize(("n", "size"), [(70, 20), (20, 20), (7, 7)])
def test_held_out_samples_are_drawn_in_turns(n, size):
    judges = plan_epoch(2000, 20, seed=0, epoch=0, n_meta=n).meta_samples
    assert judges.shape == (100, size)
    counts = torch.bincount(judges.flatten(), minlength=n)
    assert int(counts.max()) - int(counts.min()) <= 1


def test_drawing_held_out_samples_changes_nothing_else():
    with_judges, without = (plan_epoch(200, 20, seed=4, epoch=7, mixup=0.3, n_meta=n) for n in (70, 0))
    pairs = zip(with_judges[:-1], without[:-1], strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert without.meta_samples.shape == (10, 0)
