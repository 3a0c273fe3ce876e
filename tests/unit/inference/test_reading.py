"""Batch sizes, and that inputs made under inference mode take part in gradients."""

import sys

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.inference import to_device
from calibrant.inference.samples import check_batch_size, default_batch_size

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 32, 32), 341), ((10,), 1024), ((), 1024), ((3, 600, 600), 1), ((1, 1024, 1024), 1)]
)
def test_a_batch_holds_about_a_million_numbers_by_default(shape, size):
    assert default_batch_size(shape, CPU) == size
    assert default_batch_size(shape, torch.device("cuda")) == 4 * size


def test_a_batch_size_may_be_of_numpy_and_larger_than_anything():
    for given in (np.int64(5), np.uint8(5)):
        assert type(check_batch_size(given)) is int
        assert check_batch_size(given) == 5
    assert check_batch_size(10**30) == sys.maxsize


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, None])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    with pytest.raises(InputError, match="batch_size must be"):
        check_batch_size(batch_size)


def test_inputs_made_under_inference_mode_can_take_part_in_a_gradient():
    with torch.inference_mode():
        made = torch.ones(4, 3)
        assert to_device(made, CPU) is made
    inputs = to_device(made, CPU).requires_grad_()
    inputs.square().sum().backward()
    assert torch.equal(inputs.grad, 2 * torch.ones(4, 3))


def test_inputs_that_are_there_already_are_not_copied():
    inputs = torch.ones(4, 3)
    assert to_device(inputs, CPU) is inputs
