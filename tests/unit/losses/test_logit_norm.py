import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.regularised import LogitNormLoss

LOGITS = 3 * torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(6, (30,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("weight", [-0.05, 0.3])
def test_the_price_is_the_norm_of_each_samples_logits(p, weight):
    losses = LogitNormLoss(weight=weight, p=p, reduction="none")(LOGITS, LABELS)
    norms = LOGITS.abs().pow(p).sum(1).pow(1 / p)
    assert torch.allclose(losses - F.cross_entropy(LOGITS, LABELS, reduction="none"), weight * norms, rtol=1e-10)


def test_the_mean_over_the_batch_is_what_the_public_code_computes():
    expected = F.cross_entropy(LOGITS, LABELS) + 0.01 * torch.norm(LOGITS, p=1, dim=1).mean()
    assert torch.allclose(LogitNormLoss()(LOGITS, LABELS), expected, rtol=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 40.0])
def test_a_large_order_neither_overflows_nor_underflows(p):
    logits = torch.tensor([[1e4, -1e4, 3.0], [0.0, 0.0, 0.0], [1e-30, 0.0, 2e-30]], requires_grad=True)
    losses = LogitNormLoss(weight=1.0, p=p, reduction="none")(logits, torch.tensor([0, 1, 2]))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    assert losses[0].item() == pytest.approx((2 * 1e4**p + 3.0**p) ** (1 / p), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": -1.5}, "weight must be at least -1 and finite; got -1.5"),
        ({"p": 0.5}, "p must be at least 1 and finite; got 0.5"),
        ({"p": float("inf")}, "p must be at least 1 and finite; got inf"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        LogitNormLoss(**options)
