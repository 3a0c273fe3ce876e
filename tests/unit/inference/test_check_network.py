"""A network that cannot be used is refused before any work, with what to do."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import LabelledInputs, check_network, frozen
from calibrant.inference.network import first_inputs


def samples(n=20, k=3, *, shape=(4,), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return LabelledInputs.of((torch.rand(n, *shape, generator=generator).to(dtype), torch.arange(n) % k))


class Answering(nn.Module):
    """Gives what a function makes of the inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, inputs):
        return self.function(inputs)


def refusal(network, data):
    with pytest.raises(InputError) as caught:
        check_network(network.eval(), data)
    return str(caught.value)


@pytest.mark.parametrize(
    "network",
    [
        nn.Linear(4, 7),
        nn.Sequential(nn.Linear(4, 7), nn.LogSoftmax(dim=1)),
        nn.Sequential(nn.Linear(4, 7), nn.Sigmoid()),  # between 0 and 1, but no sample adds up to 1
        nn.Sequential(nn.Linear(4, 7), nn.Softmax(dim=1), Answering(lambda probs: probs - 1e-2)),
        nn.Sequential(nn.Linear(4, 7), Answering(lambda logits: (logits, None))),
        nn.Sequential(nn.Linear(4, 7), Answering(lambda logits: {"logits": logits})),
        Answering(lambda inputs: inputs.sub_(0.5).repeat(1, 2)[:, :7]),  # writes into what it is given
    ],
)
def test_the_classes_of_a_usable_network_are_counted(network):
    data = samples()
    before = first_inputs(network, data).clone()
    assert check_network(network.eval(), data) == 7
    assert torch.equal(first_inputs(network, data), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_probabilities_are_refused_with_what_to_do(dtype, k):
    network = nn.Sequential(nn.Linear(4, k), Answering(lambda logits: logits.float().softmax(1).to(logits))).to(dtype)
    message = refusal(network, samples(k=2, dtype=dtype))
    assert "must return logits; got probabilities" in message
    assert "Leave out its last softmax" in message


def test_logits_that_are_not_finite_are_refused():
    for value in (float("nan"), float("inf")):
        network = nn.Linear(4, 3)
        network.bias.data[1] = value
        assert "logits must be finite" in refusal(network, samples())


def test_inputs_of_another_shape_are_refused_with_the_networks_message():
    message = refusal(nn.Linear(5, 3), samples())
    assert "must take inputs of shape (n, 4); for 16 it raised RuntimeError: mat1 and mat2" in message
    assert "(n, 1, 8, 8)" in refusal(nn.Conv2d(3, 4, 3), samples(shape=(1, 8, 8)))


def test_a_network_that_wants_more_than_the_inputs_is_refused():
    assert "must take inputs of shape (n, 6, 4)" in refusal(nn.Bilinear(4, 4, 3), samples(shape=(6, 4)))


@pytest.mark.parametrize("error", [KeyError("k"), AttributeError("a"), ZeroDivisionError(), OSError("one\ntwo")])
def test_whatever_a_network_raises_is_reported_in_a_line(error):
    def breaks(_inputs):
        raise error

    message = refusal(Answering(breaks), samples())
    assert f"for 16 it raised {type(error).__name__}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("own", "given"), list(itertools.permutations([torch.float16, torch.bfloat16, torch.float32, torch.float64], 2))
)
def test_inputs_of_another_type_are_refused_with_two_ways_out_that_lead_out(own, given):
    network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).to(own).eval()
    assert refusal(network, samples(dtype=given)) == (
        f"inputs must be of the network's own type, {own}; got {given}. Convert them to {own}, or the network with "
        f"model.to({given})."
    )
    assert check_network(network, samples(dtype=own)) == 3
    assert check_network(network.to(given), samples(dtype=given)) == 3


def test_inputs_of_another_type_are_taken_where_the_network_or_torch_casts_them():
    with torch.autocast("cpu", torch.bfloat16):
        assert check_network(nn.Linear(4, 3).bfloat16(), samples()) == 3
    assert check_network(nn.Sequential(Answering(torch.Tensor.double), nn.Linear(4, 3).double()), samples()) == 3


def test_labels_out_of_range_are_refused():
    message = "labels must lie in 0..1, as there are 2 classes; got 2 at row 2 (counting from 0)."
    assert refusal(nn.Linear(4, 2), samples(k=3)) == message


def test_a_network_without_weights_is_refused():
    assert "on the meta device" in refusal(nn.Linear(4, 3, device="meta"), samples())


@pytest.mark.parametrize(
    "function",
    [
        lambda inputs: inputs[:1],  # one sample for all
        lambda inputs: inputs.repeat(2, 1),
    ],
)
def test_a_sample_of_logits_for_each_input_is_wanted(function):
    assert "must give one row of logits per input" in refusal(Answering(function), samples())


@pytest.mark.parametrize("output", ["no logits", torch.zeros(20), torch.zeros(20, 3, 2), torch.zeros(20, 1)])
def test_what_is_no_logits_is_refused(output):
    assert "logits" in refusal(Answering(lambda _inputs: output), samples())


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        return iter([(torch.rand(4, generator=generator), row % 3) for row in range(40)])


