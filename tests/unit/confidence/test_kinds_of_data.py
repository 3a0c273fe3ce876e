"""What ConfidNet learns from may be numbers of any type, and a loader is read once, in its own order and batches."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from calibrant.confidence import ConfidNet
from calibrant.errors import InputError

QUICK = ConfidNet(layers=2, units=4, epochs=1, learning_rate=0.02, batch_size=64, choose_by="mse")
N = 200
TOKENS = torch.randint(1, 30, (N, 6), generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 3, (N,), generator=torch.Generator().manual_seed(1))


class Reader(nn.Module):
    """Takes inputs of any type: what comes first makes features of them."""

    def __init__(self, first):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head, self.batches = first(), nn.Linear(4, 3), []

    def features(self, inputs):
        self.batches.append(len(inputs))
        return self.first(inputs)

    def forward(self, inputs):
        return self.head(self.features(inputs))


class Scaled(nn.Linear):
    def forward(self, images):
        return super().forward(images.flatten(1) / 255)


def of_words():
    return nn.EmbeddingBag(30, 4, padding_idx=0)


class Items(Dataset):
    def __init__(self, inputs=TOKENS):
        self.inputs = inputs

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        return self.inputs[row], int(LABELS[row])


class Stream(IterableDataset):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter(zip(TOKENS, LABELS.tolist(), strict=True))


def padded(items):
    return pad_sequence([words for words, _ in items], batch_first=True), torch.tensor([label for _, label in items])


KINDS = {
    "tensors": lambda inputs: (inputs, LABELS),
    "arrays": lambda inputs: (inputs.numpy(), LABELS.numpy()),
    "tensor data set": lambda inputs: TensorDataset(inputs, LABELS),
    "subset": lambda inputs: Subset(TensorDataset(inputs, LABELS), range(N)),
    "data set": Items,
    "loader": lambda inputs: DataLoader(Items(inputs), batch_size=50),
}


@pytest.mark.parametrize("tuned", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("inputs", "first"),
    [
        (TOKENS, of_words),
        (TOKENS[:, 0], lambda: nn.Embedding(30, 4)),
        (TOKENS.reshape(N, 1, 2, 3).to(torch.uint8), lambda: Scaled(6, 4)),
    ],
    ids=["tokens", "a category a row", "images as stored"],
)
def test_whole_numbers_are_taken_as_the_network_takes_them(inputs, first, kind, tuned):
    network, data = Reader(first), KINDS[kind](inputs)
    method = dataclasses.replace(QUICK, fine_tune_epochs=tuned)
    if tuned and kind == "loader":
        with pytest.raises(InputError, match="needs them by number; got a DataLoader"):
            method.fit(network, data)
        return
    learned = method.fit(network, data)
    assert learned.head.summary.rows == N
    result = learned.top_label(data)
    assert torch.allclose(result.confidence, learned.confidence(inputs))
    assert torch.equal(result.correct, network(inputs).argmax(1) == LABELS)


def test_a_loader_is_read_once_in_its_own_batches():
    network, stream = Reader(of_words), Stream()
    QUICK.fit(network, DataLoader(stream, batch_size=90))
    assert stream.passes == 1
    assert [n for n in network.batches if n != 8] == [90, 90, 20]  # 8 are looked at twice
    network.batches.clear()
    QUICK.fit(network, (TOKENS, LABELS))
    assert [n for n in network.batches if n != 8] == [64, 64, 64]  # the last are 8, too


def test_a_loader_gives_the_samples_that_it_draws_in_its_order():
    network = Reader(of_words)
    drawn = DataLoader(Items(), batch_size=50, sampler=WeightedRandomSampler([1.0] + [0.5] * (N - 1), 320))
    assert QUICK.fit(network, drawn).head.summary.rows == 320
    learned = QUICK.fit(network, DataLoader(Items(), batch_size=60, drop_last=True))
    assert learned.head.summary.rows == 180
    backwards = DataLoader(Items(), batch_size=60, sampler=range(N - 1, -1, -1))
    assert torch.equal(learned.top_label(backwards).confidence, learned.top_label((TOKENS, LABELS)).confidence.flip(0))


def test_batches_of_a_loader_may_differ_in_shape():
    ragged = [words[: 2 + row % 5] for row, words in enumerate(TOKENS)]
    learned = QUICK.fit(Reader(of_words), DataLoader(Items(ragged), batch_size=3, collate_fn=padded))
    assert learned.head.summary.rows == N


def test_what_a_data_set_cannot_give_is_reported():
    network = Reader(of_words)
    with pytest.raises(InputError, match="must come in a DataLoader"):
        QUICK.fit(network, Stream())
    with pytest.raises(InputError, match="same number of rows"):
        QUICK.fit(network, (TOKENS, LABELS[0]))
    with pytest.raises(InputError, match="at least one sample; got none"):
        QUICK.fit(network, Items(TOKENS[:0]))
    learned = QUICK.fit(network, (TOKENS, LABELS))
    with pytest.raises(InputError, match="at least one sample; got none"):
        learned.top_label(DataLoader(Items(TOKENS[:0])))
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        learned.top_label((TOKENS, LABELS), batch_size=0)
