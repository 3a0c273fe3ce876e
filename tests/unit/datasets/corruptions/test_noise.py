"""Noise has the size that its strength says, and is independent where it should be."""

import itertools

import pytest
import torch
from scipy import stats

from calibrant.datasets.corruptions import CORRUPTIONS, RowDraws, corrupt, shot_noise

SEVERITIES = range(1, 6)


def grey(n=40, level=128):
    return torch.full((n, 3, 32, 32), level, dtype=torch.uint8)


def strength(name, severity):
    return CORRUPTIONS[name].strengths[severity - 1]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_noise_on_grey_has_the_deviation_of_its_strength(severity):
    noise = corrupt(grey(), "gaussian_noise", severity=severity).double() - 128
    rounding = 1 / 12
    expected = (255 * strength("gaussian_noise", severity)) ** 2 + rounding
    assert float(noise.var()) == pytest.approx(expected, rel=0.02)
    assert abs(float(noise.mean())) < 0.3


def test_gaussian_noise_is_the_same_scaled_at_every_severity():
    weak, strong = (corrupt(grey(), "gaussian_noise", severity=severity).double() - 128 for severity in (1, 4))
    assert float((strong / 0.09 - weak / 0.04).abs().max()) <= 0.5 / 0.04 + 0.5 / 0.09 + 0.1  # rounding of both


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("level", [40, 128])
def test_shot_noise_has_a_variance_that_grows_with_brightness(severity, level):
    photons, pixels = strength("shot_noise", severity), grey(level=level) / 255
    noise = shot_noise(pixels, photons, RowDraws("shot_noise", 0, 0)).double()
    assert float(noise.var()) == pytest.approx(level / 255 / photons, rel=0.02)
    assert float(noise.mean()) == pytest.approx(level / 255, rel=0.005)
    stored = corrupt(grey(level=level), "shot_noise", severity=severity)
    assert float((stored.double() / 255 - noise).abs().max()) < 0.502 / 255


def test_shot_noise_leaves_black_black():
    assert not corrupt(grey(level=0), "shot_noise", severity=5).any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_noise_takes_its_share_half_to_black_and_half_to_white(severity):
    corrupted = corrupt(grey(), "impulse_noise", severity=severity)
    share, n = strength("impulse_noise", severity), corrupted.numel()
    for fate in (0, 255):
        assert stats.binomtest(int((corrupted == fate).sum()), n, share / 2).pvalue > 1e-3
    assert int(((corrupted == 0) | (corrupted == 128) | (corrupted == 255)).sum()) == n


def test_what_impulse_noise_takes_at_one_severity_it_takes_at_the_next():
    fates = [corrupt(grey(), "impulse_noise", severity=severity) for severity in SEVERITIES]
    for weaker, stronger in itertools.pairwise(fates):
        lost = weaker != 128
        assert torch.equal(weaker[lost], stronger[lost])


def test_draws_are_standard_and_without_likeness_between_samples_channels_names_and_seeds():
    like = torch.zeros(60, 3, 20, 20)
    drawn = RowDraws("gaussian_noise", 0, 0).normal(like)
    assert stats.kstest(drawn.flatten().numpy(), "norm").pvalue > 1e-3
    assert stats.kstest(RowDraws("impulse_noise", 0, 0).uniform(like).flatten().numpy(), "uniform").pvalue > 1e-3
    others = (
        drawn.roll(1, 0),
        drawn.roll(1, 1),
        drawn.roll(1, 3),
        RowDraws("shot_noise", 0, 0).normal(like),
        RowDraws("gaussian_noise", 1, 0).normal(like),
    )
    for other in others:
        assert abs(float((drawn * other).mean())) < 4 / drawn.numel() ** 0.5


def test_counts_have_their_means():
    rates = torch.tensor([0.0, 0.5, 30.0, 500.0]).expand(4000, 4)
    counts = RowDraws("shot_noise", 0, 0).poisson(rates).double()
    for mean, rate in zip(counts.mean(0), rates[0], strict=True):
        assert abs(float(mean - rate)) <= 4 * (float(rate) / 4000) ** 0.5
