import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.regularised import MarginLoss

LOGITS = 8 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(5, (40,), generator=torch.Generator().manual_seed(1))


def excess(margin):
    return torch.tensor(
        [[max(0.0, max(row) - each - margin) for each in row] for row in LOGITS.tolist()], dtype=torch.float64
    )


def test_the_mean_is_what_the_authors_code_computes():
    expected = F.cross_entropy(LOGITS, LABELS) + 0.1 * excess(10).mean()
    assert excess(10).count_nonzero() > 50
    assert torch.allclose(MarginLoss()(LOGITS, LABELS), expected, rtol=1e-12)


def test_the_sum_is_what_the_paper_writes():
    expected = F.cross_entropy(LOGITS, LABELS, reduction="none") + 0.2 * excess(6).sum(1)
    loss = MarginLoss(margin=6.0, weight=0.2, over_classes="sum", reduction="none")
    assert torch.allclose(loss(LOGITS, LABELS), expected, rtol=1e-12)


def test_within_the_margin_it_is_the_cross_entropy():
    widest = (LOGITS.amax(1) - LOGITS.amin(1)).max().item()
    loss = MarginLoss(margin=widest + 0.01, weight=5.0)
    # The mean is taken in another order.
    rounding = len(LABELS) * torch.finfo(LOGITS.dtype).eps
    torch.testing.assert_close(loss(LOGITS, LABELS), F.cross_entropy(LOGITS, LABELS), rtol=rounding, atol=0)


def test_soft_labels_change_the_cross_entropy_only():
    soft = LOGITS.roll(1, 0).softmax(1)
    price = MarginLoss()(LOGITS, soft) - F.cross_entropy(LOGITS, soft)
    assert torch.allclose(price, MarginLoss()(LOGITS, LABELS) - F.cross_entropy(LOGITS, LABELS), rtol=1e-9)


def test_largest_logits_that_are_equal_share_the_gradient():
    logits = torch.tensor([[20.0, 20.0, 0.0]], requires_grad=True)
    loss = MarginLoss(margin=5.0, weight=1.0, over_classes="sum")(logits, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(loss - F.cross_entropy(logits, torch.tensor([0])), logits)
    torch.testing.assert_close(
        gradient, torch.tensor([[0.5, 0.5, -1.0]]), rtol=4 * torch.finfo(gradient.dtype).eps, atol=0
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": -1.0}, "margin must be at least 0 and finite; got -1.0"),
        ({"weight": float("inf")}, "weight must be at least 0 and finite; got inf"),
        ({"over_classes": "max"}, "over_classes must be one of mean, sum; got 'max'"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        MarginLoss(**options)
