"""A network for texts: word vectors, eight convolutions along the text, and the maximum of each filter."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.models.layers import Classifier, check_sizes, he_init
from calibrant.paper import Paper


@final
class MaskedBatchNorm(nn.Module):
    """Batch normalisation over the words of the batch, without the padding, whose zeros ``nn.BatchNorm1d`` would count.

    It is not synchronised when several processes share a batch.
    """

    momentum: ClassVar[float] = 0.1  # torch's own default
    epsilon: ClassVar[float] = 1e-5  # the same

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, words: Tensor, present: Tensor) -> Tensor:
        """Normalise words, (n, channels, length); undefined where ``present``, (n, 1, length), is 0 instead of 1."""
        words = words.to(self.weight.dtype)  # half precision cannot sum over a batch
        present = present.to(words.dtype)
        mean, variance = self.running_mean, self.running_var
        if self.training:
            n = present.sum().clamp(min=1)
            mean = (words * present).sum((0, 2)) / n
            variance = ((words - mean[:, None]).square() * present).sum((0, 2)) / n
            with torch.no_grad():
                unbiased = variance * n / (n - 1).clamp(min=1)
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(unbiased, self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.epsilon)
        return (words - mean[:, None]) * scale[:, None] + self.bias[:, None]


@final
class TextBlock(nn.Module):
    """A convolution over three neighbouring words, batch normalisation, ReLU; zero where there is no word."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm = MaskedBatchNorm(out_channels)

    def forward(self, words: Tensor, present: Tensor) -> Tensor:
        normed = self.norm(self.conv(words), present)
        return F.relu(normed) * present.to(normed.dtype)


@final
class TextCNN(Classifier):
    """Four pairs of convolutions with a halving of the text between them, then each filter's maximum over the text.

    Padding does not change the result, not even in training.

    Args:
        n_words: Size of the vocabulary; word numbers run from 0 (no word) to n_words - 1.
        embedding: Length of a word's vector.
        width: Filters of each convolution.
    """

    paper: ClassVar[Paper] = Paper(
        "Wang, Feng & Zhang",
        2021,
        "Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence",
        "https://proceedings.neurips.cc/paper/2021/hash/61f3a6dbc9120ea78ef75544826c814e-Abstract.html",
        "section 3.1",
    )

    # Differs from the paper: it says "8-layer 1D-CNN" and no more. The pairs of convolutions of size 3 with halving
    # between them are those of Conneau et al. (2017, arXiv:1606.01781), the maximum over the text that of Kim (2014,
    # arXiv:1408.5882); the widths are ours.

    def __init__(self, *, n_words: int, n_classes: int = 20, embedding: int = 128, width: int = 256) -> None:
        super().__init__()
        check_at_least(n_words, 2, "n_words")
        check_sizes(n_classes=n_classes, embedding=embedding, width=width)
        self.embedding = nn.Embedding(n_words, embedding, padding_idx=0)
        # With torch's own deviation of 1, steps of gradient descent hardly turn a word's vector.
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        self.body = nn.ModuleList(TextBlock(width if i else embedding, width) for i in range(8))
        self.head = nn.Linear(width, n_classes)
        he_init(self)

    def features(self, texts: Tensor) -> Tensor:
        """Return the activations before the last layer, (n, width), for word numbers (n, length)."""
        words: Tensor = self.embedding(texts).transpose(1, 2)
        present = (texts != 0).to(words.dtype).unsqueeze(1)
        for i, block in enumerate(self.body):
            if i in {2, 4, 6}:
                # No activation is below zero, so the zeros of the padding are never the maximum beside a word.
                words, present = (F.max_pool1d(values, 2, ceil_mode=True) for values in (words, present))
            words = block(words, present)
        return torch.amax(words, dim=2)
