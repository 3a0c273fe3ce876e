"""The same labelled samples in every kind of data that a person may have them in."""

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

__all__ = ["INPUTS", "KINDS", "LABELS", "Failing", "Items", "N", "Stream", "TensorLabels", "ragged"]

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


class Failing(IterableDataset):
    """Gives what it has, and then fails."""

    def __init__(self, inputs=INPUTS[:7]):
        self.inputs = inputs

    def __iter__(self):
        yield from ((one, 0) for one in self.inputs)
        raise KeyError("no row 7")


def ragged(row=21):
    return [INPUTS[i, :, : 3 if i == row else 4] for i in range(N)]


class OwnLoader(DataLoader):
    """Does something of its own to every batch, which a loader built anew would not."""

    def __iter__(self):
        for inputs, labels in super().__iter__():
            yield 2 * inputs, labels


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
