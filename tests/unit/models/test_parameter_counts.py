"""Sizes of the networks, held against published counts or worked out here by hand."""

import pytest
import torch
from torch import nn

from calibrant.models import Sizes, WideResNet, all_models


def count(build) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


@pytest.mark.parametrize(
    ("name", "n_classes", "parameters"),
    [
        ("resnet20", 10, 269_722),
        ("resnet32", 10, 464_154),
        ("resnet56", 10, 853_018),
        ("resnet110", 10, 1_727_962),
        ("resnet18", 10, 11_173_962),
        ("resnet18", 100, 11_220_132),
        ("resnet50", 10, 23_520_842),
        ("resnet50_imagenet", 1000, 25_557_032),
        ("resnet101_imagenet", 1000, 44_549_160),
        ("densenet121", 10, 6_956_298),
        ("vgg16_bn", 10, 14_728_266),
        ("vgg16", 10, 14_728_266 - 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512)),
        # Hassani et al. print 3.717 million: theirs has no biases on the patches, queries, keys and values.
        ("vit_small", 10, 3_716_618 + 256 + 7 * 3 * 256),
    ],
)
def test_a_network_has_as_many_parameters_as_published(name, n_classes, parameters):
    assert count(lambda: all_models()[name].build(Sizes(n_classes))) == parameters


@pytest.mark.parametrize(("name", "parameters"), [("vit_s16", 22_050_664), ("mixer_b16", 59_880_472)])
def test_networks_on_patches_of_imagenet_have_as_many_parameters_as_published(name, parameters):
    assert count(lambda: all_models()[name].build(Sizes(1000, image_size=224))) == parameters


def wide_resnet_by_hand(depth: int, width: int, n_classes: int) -> int:
    total, before = 3 * 16 * 9, 16
    for stage in range(3):
        channels = 16 * width * 2**stage
        for _ in range((depth - 4) // 6):
            normed = 2 * before + 2 * channels
            convolved = 9 * before * channels + 9 * channels * channels
            projected = before * channels if before != channels else 0
            total += normed + convolved + projected
            before = channels
    return total + 2 * before + before * n_classes + n_classes


def test_wrn_40_10_has_the_published_55_8_million_parameters():
    parameters = count(lambda: all_models()["wrn40_10"].build(Sizes(10)))
    assert parameters == wide_resnet_by_hand(40, 10, 10) == 55_841_754
    assert round(parameters / 1e6, 1) == 55.8


@pytest.mark.parametrize(("depth", "width", "millions"), [(40, 1, 0.6), (16, 8, 11.0), (28, 10, 36.5)])
def test_wide_networks_of_other_sizes_match_table_5_of_their_paper(depth, width, millions):
    parameters = count(lambda: WideResNet(depth=depth, width=width))
    assert parameters == wide_resnet_by_hand(depth, width, 10)
    assert round(parameters / 1e6, 1) == millions


def test_mixer_s_has_its_published_parameters_less_what_the_patches_take():
    # Per block: two norms, the layers across 64 patches, the layers across 512 channels (table 1, column S).
    block = 4 * 512 + (64 * 256 + 256 + 256 * 64 + 64) + (512 * 2048 + 2048 + 2048 * 512 + 512)
    assert count(lambda: all_models()["mixer_small"].build(Sizes(10))) == 8 * block + (48 * 512 + 512) + 1024 + 5130


def test_the_text_network_has_an_embedding_and_eight_convolutions():
    with torch.device("meta"):
        network = all_models()["text_cnn"].build(Sizes(20, n_words=1000))
    assert sum(isinstance(module, nn.Conv1d) for module in network.modules()) == 8
    convolutions = 3 * 128 * 256 + 7 * 3 * 256 * 256 + 8 * 2 * 256
    assert sum(parameter.numel() for parameter in network.parameters()) == 128_000 + convolutions + 257 * 20


@pytest.mark.parametrize(("in_channels", "fewer"), [(1, 2 * 9 * 16), (3, 0)])
def test_only_the_first_layer_depends_on_the_channels_of_the_images(in_channels, fewer):
    assert count(lambda: all_models()["resnet20"].build(Sizes(10, in_channels))) == 269_722 - fewer
