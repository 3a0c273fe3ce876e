"""Networks on sequences: of image patches, the vision transformer and the MLP-Mixer; of words, a convolutional one."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.models.layers import Classifier, check_sizes, he_init
from calibrant.paper import WANG, Paper

# In the code of both papers; torch's own default is 1e-5.
_EPSILON = 1e-6


@final
class PatchEmbedding(nn.Module):
    """One linear map, the same for every patch; the patches must cover the image exactly."""

    def __init__(self, in_channels: int, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        check_at_least(in_channels, 1, "in_channels")
        check_at_least(patch_size, 1, "patch_size")
        check_at_least(image_size, patch_size, "image_size")
        if image_size % patch_size:
            raise InputError(
                f"image_size must be a multiple of patch_size; got {image_size} and {patch_size}. "
                "Take another patch size, or resize the images."
            )
        self.n_patches = (image_size // patch_size) ** 2
        self.image_size = image_size
        self.project = nn.Conv2d(in_channels, width, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Return the vectors of the patches, line by line, (n, patches, width)."""
        if images.shape[2:] != (self.image_size, self.image_size):
            raise InputError(
                f"images must be {self.image_size} x {self.image_size}, as the network was built; "
                f"got {tuple(images.shape[2:])}. Build it with that image_size."
            )
        return self.project(images).flatten(2).transpose(1, 2)


@final
class TransformerBlock(nn.Module):
    """Attention between tokens, then two linear layers on each, both on normalised tokens and added to the input."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix_heads = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self._attention(self.norm1(tokens))
        return tokens + self.contract(F.gelu(self.expand(self.norm2(tokens))))

    def _attention(self, tokens: Tensor) -> Tensor:
        n, length, width = tokens.shape
        stacked = self.queries_keys_values(tokens).view(n, length, 3, self.heads, width // self.heads)
        queries, keys, values = stacked.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(queries, keys, values)
        return self.mix_heads(seen.transpose(1, 2).reshape(n, length, width))


@final
class VisionTransformer(Classifier):
    """Patches and a class token through transformer blocks; the final state of the class token is classified.

    The default is ViT-Lite-7/4, 3.7 million parameters, which Hassani et al. (2021, arXiv:2104.05704) made for CIFAR
    and trained to 91 % on CIFAR-10 from scratch. Expect less without strong augmentation: a transformer has to learn
    that neighbouring pixels are related. ``image_size=224, patch_size=16, width=384, depth=12, heads=6,
    hidden=1536`` is ViT-S/16.

    Args:
        image_size: Side of the images, a multiple of the patches'.
        patch_size: Side of a patch.
        width: Length of a token.
        depth: Number of blocks.
        heads: Attentions in a block; the width must be a multiple.
        hidden: Width between the two linear layers of a block.
    """

    # Differs from the paper of the default sizes: biases on patches, queries, keys and values, as in the first ViT.

    paper: ClassVar[Paper] = Paper("Dosovitskiy et al.", 2021,
                                   "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
                                   "arXiv:2010.11929", "eq. 1-4")  # fmt: skip

    def __init__(
        self,
        *,
        n_classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 256,
        depth: int = 7,
        heads: int = 4,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, width=width, depth=depth, heads=heads, hidden=hidden)
        if width % heads:
            raise InputError(f"width must be a multiple of heads; got {width} and {heads}.")
        self.patches = PatchEmbedding(in_channels, image_size, patch_size, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, self.patches.n_patches + 1, width))
        self.body = nn.Sequential(*(TransformerBlock(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, n_classes)
        # Normal of deviation 0.02, as in the transformers for text; biases 0.
        nn.init.trunc_normal_(self.positions, std=0.02)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def features(self, images: Tensor) -> Tensor:
        patches = self.patches(images)
        class_token = self.class_token.expand(len(patches), -1, -1)
        tokens = self.body(torch.cat((class_token, patches), dim=1) + self.positions)
        return self.norm(tokens[:, 0])  # normalised token by token, so only the one that is read


@final
class MixerBlock(nn.Module):
    """Two linear layers across the patches, then two across the channels, each pair added to its input."""

    def __init__(self, n_patches: int, width: int, token_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.token_expand = nn.Linear(n_patches, token_hidden)
        self.token_contract = nn.Linear(token_hidden, n_patches)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.channel_expand = nn.Linear(width, channel_hidden)
        self.channel_contract = nn.Linear(channel_hidden, width)

    def forward(self, patches: Tensor) -> Tensor:
        columns = self.norm1(patches).transpose(1, 2)
        patches = patches + self.token_contract(F.gelu(self.token_expand(columns))).transpose(1, 2)
        return patches + self.channel_contract(F.gelu(self.channel_expand(self.norm2(patches))))


@final
class MLPMixer(Classifier):
    """Patches through mixer blocks; their average is classified.

    The default is the paper's Mixer-S with patches of 4 x 4 for 32 x 32 images: 17 million parameters, many for a
    small data set, which it overfits without strong augmentation. ``image_size=224, patch_size=16, width=768, depth=12,
    token_hidden=384, channel_hidden=3072`` is Mixer-B/16.

    Args:
        image_size: Side of the images, a multiple of the patches'.
        patch_size: Side of a patch.
        width: Length of a patch's vector.
        depth: Number of blocks.
        token_hidden: Width between the layers across the patches.
        channel_hidden: Width between the layers across the channels.
    """

    paper: ClassVar[Paper] = Paper(
        "Tolstikhin et al.", 2021, "MLP-Mixer: An all-MLP Architecture for Vision", "arXiv:2105.01601", "eq. 1, table 1"
    )

    def __init__(
        self,
        *,
        n_classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 512,
        depth: int = 8,
        token_hidden: int = 256,
        channel_hidden: int = 2048,
    ) -> None:
        super().__init__()
        check_sizes(
            n_classes=n_classes, width=width, depth=depth, token_hidden=token_hidden, channel_hidden=channel_hidden
        )
        self.patches = PatchEmbedding(in_channels, image_size, patch_size, width)
        parts = (MixerBlock(self.patches.n_patches, width, token_hidden, channel_hidden) for _ in range(depth))
        self.body = nn.Sequential(*parts)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, n_classes)
        for module in self.body.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def features(self, images: Tensor) -> Tensor:
        return self.norm(self.body(self.patches(images))).mean(1)


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

    paper: ClassVar[Paper] = WANG.at("section 3.1")

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
