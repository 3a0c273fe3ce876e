"""Calibration rows are the same rows however they are kept, and whatever cannot be fitted on is refused in words."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.errors import InputError

N = 23
INPUTS = torch.randn(N, 3, 4, 5, generator=torch.manual_seed(0))
LABELS = torch.randint(0, 7, (N,), generator=torch.manual_seed(1))


class Items(Dataset):
    """Read one by one; labels as Python numbers."""

    def __init__(self, inputs=INPUTS, labels=LABELS):
        self.inputs, self.labels, self.reads = inputs, labels, 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        self.reads += 1
        return self.inputs[row], int(self.labels[row])


class TensorLabels(Items):
    def __getitem__(self, row):
        return self.inputs[row], self.labels[row]


class Stream(IterableDataset):
    """Gives the labels of a list of passes, the last of them for ever."""

    def __init__(self, *passes):
        self.passes, self.count = passes or (LABELS,), 0

    def __iter__(self):
        labels = self.passes[min(self.count, len(self.passes) - 1)]
        self.count += 1
        return iter([(INPUTS[row], int(label)) for row, label in enumerate(labels)])


class OwnLoader(DataLoader):
    """Does something of its own to every batch, which a loader built anew would not."""

    def __iter__(self):
        for inputs, labels in super().__iter__():
            yield 2 * inputs, labels


def doubled(items):
    inputs, labels = default_collate(items)
    return 2 * inputs, labels.tolist()


def grouped():
    """Batches that a sampler of one's own makes, in an order of its own."""
    return [[5, 1, 2], list(range(6, N)), [0, 3, 4]]


KINDS = {
    "tensors": lambda: (INPUTS, LABELS),
    "arrays": lambda: (INPUTS.numpy(), LABELS.numpy()),
    "channels last": lambda: (INPUTS.contiguous(memory_format=torch.channels_last), LABELS),
    "labels in a list": lambda: (INPUTS, LABELS.tolist()),
    "data set": Items,
    "data set of tensor labels": TensorLabels,
    "tensor data set": lambda: TensorDataset(INPUTS, LABELS),
    "whole subset": lambda: Subset(Subset(TensorDataset(INPUTS, LABELS), range(N)), list(range(N))),
    "loader": lambda: DataLoader(Items(), batch_size=5),
    "shuffling loader": lambda: DataLoader(Items(), batch_size=5, shuffle=True),
    "shuffling loader of tensors": lambda: DataLoader(TensorDataset(INPUTS, LABELS), batch_size=5, shuffle=True),
    "dropping loader": lambda: DataLoader(Items(), batch_size=5, drop_last=True),
    "random batch sampler": lambda: DataLoader(
        Items(), batch_sampler=BatchSampler(RandomSampler(range(N)), 5, drop_last=True)
    ),
    "own batch sampler": lambda: DataLoader(Items(), batch_sampler=grouped()),
    "iterable": lambda: DataLoader(Stream(), batch_size=5),
    "dropping iterable": lambda: DataLoader(Stream(), batch_size=5, drop_last=True),
    "loader of its own class": lambda: OwnLoader(Items(INPUTS / 2), batch_size=5),
}


def read(rows, chosen=None, batch_size=None):
    batches = list(rows.batches(chosen, device="cpu", batch_size=batch_size))
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([positions for _, positions in batches])


@pytest.mark.parametrize("kind", KINDS)
@given(batch_size=st.none() | st.integers(1, N + 3), made_with=st.none() | st.integers(1, N + 3))
def test_every_kind_of_data_gives_the_same_rows_in_batches_of_any_size(kind, batch_size, made_with):
    rows = CalibrationRows.of(KINDS[kind](), batch_size=made_with)
    assert len(rows) == N
    assert rows.input_shape == (3, 4, 5)
    assert rows.input_dtype == torch.float32
    assert rows.labels.dtype == torch.int64
    assert torch.equal(rows.labels, LABELS)
    for _ in range(2):
        inputs, positions = read(rows, batch_size=batch_size)
        assert torch.equal(inputs, INPUTS)
        assert torch.equal(positions, torch.arange(N))
    size = batch_size or made_with or N
    assert all(len(inputs) <= size for inputs, _ in rows.batches(device="cpu", batch_size=batch_size))