class TestFewRows:
    def test_they_are_a_few_of_any_data(self):
        for n in (1, 5, 40):
            assert first_inputs(nn.Linear(4, 3), samples(n)).shape == (min(n, 16), 4)

    def test_they_are_as_many_of_a_loader_that_gives_one_at_a_time(self):
        data = LabelledInputs.of(DataLoader(Stream(), batch_size=1))
        assert first_inputs(nn.Linear(4, 3), data).shape == (16, 4)

    @pytest.mark.parametrize(("batch_size", "few"), [(1, 2), (2, 2), (7, 7), (100, 16)])
    def test_they_are_no_more_than_a_batch_but_two(self, batch_size, few):
        data = LabelledInputs.of(samples(), batch_size=batch_size)
        assert first_inputs(nn.Linear(4, 3), data).shape == (few, 4)


def exported(network, **limits):
    rows_taken = torch.export.Dim("n", **limits) if limits else None
    shapes = None if rows_taken is None else ({0: rows_taken},)
    return torch.export.export(network.eval(), (torch.rand(5, 4),), dynamic_shapes=shapes).module()


def count(network, data, **options):
    with frozen(network):
        return check_network(network, data, **options)


class TestBatches:
    def test_an_exported_network_of_a_largest_batch_is_refused_until_batches_are_as_small(self):
        network = exported(nn.Linear(4, 3), min=1, max=8)
        with pytest.raises(InputError, match=r"for 16 it raised .*<= 8.*give a batch_size it takes; else export it"):
            count(network, samples())
        assert count(network, LabelledInputs.of(samples(), batch_size=8)) == 3

    def test_a_limit_beyond_the_few_samples_is_found_too(self):
        network, data = exported(nn.Linear(4, 3), min=1, max=64), samples(200)
        with pytest.raises(
            InputError, match=r"must take a batch of 200 samples; it takes 16, .*<= 64.*smaller batch_size"
        ):
            count(network, data)
        small = LabelledInputs.of(data, batch_size=64)
        assert count(network, small) == 3
        with pytest.raises(InputError, match=r"must take a batch of 100 samples"):
            count(network, small, batch_size=100)

    def test_an_exported_network_of_one_batch_size_is_refused_with_how_to_export_it(self):
        refusals = {
            r"for 16 it {} 5\b.*; else {}": {},
            r"takes 16, and for one it {} >= 4\b.*; if it is exported, {}": {"min": 4},
        }
        raised = "raised (AssertionError|RuntimeError): .*"  # the second one by torch 2.6
        exporting = r".*torch\.export\.export\(\.\.\., dynamic_shapes=\(\{0: torch\.export\.Dim\('n'\)\},\)\)"
        for said, size in refusals.items():
            with pytest.raises(InputError, match=said.format(raised, exporting)):
                count(exported(nn.Linear(4, 3), **size), samples())
        assert count(exported(nn.Linear(4, 3), min=1), samples()) == 3

    def test_a_network_that_drops_the_batch_axis_of_one_sample_is_refused(self):
        network = nn.Sequential(nn.Linear(4, 3), Answering(torch.squeeze))
        assert "any number of samples; it takes 16, and for one it raised" in refusal(network, samples())


def batch_normalised(inputs):
    return (inputs - inputs.mean(dim=0)) / (inputs.std(dim=0, unbiased=False) + 1)


class TestCoupledRows:
    @pytest.mark.parametrize(
        "mixes",
        [
            batch_normalised,
            lambda inputs: inputs + inputs.amax(dim=0),
            lambda inputs: inputs.softmax(dim=0),  # the wrong axis
            lambda inputs: nn.functional.dropout(inputs, training=True),
        ],
    )
    def test_logits_that_depend_on_the_samples_beside_are_reported(self, mixes):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 8), Answering(mixes), nn.Linear(8, 3)).eval()
        with pytest.warns(
            CalibrantWarning, match=r"must not depend on the others in its batch.*mixes samples, or for dropout"
        ):
            assert check_network(network, samples()) == 3

    def test_a_batch_norm_without_running_statistics_is_named(self):
        layer = nn.BatchNorm2d(3, track_running_stats=False)
        network = nn.Sequential(nn.Conv2d(1, 3, 3), layer, nn.Flatten(), nn.Linear(12, 3)).eval()
        with pytest.warns(CalibrantWarning, match=r"BatchNorm '1' keeps no running statistics.*=True"):
            assert check_network(network, samples(shape=(1, 4, 4))) == 3

    def test_one_that_takes_no_single_sample_is_refused_and_named(self):
        network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3))
        assert "for one it raised ValueError: Expected more than 1" in (message := refusal(network, samples()))
        assert "BatchNorm '1' keeps no running statistics" in message

    @pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of processors without bfloat16
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_rounding_is_no_dependence(self, dtype, monkeypatch):
        # On such processors torch then does without oneDNN for good, and other tests would round otherwise.
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", torch.backends.mkldnn.enabled)
        torch.manual_seed(0)
        layers = [part for _ in range(20) for part in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())]
        network = nn.Sequential(*layers, nn.LayerNorm(64), nn.Linear(64, 3)).to(dtype).eval()
        assert check_network(network, samples(shape=(64,), dtype=dtype)) == 3  # a warning would be an error
