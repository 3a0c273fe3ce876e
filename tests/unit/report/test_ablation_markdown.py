"""The ablation's page: what δ brings comes first, and every planned comparison has its table."""

import math

import pytest
import torch
from torch import nn

from calibrant.calibrators import VectorScaling
from calibrant.clamping import NeuralClamping
from calibrant.clamping.study.ablation import ablation
from calibrant.metrics import ECE, NLL, Accuracy
from calibrant.report.ablation import ablation_to_markdown

METRICS = (NLL(), ECE(), Accuracy())


def found(method, *, shift, metrics=METRICS):
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double().eval()
    chance = torch.Generator().manual_seed(1)
    inputs = 2 * torch.randn(800, 5, generator=chance, dtype=torch.float64)
    with torch.no_grad():
        labels = torch.multinomial((model(inputs + shift) / 0.6).softmax(1), 1, generator=chance)[:, 0]
    sets = (inputs[:400], labels[:400]), (inputs[400:], labels[400:])
    return ablation(method, model, *sets, metrics=metrics, resamples=100)


def test_the_page_says_first_whether_delta_helps():
    page = ablation_to_markdown(found(NeuralClamping(strength=0.01), shift=1.5), source="a network")
    assert page.startswith("# Neural Clamping taken apart: a network\n\n**δ helps: it lowers the log-loss from")
    assert "\n\nδ by itself, with the best T both times: log-loss" in page
    assert "| row | δ | T | nll ↓ | ece ↓ | accuracy ↑ |" in page
    for heading in ("joint against TS", "TS on δ* against TS", "joint against T* only"):
        assert f"## {heading}\n" in page
    assert "400 rows to fit, 400 to judge, 3 classes" in page
    assert "nan" not in page


def test_where_delta_brings_nothing_the_page_does_not_say_that_it_does():
    page = ablation_to_markdown(found(NeuralClamping(strength=0.1), shift=0.0))
    assert "\n\n**δ does not change the log-loss beyond noise" in page


def test_the_page_judges_delta_by_the_test_rows_and_not_by_what_the_fit_says():
    page = ablation_to_markdown(found(NeuralClamping(strength=(1.0, 0.1)), shift=1.5))
    answer = page.splitlines()[2]
    assert answer.endswith("But the weakest of the strengths tried won, so a weaker one may do better.**")
    assert "- δ helps: at λ" not in page
    assert "That is optimistic, as it was picked from 2 on the same folds" in page


def test_without_delta_the_page_says_so():
    page = ablation_to_markdown(found(NeuralClamping(strength=math.inf), shift=0.0))
    assert "**The fit leaves δ = 0: what it changes is the head alone.**" in page


def test_another_head_and_no_log_loss_have_a_page_too():
    page = ablation_to_markdown(
        found(NeuralClamping(head=VectorScaling(), strength=0.1), shift=1.0, metrics=(Accuracy(),))
    )
    assert "## joint against head\n" in page
    assert "δ by itself" not in page
    assert "TS" not in page


@pytest.mark.parametrize("strength", [0.01, math.inf])
def test_every_table_is_as_wide_as_its_head(strength):
    page = ablation_to_markdown(found(NeuralClamping(strength=strength), shift=0.5))
    for block in page.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1
