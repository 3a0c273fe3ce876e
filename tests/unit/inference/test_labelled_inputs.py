"""Calibration samples are the same samples at every pass, and whatever δ cannot be added to is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from row_examples import INPUTS, KINDS, LABELS, Failing, Items, N, Stream, TensorLabels, ragged
from torch.utils.data import DataLoader, TensorDataset

from calibrant.errors import InputError
from calibrant.inference import LabelledInputs

WAYS = ["tensors", "data set", "shuffling loader", "iterable"]  # all kinds are tried where they are opened


def read(samples, chosen=None, batch_size=None):
    batches = list(samples.batches(chosen, device="cpu", batch_size=batch_size))
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([positions for _, positions in batches])


@pytest.mark.parametrize("kind", WAYS)
@given(batch_size=st.none() | st.integers(1, N + 3), made_with=st.none() | st.integers(1, N + 3))
def test_every_kind_of_data_gives_the_same_samples_in_batches_of_any_size(kind, batch_size, made_with):
    samples = LabelledInputs.of(KINDS[kind](), batch_size=made_with)
    assert len(samples) == N
    assert samples.input_shape == (3, 4, 5)
    assert samples.input_dtype == torch.float32
    assert samples.labels.dtype == torch.int64
    assert torch.equal(samples.labels, LABELS)
    for _ in range(2):
        inputs, positions = read(samples, batch_size=batch_size)
        assert torch.equal(inputs, INPUTS)
        assert torch.equal(positions, torch.arange(N))
    size = batch_size or made_with or N
    assert all(len(inputs) <= size for inputs, _ in samples.batches(device="cpu", batch_size=batch_size))


@pytest.mark.parametrize("kind", WAYS)
@given(chosen=st.lists(st.integers(0, N - 1), unique=True), batch_size=st.none() | st.integers(1, N))
def test_chosen_samples_come_in_the_order_asked_for_or_as_they_come(kind, chosen, batch_size):
    samples = LabelledInputs.of(KINDS[kind]())
    wanted = torch.tensor(chosen, dtype=torch.int64)
    if not chosen:
        assert list(samples.batches(wanted, device="cpu")) == []
        return
    inputs, positions = read(samples, wanted, batch_size)
    assert torch.equal(positions, wanted.sort().values if samples.is_stream else wanted)
    assert torch.equal(inputs, INPUTS[positions])


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 32, 32), 341), ((10,), 1024), ((3, 600, 600), 1), ((1, 1024, 1024), 1)]
)
@pytest.mark.parametrize("kind", [lambda *data: data, TensorDataset, TensorLabels])
def test_a_batch_holds_about_a_million_numbers_by_default(shape, size, kind):
    inputs = torch.zeros(1, *shape).expand(1100 if size > 1 else 2, *shape)
    samples = LabelledInputs.of(kind(inputs, torch.zeros(len(inputs), dtype=torch.int64)))
    assert len(next(samples.batches(device="cpu"))[0]) == size


def test_a_loaders_own_batch_size_is_kept_unless_another_is_given():
    assert LabelledInputs.of(DataLoader(Items(), batch_size=5)).batch_size == 5
    samples = LabelledInputs.of(DataLoader(Items(), batch_size=5), batch_size=4)
    assert [len(positions) for _, positions in samples.batches(device="cpu")] == [4, 4, 4, 4, 4, 3]
    assert LabelledInputs.of(samples).batch_size == 4
    assert LabelledInputs.of(samples, batch_size=9).batch_size == 9


def test_a_stream_comes_in_its_own_batches_and_larger_ones_are_cut():
    samples = LabelledInputs.of(DataLoader(Stream(), batch_size=9))
    assert [len(positions) for _, positions in samples.batches(device="cpu")] == [9, 9, 5]
    assert [len(positions) for _, positions in samples.batches(device="cpu", batch_size=6)] == [6, 3, 6, 3, 5]


def test_a_sample_is_read_once_to_be_checked_and_once_a_pass():
    data = Items()
    samples = LabelledInputs.of(data, batch_size=4)
    assert data.reads == N
    list(samples.batches(torch.tensor([3, 8]), device="cpu"))
    assert data.reads == N + 2


def test_a_stream_whose_labels_change_is_refused():
    other = LABELS.clone()
    other[11] = LABELS[11] + 1
    samples = LabelledInputs.of(DataLoader(Stream(LABELS, other), batch_size=5))
    with pytest.raises(InputError, match=r"same order at every pass; the label of sample 11 was "):
        read(samples)


@pytest.mark.parametrize(("later", "came"), [(LABELS[:-4], "19"), (LABELS[:0], "0")])
def test_a_stream_that_cannot_start_again_is_refused(later, came):
    samples = LabelledInputs.of(DataLoader(Stream(LABELS, later), batch_size=5))
    with pytest.raises(InputError, match=f"the same samples at every pass; expected 23, got {came}"):
        list(samples.batches(device="cpu"))


def test_a_stream_that_gives_more_than_at_first_is_refused():
    samples = LabelledInputs.of(DataLoader(Stream(LABELS[:8], LABELS), batch_size=4))
    with pytest.raises(InputError, match="expected 8, got 12 or more"):
        list(samples.batches(device="cpu"))


def test_a_data_set_whose_labels_change_is_refused():
    data = Items(labels=LABELS.clone())
    samples = LabelledInputs.of(data)
    data.labels[6] += 1
    with pytest.raises(InputError, match="the label of sample 6 was"):
        read(samples)


def inputs_with(value, row=21):
    inputs = INPUTS.clone()
    inputs[row, 1, 2, 3] = value
    return inputs


BAD = {
    "no samples": ((INPUTS[:0], LABELS[:0]), r"at least one sample; got none"),
    "no samples in a stream": (DataLoader(Stream(LABELS[:0])), r"at least one sample; got none"),
    "images as stored": ((INPUTS.to(torch.uint8), LABELS), r"torch\.uint8.*Convert to float as in training"),
    "tokens": ((torch.ones(N, 8, dtype=torch.int64), LABELS), r"torch\.int64\. δ has no meaning for tokens"),
    "tokens in a data set": (Items(torch.ones(N, 8, dtype=torch.int32)), r"int32\. δ has no meaning for tokens"),
    "truth values": ((INPUTS > 0, LABELS), r"torch\.bool"),
    "NaN": ((inputs_with(float("nan")), LABELS), r"finite; got nan at row 21 \(counting from 0\), entry \(1, 2, 3\)"),
    "infinite": ((inputs_with(-float("inf")), LABELS), r"finite; got -inf at row 21"),
    "NaN in a data set": (Items(inputs_with(float("nan"))), r"finite; got nan at row 21"),
    "NaN in a loader": (DataLoader(Items(inputs_with(float("nan"))), batch_size=4), r"finite; got nan at row 21"),
    "ragged batches": (
        DataLoader(Items(ragged()), batch_size=1),
        r"one shape.*got \(3, 4, 5\) first and \(3, 3, 5\) at row 21",
    ),
    "a number per sample": ((INPUTS[:, 0, 0, 0], LABELS), r"shape \(n, \.\.\.\).*; got shape \(23,\).*\(n, 1\)"),
    "a number per sample in a data set": (Items(INPUTS[:, 0, 0, 0]), r"shape \(n, \.\.\.\).*; got shape \(\d+,\)"),
    "empty inputs": ((INPUTS[:, :0], LABELS), r"none of it empty; got shape \(23, 0, 4, 5\)"),
    "two types": (DataLoader(Failing([*INPUTS[:6], *INPUTS.double()]), batch_size=3), r"float32, and .*64 at row 6"),
    "eight bits": ((INPUTS.to(torch.float8_e4m3fn), LABELS), r"16 to 64 bits; got torch\.float8.*Convert them to"),
    "complex": ((INPUTS.to(torch.complex64), LABELS), r"got torch\.complex64\. Convert them to float32"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_that_cannot_be_fitted_on_are_refused(case):
    data, message = BAD[case]
    with pytest.raises(InputError, match=message):
        LabelledInputs.of(data)


@pytest.mark.parametrize("batch_size", [np.int64(5), np.uint8(5), 10**30])
def test_a_batch_size_may_be_of_numpy_and_larger_than_anything(batch_size):
    for kind in ("tensors", "data set", "iterable"):
        samples = LabelledInputs.of(KINDS[kind](), batch_size=batch_size)
        assert type(samples.batch_size) is int
        assert torch.equal(read(samples)[0], INPUTS)
        assert torch.equal(read(samples, batch_size=batch_size)[0], INPUTS)


def test_inputs_made_under_inference_mode_can_take_part_in_a_gradient():
    with torch.inference_mode():
        data = INPUTS.clone(), LABELS.clone()
    inputs, _ = next(LabelledInputs.of(data).batches(device="cpu"))
    assert inputs.requires_grad_().square().sum().backward() is None
    assert torch.equal(inputs.grad, 2 * INPUTS)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    with pytest.raises(InputError, match="batch_size must be"):
        LabelledInputs.of((INPUTS, LABELS), batch_size=batch_size)
    with pytest.raises(InputError, match="batch_size must be"):
        LabelledInputs.of((INPUTS, LABELS)).batches(device="cpu", batch_size=batch_size)
