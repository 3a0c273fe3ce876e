"""A network that cannot be used is refused before any work, with what to do."""

import pytest
import torch
from torch import nn

from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.network.probe import first_inputs, looked_through
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.errors import InputError


def rows(n=20, k=3, *, shape=(4,), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return CalibrationRows.of((torch.rand(n, *shape, generator=generator).to(dtype), torch.arange(n) % k))


class Answering(nn.Module):
    """Gives what a function makes of the inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, inputs):
        return self.function(inputs)


def refusal(network, data, space=None):
    with pytest.raises(InputError) as caught:
        looked_through(network.eval(), data, space)
    return str(caught.value)


@pytest.mark.parametrize(
    "network",
    [
        nn.Linear(4, 7),
        nn.Sequential(nn.Linear(4, 7), nn.LogSoftmax(dim=1)),
        nn.Sequential(nn.Linear(4, 7), nn.Sigmoid()),  # between 0 and 1, but no row adds up to 1
        nn.Sequential(nn.Linear(4, 7), nn.Softmax(dim=1), Answering(lambda probs: probs - 1e-2)),
        nn.Sequential(nn.Linear(4, 7), Answering(lambda logits: (logits, None))),
        nn.Sequential(nn.Linear(4, 7), Answering(lambda logits: {"logits": logits})),
        Answering(lambda inputs: inputs.sub_(0.5).repeat(1, 2)[:, :7]),  # writes into what it is given
    ],
)
def test_the_classes_of_a_usable_network_are_counted(network):
    data = rows()
    before = first_inputs(network, data).clone()
    assert looked_through(network.eval(), data) == 7
    assert torch.equal(first_inputs(network, data), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_probabilities_are_refused_with_what_to_do(dtype, k):
    network = nn.Sequential(nn.Linear(4, k), Answering(lambda logits: logits.float().softmax(1).to(logits))).to(dtype)
    told = refusal(network, rows(k=2, dtype=dtype))
    assert "must return logits; got probabilities" in told
    assert "Leave out its last softmax" in told


def test_logits_that_are_not_finite_are_refused():
    for value in (float("nan"), float("inf")):
        network = nn.Linear(4, 3)
        network.bias.data[1] = value
        assert "logits must be finite" in refusal(network, rows())


def test_inputs_of_another_shape_are_refused_with_what_the_network_said():
    told = refusal(nn.Linear(5, 3), rows())
    assert "must take inputs of shape (n, 4); it said: mat1 and mat2" in told
    assert "(n, 1, 8, 8)" in refusal(nn.Conv2d(3, 4, 3), rows(shape=(1, 8, 8)))


def test_a_network_that_wants_more_than_the_inputs_is_refused():
    assert "must take inputs of shape (n, 6, 4)" in refusal(nn.Bilinear(4, 4, 3), rows(shape=(6, 4)))


def test_inputs_of_another_type_are_refused_unless_they_are_cast_anyway():
    told = refusal(nn.Linear(4, 3).double(), rows())
    assert told == (
        "inputs must be of the network's own type, torch.float64; got torch.float32. Convert them, or the network with "
        "model.float()."
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert looked_through(nn.Linear(4, 3).bfloat16(), rows()) == 3


def test_labels_out_of_range_are_refused():
    assert refusal(nn.Linear(4, 2), rows(k=3)) == "labels must lie in 0..1 (2 classes from logits); got 2."


@pytest.mark.parametrize(
    "function",
    [
        lambda inputs: inputs[:1],  # one row for all
        lambda inputs: inputs.repeat(2, 1),
    ],
)
def test_a_row_of_logits_for_each_input_is_wanted(function):
    assert "must give a row of logits an input" in refusal(Answering(function), rows())


@pytest.mark.parametrize("output", ["no logits", torch.zeros(20), torch.zeros(20, 3, 2), torch.zeros(20, 1)])
def test_what_is_no_logits_is_refused(output):
    assert "logits" in refusal(Answering(lambda _inputs: output), rows())


class TestSpace:
    def test_inputs_of_8_bits_normalised_in_any_precision_lie_inside(self):
        pixels = torch.arange(256).reshape(256, 1, 1, 1) / 255
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            inputs = ((pixels - 0.4914) / 0.2023).to(dtype)
            data = CalibrationRows.of((inputs, torch.arange(256) % 2))
            network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2)).to(dtype)
            assert looked_through(network, data, InputSpace(mean=(0.4914,), std=(0.2023,))) == 2

    @pytest.mark.parametrize("step", [-1, 1])
    def test_one_pixel_a_step_of_8_bits_outside_is_found_wherever_it_is(self, step):
        inputs = torch.rand(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        inputs[37, 2, 1, 3] = 1 + 1 / 255 if step > 0 else -1 / 255
        data = CalibrationRows.of((inputs, torch.arange(50) % 2), batch_size=8)
        told = refusal(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), data, InputSpace())
        assert told.startswith(
            "inputs must lie in the space's range, 0 to 1 as the network takes them; row 37 goes from"
        )
        assert "low, high, mean and std" in told

    def test_inputs_that_were_not_normalised_are_refused(self):
        data = CalibrationRows.of((torch.rand(50, 3, 4, 4) * 255, torch.arange(50) % 2))
        assert "row 0 goes from" in refusal(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), data, InputSpace())

    def test_a_normalisation_of_other_channels_is_refused(self):
        told = refusal(nn.Linear(4, 3), rows(), InputSpace(mean=(0.1, 0.2, 0.3)))
        assert "must have the channels of the normalisation, 3; got 4" in told


def test_the_first_inputs_are_a_few_rows_of_any_data():
    for n in (1, 5, 40):
        assert first_inputs(nn.Linear(4, 3), rows(n)).shape == (min(n, 16), 4)
