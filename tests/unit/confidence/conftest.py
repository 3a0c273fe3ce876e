"""A classifier whose softmax misleads, while its features show where it is wrong."""

import pytest
import torch
from torch import nn


class MisledNetwork(nn.Module):
    """Predicts by the sign of the first feature, and is as sure where the second makes it wrong as elsewhere."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.head = nn.Linear(4, 2)
        with torch.no_grad():
            self.head.weight.zero_()[1, 0] = 6
            self.head.bias.zero_()
            self.body[0].running_mean.fill_(0.1)

    def features(self, inputs):
        return self.body(inputs)

    def forward(self, inputs):
        return self.head(self.features(inputs))


def misled_rows(n, seed):
    """Inputs (n, 4) and labels: the sign of the first number, turned round where the second is above 0.8."""
    inputs = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, ((inputs[:, 0] > 0.1) ^ (inputs[:, 1] > 0.8)).long()


@pytest.fixture
def network():
    return MisledNetwork().eval()


@pytest.fixture
def samples():
    return misled_rows(600, seed=0)


@pytest.fixture
def other_samples():
    return misled_rows(500, seed=1)


@pytest.fixture
def state_of():
    """All that a fit could change of a network: weights, buffers, modes, gradients, and which weights take them."""

    def state(model):
        return (
            {name: values.clone() for name, values in model.state_dict().items()},
            [module.training for module in model.modules()],
            [(item.requires_grad, None if item.grad is None else item.grad.clone()) for item in model.parameters()],
        )

    return state


@pytest.fixture
def same_state():
    def same(first, second):
        return (
            all(torch.equal(first[0][name], second[0][name]) for name in first[0])
            and first[1] == second[1]
            and all(
                a[0] == b[0] and (a[1] is b[1] is None or torch.equal(a[1], b[1]))
                for a, b in zip(first[2], second[2], strict=True)
            )
        )

    return same