@pytest.mark.parametrize("kind", KINDS)
@given(chosen=st.lists(st.integers(0, N - 1), unique=True), batch_size=st.none() | st.integers(1, N))
def test_chosen_rows_come_in_the_order_asked_for_or_as_they_come(kind, chosen, batch_size):
    rows = CalibrationRows.of(KINDS[kind]())
    wanted = torch.tensor(chosen, dtype=torch.int64)
    if not chosen:
        assert list(rows.batches(wanted, device="cpu")) == []
        return
    inputs, positions = read(rows, wanted, batch_size)
    assert torch.equal(positions, wanted.sort().values if rows.are_streamed else wanted)
    assert torch.equal(inputs, INPUTS[positions])


def test_tensors_are_given_as_views_and_gathered_in_their_memory_format():
    inputs = INPUTS.contiguous(memory_format=torch.channels_last)
    rows = CalibrationRows.of((inputs, LABELS))
    first, _ = next(rows.batches(device="cpu", batch_size=4))
    assert first.data_ptr() == inputs.data_ptr()
    gathered, _ = next(rows.batches(torch.arange(9), device="cpu"))
    assert gathered.is_contiguous(memory_format=torch.channels_last)


def test_tensors_in_a_data_set_are_given_as_views_too():
    rows = CalibrationRows.of(DataLoader(TensorDataset(INPUTS, LABELS), shuffle=True))
    first, _ = next(rows.batches(device="cpu"))
    assert first.data_ptr() == INPUTS.data_ptr()


def test_a_row_may_be_chosen_twice_where_rows_can_be_asked_for():
    twice = torch.tensor([4, 2, 4], dtype=torch.int32)
    for data in ((INPUTS, LABELS), Items()):
        assert torch.equal(read(CalibrationRows.of(data), twice)[0], INPUTS[twice])


@pytest.mark.parametrize(
    ("shape", "size"), [((3, 32, 32), 341), ((10,), 1024), ((3, 600, 600), 1), ((1, 1024, 1024), 1)]
)
@pytest.mark.parametrize("kind", [lambda *data: data, TensorDataset, TensorLabels])
def test_a_batch_holds_about_a_million_numbers_by_default(shape, size, kind):
    inputs = torch.zeros(1, *shape).expand(1100 if size > 1 else 2, *shape)
    rows = CalibrationRows.of(kind(inputs, torch.zeros(len(inputs), dtype=torch.int64)))
    assert len(next(rows.batches(device="cpu"))[0]) == size


def test_a_loaders_own_batch_size_is_kept_unless_another_is_given():
    assert CalibrationRows.of(DataLoader(Items(), batch_size=5)).batch_size == 5
    assert CalibrationRows.of(DataLoader(Items(), batch_sampler=BatchSampler(range(N), 6, False))).batch_size == 6
    assert CalibrationRows.of(DataLoader(TensorDataset(INPUTS, LABELS), batch_size=5)).batch_size == 5
    rows = CalibrationRows.of(DataLoader(Items(), batch_size=5), batch_size=4)
    assert [len(positions) for _, positions in rows.batches(device="cpu")] == [4, 4, 4, 4, 4, 3]
    assert CalibrationRows.of(rows).batch_size == 4
    assert CalibrationRows.of(rows, batch_size=9).batch_size == 9


def test_a_stream_comes_in_its_own_batches_and_larger_ones_are_cut():
    rows = CalibrationRows.of(DataLoader(Stream(), batch_size=9))
    assert [len(positions) for _, positions in rows.batches(device="cpu")] == [9, 9, 5]
    assert [len(positions) for _, positions in rows.batches(device="cpu", batch_size=6)] == [6, 3, 6, 3, 5]


@pytest.mark.parametrize("kind", [Items, lambda: TensorDataset(INPUTS, LABELS)])
def test_a_sampler_of_some_rows_gives_those_in_ascending_order(kind):
    picked = [17, 3, 11, 5]
    rows = CalibrationRows.of(DataLoader(kind(), batch_size=3, sampler=SubsetRandomSampler(picked)))
    assert torch.equal(rows.labels, LABELS[sorted(picked)])
    assert torch.equal(read(rows)[0], INPUTS[sorted(picked)])
    assert torch.equal(read(rows, torch.tensor([3, 0]))[0], INPUTS[[17, 3]])


