"""A network for texts: words as vectors, eight convolutions along the text, the strongest answer of each filter."""

from collections.abc import Iterator
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.models.layers import MaskedBatchNorm
from calibrant.paper import Paper

__all__ = ["TextBlock", "TextCNN"]


@final
class TextBlock(nn.Module):
    """A convolution over three neighbouring words, batch normalisation, ReLU; zero where there is no word.

    Args:
        in_channels: Channels of the input, (n, in_channels, length).
        out_channels: Channels of the output.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm = MaskedBatchNorm(out_channels)

    def forward(self, words: Tensor, present: Tensor) -> Tensor:
        """Words that know their neighbours, (n, out_channels, length).

        Args:
            words: Shape (n, in_channels, length), zero where there is no word.
            present: One where there is a word, else zero, (n, 1, length).
        """
        normed = self.norm(self.conv(words), present)
        return F.relu(normed) * present.to(normed.dtype)


@final
class TextCNN(nn.Module):
    """Four pairs of convolutions with a halving of the text between them, then each filter's maximum over the text.

    Padding changes nothing, in training neither.

    Args:
        n_words: Word numbers run from 0 (no word) to this, exclusive.
        n_classes: How many classes there are.
        embedding: Length of a word's vector.
        width: Filters of each convolution.

    Example:
        >>> text = torch.tensor([[3, 1, 2, 0, 0]])
        >>> tuple(TextCNN(n_words=10, n_classes=20)(text).shape)
        (1, 20)
    """

    paper: ClassVar[Paper] = Paper(
        "Wang et al.",
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
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(embedding, 1, "embedding")
        check_at_least(width, 1, "width")
        self.embedding = nn.Embedding(n_words, embedding, padding_idx=0)
        # Torch's own deviation of 1 is so far from zero that steps of gradient descent hardly turn a word's vector.
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        self.body = nn.ModuleList(TextBlock(width if i else embedding, width) for i in range(8))
        self.head = nn.Linear(width, n_classes)
        for block in self.body.modules():
            if isinstance(block, nn.Conv1d):
                nn.init.kaiming_normal_(block.weight, nonlinearity="relu")

    def blocks(self) -> Iterator[nn.Module]:
        yield from self.body

    def features(self, texts: Tensor) -> Tensor:
        """Activations before the last layer, (n, width).

        Args:
            texts: Word numbers, (n, length), 0 where there is no word.
        """
        words: Tensor = self.embedding(texts).transpose(1, 2)
        present = (texts != 0).to(words.dtype).unsqueeze(1)
        for i, block in enumerate(self.body):
            if i in {2, 4, 6}:
                # Nothing is below zero, so the zeros of the padding never win against a word.
                words, present = (F.max_pool1d(each, 2, ceil_mode=True) for each in (words, present))
            words = block(words, present)
        return torch.amax(words, dim=2)

    def forward(self, texts: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(texts))
        return logits
