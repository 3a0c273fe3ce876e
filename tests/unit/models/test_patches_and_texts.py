"""Networks of patches and of words, held against plain loops."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.models import MLPMixer, TextCNN, VisionTransformer
from calibrant.models.sequences import MaskedBatchNorm, MixerBlock, PatchEmbedding, TransformerBlock


class TestPatches:
    def test_are_cut_row_by_row(self):
        embedding = PatchEmbedding(3, 8, 4, 5).double()
        images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
        weight = embedding.project.weight.flatten(1)
        for number, (top, left) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
            patch = images[:, :, top : top + 4, left : left + 4].flatten(1)
            expected = patch @ weight.T + embedding.project.bias
            torch.testing.assert_close(embedding(images)[:, number], expected)

    def test_must_cover_the_image(self):
        with pytest.raises(InputError, match="image_size must be a multiple of patch_size; got 30 and 4"):
            VisionTransformer(image_size=30)

    def test_of_images_of_another_size_are_refused(self):
        with pytest.raises(InputError, match=r"images must be 32 x 32.*got \(28, 28\)"):
            MLPMixer(depth=1)(torch.zeros(1, 3, 28, 28))


class TestTransformer:
    def test_attends_as_the_formula_says(self):
        torch.manual_seed(0)
        block = TransformerBlock(8, heads=2, hidden=12).double()
        tokens = torch.randn(3, 5, 8, dtype=torch.float64)
        normed = block.norm1(tokens)
        queries, keys, values = block.queries_keys_values(normed).split(8, dim=2)
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = queries[..., head] @ keys[..., head].transpose(1, 2) / 4**0.5
            heads.append(scores.softmax(2) @ values[..., head])
        attended = tokens + block.mix_heads(torch.cat(heads, dim=2))
        expected = attended + block.contract(F.gelu(block.expand(block.norm2(attended))))
        torch.testing.assert_close(block(tokens), expected)

    def test_knows_where_a_patch_was_only_by_its_position(self):
        torch.manual_seed(0)
        network = VisionTransformer(image_size=8, width=16, depth=2, hidden=32)
        image = torch.randn(1, 3, 8, 8)
        turned = image.roll(4, dims=3)
        assert not torch.allclose(network(image), network(turned), atol=1e-4)
        with torch.no_grad():
            network.positions.zero_()
        torch.testing.assert_close(network(image), network(turned))

    def test_needs_heads_that_share_the_width(self):
        with pytest.raises(InputError, match="width must be a multiple of heads; got 30 and 4"):
            VisionTransformer(width=30)


def test_a_mixer_block_mixes_patches_then_channels():
    torch.manual_seed(0)
    block = MixerBlock(4, 6, token_hidden=3, channel_hidden=7).double()
    patches = torch.randn(2, 4, 6, dtype=torch.float64)
    normed = block.norm1(patches)
    mixed = patches.clone()
    for channel in range(6):
        column = normed[:, :, channel]
        mixed[:, :, channel] += block.token_contract(F.gelu(block.token_expand(column)))
    expected = mixed.clone()
    for patch in range(4):
        row = block.norm2(mixed[:, patch])
        expected[:, patch] += block.channel_contract(F.gelu(block.channel_expand(row)))
    torch.testing.assert_close(block(patches), expected)


class TestMaskedNorm:
    @staticmethod
    def pair():
        plain, masked = nn.BatchNorm1d(5).double(), MaskedBatchNorm(5).double()
        with torch.no_grad():
            masked.weight.copy_(plain.weight.uniform_(0.5, 2))
            masked.bias.copy_(plain.bias.uniform_(-1, 1))
        return plain, masked

    def test_without_padding_is_torchs_batch_norm_in_training_and_after(self):
        plain, masked = self.pair()
        for _ in range(3):
            words = 3 + 2 * torch.randn(4, 5, 7, dtype=torch.float64)
            torch.testing.assert_close(masked(words, torch.ones(4, 1, 7)), plain(words))
        torch.testing.assert_close(masked.running_mean, plain.running_mean)
        torch.testing.assert_close(masked.running_var, plain.running_var)
        plain.eval(), masked.eval()
        torch.testing.assert_close(masked(words, torch.ones(4, 1, 7)), plain(words))

    def test_with_padding_is_torchs_batch_norm_of_the_words_alone(self):
        plain, masked = self.pair()
        words = torch.randn(4, 5, 7, dtype=torch.float64, requires_grad=True)
        present = torch.arange(7) < torch.tensor([7, 2, 0, 5])[:, None]
        rows = words.transpose(1, 2)
        normed = masked(words, present[:, None]).transpose(1, 2)[present]
        expected = plain(rows[present])
        torch.testing.assert_close(normed, expected)
        torch.testing.assert_close(masked.running_var, plain.running_var)
        weights = torch.randn_like(expected)
        first, second = (torch.autograd.grad((out * weights).sum(), words)[0] for out in (normed, expected))
        torch.testing.assert_close(first, second)

    def test_of_half_precision_works_in_single(self):
        words = (1000 + torch.randn(64, 3, 50)).bfloat16()
        normed = MaskedBatchNorm(3)(words, torch.ones(64, 1, 50))
        assert normed.dtype == torch.float32
        torch.testing.assert_close(normed.mean((0, 2)), torch.zeros(3), rtol=0, atol=1e-3)


class TestTexts:
    @pytest.fixture
    def network(self):
        torch.manual_seed(0)
        return TextCNN(n_words=100, n_classes=20, width=32)

    @pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
    @pytest.mark.parametrize("more", [1, 2, 5, 64])
    def test_longer_padding_gives_the_same_logits_in_training_too(self, network, length, more):
        # In float64: statistics of a few words that come out almost alike blow up what float32 rounds.
        network.double()
        texts = torch.randint(1, 100, (3, length))
        assert network.training
        torch.testing.assert_close(network(F.pad(texts, (0, more))), network(texts), rtol=1e-10, atol=1e-10)

    def test_a_text_does_not_depend_on_what_it_is_batched_with(self, network):
        network.eval()
        texts = torch.randint(1, 100, (2, 12))
        texts[1, 4:] = 0
        torch.testing.assert_close(network(texts)[1:], network(texts[1:, :4]), rtol=1e-5, atol=1e-6)

    def test_a_text_without_words_gets_the_bias_of_the_head(self, network):
        texts = torch.randint(1, 100, (2, 9))
        texts[0] = 0
        torch.testing.assert_close(network(texts)[0], network.head.bias)
        torch.testing.assert_close(network(texts[:1])[0], network.head.bias)
        assert all(buffer.isfinite().all() for buffer in network.buffers())

    def test_the_order_of_words_matters(self, network):
        text = torch.arange(1, 13).reshape(1, 12)
        assert not torch.allclose(network(text), network(text.flip(1)), atol=1e-4)

    def test_the_vector_of_no_word_is_zero_and_never_learns(self, network):
        network.eval()(torch.tensor([[4, 0, 7, 0]])).sum().backward()
        assert not network.embedding.weight[0].any()
        gradient = network.embedding.weight.grad
        assert gradient.any(1).nonzero().flatten().tolist() == [4, 7]

    def test_needs_at_least_one_word(self):
        with pytest.raises(InputError, match="n_words must be at least 2; got 1"):
            TextCNN(n_words=1)