def test_a_subset_keeps_its_own_order_also_from_the_end():
    for indices in ([9, 2, 2, 5], torch.tensor([-1, 0, 4]), np.array([3, 1])):
        for base in (Items(), TensorDataset(INPUTS, LABELS)):
            rows = CalibrationRows.of(Subset(Subset(base, range(N)), indices))
            assert torch.equal(read(rows)[0], INPUTS[indices])
            assert torch.equal(rows.labels, LABELS[indices])


def test_a_row_is_read_once_to_be_checked_and_once_a_pass():
    data = Items()
    rows = CalibrationRows.of(data, batch_size=4)
    assert data.reads == N
    list(rows.batches(torch.tensor([3, 8]), device="cpu"))
    assert data.reads == N + 2


def test_reading_moves_no_random_numbers_of_the_program():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Items(), batch_size=5, shuffle=True, generator=generator)
    torch.manual_seed(4)
    before = torch.get_rng_state(), generator.get_state()
    for data in (loader, DataLoader(Items(), shuffle=True), Items(), (INPUTS, LABELS)):
        read(CalibrationRows.of(data))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(generator.get_state(), before[1])


def test_a_loaders_collation_is_used_and_its_pinning_only_where_there_is_a_gpu():
    rows = CalibrationRows.of(DataLoader(Items(), batch_size=5, collate_fn=doubled, pin_memory=True))
    assert torch.equal(read(rows)[0], 2 * INPUTS)
    assert torch.equal(rows.labels, LABELS)


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
        Marked(),
        batch_size=5,
        shuffle=True,
        num_workers=1,
        worker_init_fn=mark_worker,
        persistent_workers=persistent,
    )
    rows = CalibrationRows.of(loader)
    assert torch.equal(read(rows)[0], INPUTS + 1)
    started = rows.batches(device="cpu")
    first, _ = next(started)
    assert torch.equal(read(rows, torch.tensor([7, 4]))[0], INPUTS[[7, 4]] + 1)
    assert torch.equal(torch.cat([first, *(inputs for inputs, _ in started)]), INPUTS + 1)
    next(iter(rows.batches(device="cpu")))  # given up in the middle
    assert torch.equal(read(rows)[0], INPUTS + 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_a_worker_refuses_is_refused_in_the_same_words():
    with pytest.raises(InputError, match=r"^the rows of .* of one shape; got shapes \(3, 4, 5\) and \(3, 3, 5\)\."):
        CalibrationRows.of(DataLoader(Items(ragged()), batch_size=N, num_workers=1))
    with pytest.raises(InputError, match=r"the data set or its loader raised KeyError: 'no row 7'\. Mend that row"):
        CalibrationRows.of(DataLoader(Failing(), batch_size=4, num_workers=1))


def test_a_stream_whose_labels_change_is_refused():
    other = LABELS.clone()
    other[11] = LABELS[11] + 1
    rows = CalibrationRows.of(DataLoader(Stream(LABELS, other), batch_size=5))
    with pytest.raises(
        InputError, match=r"same order at every pass; the label of row 11 was .* Take the shuffling out"
    ):
        read(rows)


@pytest.mark.parametrize(("later", "came"), [(LABELS[:-4], "19 came"), (LABELS[:0], "0 came")])
def test_a_stream_that_cannot_start_again_is_refused(later, came):
    rows = CalibrationRows.of(DataLoader(Stream(LABELS, later), batch_size=5))
    with pytest.raises(InputError, match=f"the same rows at every pass; 23 were to come, and {came}"):
        list(rows.batches(device="cpu"))


def test_a_stream_that_gives_more_than_at_first_is_refused():
    rows = CalibrationRows.of(DataLoader(Stream(LABELS[:8], LABELS), batch_size=4))
    with pytest.raises(InputError, match="8 were to come, and 12 or more came"):
        list(rows.batches(device="cpu"))


def test_a_data_set_whose_labels_change_is_refused():
    data = Items(labels=LABELS.clone())
    rows = CalibrationRows.of(data)
    data.labels[6] += 1
    with pytest.raises(InputError, match="the label of row 6 was"):
        read(rows)


def inputs_with(value, row=21):
    inputs = INPUTS.clone()
    inputs[row, 1, 2, 3] = value
    return inputs


def ragged(row=21):
    return [INPUTS[i, :, : 3 if i == row else 4] for i in range(N)]


class Lengthless(Dataset):
    def __getitem__(self, row):
        return INPUTS[row], 0


class Failing(IterableDataset):
    """Gives what it has, and then fails."""

    def __init__(self, inputs=INPUTS[:7]):
        self.inputs = inputs

    def __iter__(self):
        yield from ((one, 0) for one in self.inputs)
        raise KeyError("no row 7")


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
    "no rows": ((INPUTS[:0], LABELS[:0]), r"at least one row; got none"),
    "no rows in a data set": (Items(INPUTS[:0], LABELS[:0]), r"at least one row; got none"),
    "no rows in a stream": (DataLoader(Stream(LABELS[:0])), r"at least one row; got none"),
    "other lengths": ((INPUTS, LABELS[:-1]), r"same number of rows; got 23 and 22"),
    "one label": ((INPUTS, LABELS[0]), r"same number of rows; got 23 and a single number"),
    "one-hot labels": ((INPUTS, torch.eye(N)), r"one number a row, shape \(n,\); got shape \(23, 23\).*argmax"),
    "real labels": ((INPUTS, LABELS + 0.5), r"labels must be whole numbers.*float32.*labels\.long\(\)"),
    "real labels in a data set": (TensorLabels(labels=LABELS.double()), r"labels must be whole numbers.*float64"),
    "words as labels": ((INPUTS, ["cat"] * N), r"labels must be a tensor, an array"),
    "a missing label": ((INPUTS, LABELS - LABELS.max() * (torch.arange(N) == 9)), r"at least 0; got -\d at row 9"),
    "images as stored": ((INPUTS.to(torch.uint8), LABELS), r"torch\.uint8.*Convert to float as in training"),
    "tokens": ((torch.ones(N, 8, dtype=torch.int64), LABELS), r"torch\.int64\. δ has no meaning for tokens"),
    "tokens in a data set": (Items(torch.ones(N, 8, dtype=torch.int32)), r"int32\. δ has no meaning for tokens"),
    "truth values": ((INPUTS > 0, LABELS), r"torch\.bool"),
    "NaN": ((inputs_with(float("nan")), LABELS), r"finite; got nan at row 21, entry \(1, 2, 3\)"),
    "infinite": ((inputs_with(-float("inf")), LABELS), r"finite; got -inf at row 21"),
    "NaN in a data set": (Items(inputs_with(float("nan"))), r"finite; got nan at row 21"),
    "NaN in a loader": (DataLoader(Items(inputs_with(float("nan"))), batch_size=4), r"finite; got nan at row 21"),
    "ragged": (Items(ragged()), r"pairs \(input, label\), .* of one shape; got shapes \(3, 4, 5\) and \(3, 3, 5\)\."),
    "ragged batches": (
        DataLoader(Items(ragged()), batch_size=1),
        r"one shape.*got \(3, 4, 5\) at row 0 and \(3, 3, 5\) at row 21",
    ),
    "a number a row": ((INPUTS[:, 0, 0, 0], LABELS), r"shape \(n, \.\.\.\); got shape \(23,\).*\(n, 1\)"),
    "a number a row in a data set": (Items(INPUTS[:, 0, 0, 0]), r"shape \(n, \.\.\.\).*; got shape \(\d+,\)"),
    "empty inputs": ((INPUTS[:, :0], LABELS), r"none of it empty; got shape \(23, 0, 4, 5\)"),
    "objects": (Items([object()] * N), r"pairs \(input, label\)"),
    "one tensor": (INPUTS, r"data must be a tuple \(inputs, labels\), a Dataset or a DataLoader; got Tensor"),
    "three tensors": ((INPUTS, LABELS, LABELS), r"data must be a tuple.*got a tuple of 3"),
    "a bare iterable": (Stream(), r"must come in a DataLoader.*DataLoader\(data, batch_size=\.\.\.\)"),
    "no length": (Lengthless(), r"must have a length.*Lengthless has none"),
    "mappings": (loader(collate_fn=as_mapping), r"pair \(inputs, labels\).*got a dict of pixels, labels"),
    "three in a batch": (loader(collate_fn=triple), r"got a tuple of Tensor, Tensor, int"),
    "single rows": (DataLoader(Items(), batch_size=None), r"shapes \(m, \.\.\.\) and \(m,\); got"),
    "rows dropped": (loader(batch_size=4, collate_fn=dropping_collate), r"keep every row; from 4 it made 3"),
    "drawn again": (
        loader(sampler=WeightedRandomSampler([1.0] + [0.0] * (N - 1), 4)),
        r"at most once; it gave row 0 twice",
    ),
    "a data set that fails": (
        Items(INPUTS[:9], LABELS),
        r"every row .* must be readable; .* IndexError: .*Mend",
    ),
    "a stream that fails": (DataLoader(Failing(), batch_size=5), r"raised KeyError: 'no row 7'\. Mend that row"),
    "ragged in a stream": (DataLoader(Failing(ragged(2)), batch_size=5), r"raised RuntimeError: stack expects"),
    "two types": (
        DataLoader(Failing([*INPUTS[:6], *INPUTS.double()]), batch_size=3),
        r"float32 first, and .*64 at row 6",
    ),
    "nowhere": ((INPUTS.to("meta"), LABELS), r"inputs must hold numbers; got a tensor on the meta device"),
    "labels nowhere": ((INPUTS, LABELS.to("meta")), r"labels must hold numbers"),
    "nowhere in a data set": (TensorDataset(INPUTS.to("meta"), LABELS), r"inputs must hold numbers"),
    "sparse": ((INPUTS.flatten(1).to_sparse(), LABELS), r"a plain tensor.*got a sparse one.*to_dense"),
    "eight bits": (
        (INPUTS.to(torch.float8_e4m3fn), LABELS),
        r"16 to 64 bits; got torch\.float8.*Convert them to",
    ),
    "complex": ((INPUTS.to(torch.complex64), LABELS), r"got torch\.complex64\. Convert them to float32"),
    "a list of two": ([INPUTS, LABELS], r"a DataLoader; got list\. Pass both in one tuple"),
    "named rows": (loader(sampler=["a", "b"]), r"the number of each row.*it gave 'a'"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_that_cannot_be_fitted_on_are_refused(case):
    data, message = BAD[case]
    with pytest.raises(InputError, match=message):
        CalibrationRows.of(data)


@pytest.mark.parametrize("batch_size", [np.int64(5), np.uint8(5), 10**30])
def test_a_batch_size_may_be_of_numpy_and_larger_than_anything(batch_size):
    for kind in ("tensors", "data set", "iterable"):
        rows = CalibrationRows.of(KINDS[kind](), batch_size=batch_size)
        assert type(rows.batch_size) is int
        assert torch.equal(read(rows)[0], INPUTS)
        assert torch.equal(read(rows, batch_size=batch_size)[0], INPUTS)


def test_inputs_made_under_inference_mode_can_take_part_in_a_gradient():
    with torch.inference_mode():
        data = INPUTS.clone(), LABELS.clone()
    inputs, _ = next(CalibrationRows.of(data).batches(device="cpu"))
    assert inputs.requires_grad_().square().sum().backward() is None
    assert torch.equal(inputs.grad, 2 * INPUTS)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    with pytest.raises(InputError, match="batch_size must be"):
        CalibrationRows.of((INPUTS, LABELS), batch_size=batch_size)
    with pytest.raises(InputError, match="batch_size must be"):
        CalibrationRows.of((INPUTS, LABELS)).batches(device="cpu", batch_size=batch_size)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (torch.tensor([0, N]), r"chosen must lie in 0\.\.22; got 23"),
        (torch.tensor([-1]), r"got -1"),
        (LABELS > 2, r"torch\.bool.*mask\.nonzero"),
        (torch.tensor(3), r"shape \(\)"),
        (torch.tensor([1.0]), r"float32"),
    ],
)
def test_positions_that_are_none_are_refused_at_once(chosen, message):
    with pytest.raises(InputError, match=message):
        CalibrationRows.of((INPUTS, LABELS)).batches(chosen, device="cpu")


def test_a_stream_cannot_give_a_row_twice():
    rows = CalibrationRows.of(DataLoader(Stream(), batch_size=5))
    with pytest.raises(InputError, match="each row once"):
        rows.batches(torch.tensor([1, 1]), device="cpu")
