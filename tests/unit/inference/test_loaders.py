"""Labelled samples are the same in any container, and unreadable data are refused with a reason."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from row_examples import INPUTS, KINDS, LABELS, Failing, Items, N, Stream, TensorLabels, ragged
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from calibrant.errors import InputError
from calibrant.inference.samples import open_samples, read_checked

TOKENS = torch.arange(8 * N, dtype=torch.int32).view(N, 8)


def joined(batches):
    inputs, labels, positions = zip(*batches, strict=True)
    return torch.cat(inputs), torch.cat(labels), torch.cat(positions)


def read(data, chosen=None, batch_size=None):
    wanted = None if chosen is None else torch.as_tensor(chosen)
    return joined(open_samples(data).read(wanted, batch_size))


@pytest.mark.parametrize("kind", KINDS)
@given(batch_size=st.none() | st.integers(1, N + 3))
def test_every_kind_of_data_gives_the_same_samples_in_batches_of_any_size(kind, batch_size):
    source = open_samples(KINDS[kind]())
    for _ in range(2):
        batches = list(read_checked(source, batch_size))
        inputs, labels, positions = joined(batches)
        assert torch.equal(inputs, INPUTS)
        assert torch.equal(positions, torch.arange(N))
        assert labels.dtype == torch.int64
        assert torch.equal(labels, LABELS)
        assert all(len(item) <= (batch_size or N) for item, _, _ in batches)
    assert source.n_samples in {N, None}


@pytest.mark.parametrize("kind", KINDS)
@given(chosen=st.lists(st.integers(0, N - 1), unique=True, min_size=1), batch_size=st.none() | st.integers(1, N))
def test_chosen_samples_come_in_the_order_asked_for_or_as_they_come(kind, chosen, batch_size):
    source = open_samples(KINDS[kind]())
    wanted = torch.tensor(chosen)
    inputs, labels, positions = joined(source.read(wanted, batch_size))
    assert torch.equal(positions, wanted.sort().values if source.n_samples is None else wanted)
    assert torch.equal(inputs, INPUTS[positions])
    assert torch.equal(labels, LABELS[positions])


@pytest.mark.parametrize("inputs", [TOKENS, TOKENS[:, 0], TOKENS.bool(), TOKENS.to(torch.complex64)])
@pytest.mark.parametrize(
    "kind", [lambda *data: data, TensorDataset, TensorLabels, lambda *data: DataLoader(Items(*data), shuffle=True)]
)
def test_inputs_are_given_as_they_are_whatever_their_type(inputs, kind):
    data = kind(inputs, LABELS)
    for chosen in (None, [4, 0, 9]):
        result, _, positions = read(data, chosen, 2)
        assert result.dtype == inputs.dtype
        assert torch.equal(result, inputs[positions])


def test_tensors_are_given_as_views_and_gathered_in_their_memory_format():
    inputs = INPUTS.contiguous(memory_format=torch.channels_last)
    source = open_samples((inputs, LABELS))
    first, _, _ = next(source.read(None, 4))
    assert first.data_ptr() == inputs.data_ptr()
    gathered, _, _ = next(source.read(torch.arange(9), None))
    assert gathered.is_contiguous(memory_format=torch.channels_last)


def test_tensors_in_a_data_set_are_given_as_views_too():
    source = open_samples(DataLoader(TensorDataset(INPUTS, LABELS), shuffle=True))
    first, _, _ = next(source.read(None, 4))
    assert first.data_ptr() == INPUTS.data_ptr()


def test_a_sample_may_be_chosen_twice_where_samples_can_be_asked_for():
    for data in ((INPUTS, LABELS), Items()):
        assert torch.equal(read(data, [4, 2, 4])[0], INPUTS[[4, 2, 4]])


def test_a_loaders_own_batch_size_is_known():
    assert open_samples(DataLoader(Items(), batch_size=5)).own_batch_size == 5
    assert open_samples(DataLoader(Items(), batch_sampler=BatchSampler(range(N), 6, False))).own_batch_size == 6
    assert open_samples(DataLoader(TensorDataset(INPUTS, LABELS), batch_size=5)).own_batch_size == 5
    assert open_samples((INPUTS, LABELS)).own_batch_size is None


def test_a_stream_comes_in_its_own_batches_and_larger_ones_are_cut():
    source = open_samples(DataLoader(Stream(), batch_size=9))
    assert [len(positions) for _, _, positions in source.read(None, None)] == [9, 9, 5]
    assert [len(positions) for _, _, positions in source.read(None, 6)] == [6, 3, 6, 3, 5]


@pytest.mark.parametrize("kind", [Items, lambda: TensorDataset(INPUTS, LABELS)])
def test_a_sampler_of_some_samples_gives_those_in_ascending_order(kind):
    picked = [17, 3, 11, 5]
    loader = DataLoader(kind(), batch_size=3, sampler=SubsetRandomSampler(picked))
    inputs, labels, _ = read(loader)
    assert torch.equal(labels, LABELS[sorted(picked)])
    assert torch.equal(inputs, INPUTS[sorted(picked)])
    assert torch.equal(read(loader, [3, 0])[0], INPUTS[[17, 3]])


def test_a_subset_keeps_its_own_order_also_from_the_end():
    for indices in ([9, 2, 2, 5], torch.tensor([-1, 0, 4]), np.array([3, 1])):
        for base in (Items(), TensorDataset(INPUTS, LABELS)):
            inputs, labels, _ = read(Subset(Subset(base, range(N)), indices))
            assert torch.equal(inputs, INPUTS[indices])
            assert torch.equal(labels, LABELS[indices])


def test_only_chosen_samples_are_read():
    data = Items()
    assert open_samples(data).n_samples == N
    assert data.reads == 0
    read(data, [3, 8])
    assert data.reads == 2


def test_reading_moves_no_random_numbers_of_the_program():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Items(), batch_size=5, shuffle=True, generator=generator)
    torch.manual_seed(4)
    before = torch.get_rng_state(), generator.get_state()
    for data in (loader, DataLoader(Items(), shuffle=True), Items(), (INPUTS, LABELS)):
        read(data, batch_size=4)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(generator.get_state(), before[1])


def doubled(items):
    inputs, labels = default_collate(items)
    return 2 * inputs, labels.tolist()


def test_a_loaders_collation_is_used_and_its_pinning_only_where_there_is_a_gpu():
    inputs, labels, _ = read(DataLoader(Items(), batch_size=5, collate_fn=doubled, pin_memory=True))
    assert torch.equal(inputs, 2 * INPUTS)
    assert torch.equal(labels, LABELS)


class Marked(Items):
    mark = 0

    def __getitem__(self, row):
        return self.inputs[row] + self.mark, int(self.labels[row])


def mark_worker(_):
    torch.utils.data.get_worker_info().dataset.mark = 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_and_what_they_do_first_are_kept_and_passes_may_overlap(persistent):
    loader = DataLoader(
        Marked(), batch_size=5, shuffle=True, num_workers=1, worker_init_fn=mark_worker, persistent_workers=persistent
    )
    source = open_samples(loader)
    assert torch.equal(joined(source.read(None, 5))[0], INPUTS + 1)
    started = source.read(None, 5)
    first, _, _ = next(started)
    assert torch.equal(joined(source.read(torch.tensor([7, 4]), 5))[0], INPUTS[[7, 4]] + 1)
    assert torch.equal(torch.cat([first, *(inputs for inputs, _, _ in started)]), INPUTS + 1)
    next(source.read(None, 5))  # given up in the middle
    assert torch.equal(joined(source.read(None, 5))[0], INPUTS + 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_a_worker_refuses_is_refused_in_the_same_words():
    with pytest.raises(InputError, match=r"^the samples of .* of one shape; got shapes \(3, 4, 5\) and \(3, 3, 5\)\."):
        read(DataLoader(Items(ragged()), batch_size=N, num_workers=1))
    with pytest.raises(InputError, match=r"the data set or its loader raised KeyError: 'no row 7'\. Fix"):
        read(DataLoader(Failing(), batch_size=4, num_workers=1))


class Lengthless(Dataset):
    def __getitem__(self, row):
        return INPUTS[row], 0


def as_mapping(items):
    inputs, labels = default_collate(items)
    return {"pixels": inputs, "labels": labels}


def dropping_collate(items):
    return default_collate(items[1:])


def triple(items):
    return (*default_collate(items), 0)


def loader(**options):
    return DataLoader(Items(), **options)


BAD = {
    "no samples": ((INPUTS[:0], LABELS[:0]), r"at least one sample; got none"),
    "no samples in a data set": (Items(INPUTS[:0], LABELS[:0]), r"at least one sample; got none"),
    "no samples in a stream": (DataLoader(Stream(LABELS[:0])), r"at least one sample; got none"),
    "other lengths": ((INPUTS, LABELS[:-1]), r"same number of rows; got 23 and 22"),
    "one label": ((INPUTS, LABELS[0]), r"same number of rows; got 23 and a single number"),
    "one input": ((INPUTS[0, 0, 0, 0], LABELS), r"shape \(n, \.\.\.\); got a single number"),
    "one-hot labels": ((INPUTS, torch.eye(N)), r"one number a row, shape \(n,\); got shape \(23, 23\).*argmax"),
    "real labels": ((INPUTS, LABELS + 0.5), r"labels must be whole numbers.*float32.*labels\.long\(\)"),
    "real labels in a data set": (TensorLabels(labels=LABELS.double()), r"labels must be whole numbers.*float64"),
    "words as labels": ((INPUTS, ["cat"] * N), r"labels must be a tensor, an array"),
    "a missing label": ((INPUTS, LABELS - LABELS.max() * (torch.arange(N) == 9)), r"at least 0; got -\d at row 9"),
    "ragged": (Items(ragged()), r"pairs \(input, label\), .* of one shape; got shapes \(3, 4, 5\) and \(3, 3, 5\)\."),
    "objects": (Items([object()] * N), r"pairs \(input, label\)"),
    "one tensor": (INPUTS, r"data must be a tuple \(inputs, labels\), a Dataset or a DataLoader; got Tensor"),
    "three tensors": ((INPUTS, LABELS, LABELS), r"data must be a tuple.*got a tuple of 3"),
    "a list of two": ([INPUTS, LABELS], r"a DataLoader; got list\. Pass one tuple"),
    "a bare iterable": (Stream(), r"must come in a DataLoader.*DataLoader\(data, batch_size=\.\.\.\)"),
    "no length": (Lengthless(), r"must have a length.*Lengthless has none"),
    "mappings": (loader(collate_fn=as_mapping), r"pair \(inputs, labels\).*got a dict of pixels, labels"),
    "three in a batch": (loader(collate_fn=triple), r"got a tuple of Tensor, Tensor, int"),
    "single samples": (DataLoader(Items(), batch_size=None), r"shapes \(m, \.\.\.\) and \(m,\); got"),
    "samples dropped": (loader(batch_size=4, collate_fn=dropping_collate), r"keep every sample; from 8 it made 7"),
    "drawn again": (
        loader(sampler=WeightedRandomSampler([1.0] + [0.0] * (N - 1), 4)),
        r"at most once; it gave index 0 twice",
    ),
    "named samples": (loader(sampler=["a", "b"]), r"the index of each sample.*it gave 'a'"),
    "a data set that fails": (Items(INPUTS[:9], LABELS), r"every sample .* must be readable; .* IndexError"),
    "a stream that fails": (DataLoader(Failing(), batch_size=5), r"raised KeyError: 'no row 7'\. Fix"),
    "ragged in a stream": (DataLoader(Failing(ragged(2)), batch_size=5), r"raised RuntimeError: stack expects"),
    "nowhere": ((INPUTS.to("meta"), LABELS), r"inputs must hold numbers; got a tensor on the meta device"),
    "labels nowhere": ((INPUTS, LABELS.to("meta")), r"labels must hold numbers"),
    "nowhere in a data set": (TensorDataset(INPUTS.to("meta"), LABELS), r"inputs must hold numbers"),
    "sparse": ((INPUTS.flatten(1).to_sparse(), LABELS), r"a plain tensor.*got a sparse one.*to_dense"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_that_cannot_be_read_are_refused(case):
    data, message = BAD[case]
    with pytest.raises(InputError, match=message):
        list(read_checked(open_samples(data), 8))
