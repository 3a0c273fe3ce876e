"""Laws that every network keeps, and how networks are made by name."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from calibrant.errors import InputError, UnknownNameError
from calibrant.models import (
    VGG,
    CifarResNet,
    DenseNet,
    DigitsCNN,
    MLPMixer,
    ResNet,
    Sizes,
    TextCNN,
    VisionTransformer,
    WideResNet,
    all_models,
    build_model,
)
from calibrant.paper import Paper

# Of networks that differ only in depth, the shallowest. Those of 16 x 16 patches take no images of 28 x 28.
OTHERS = {"resnet32", "resnet56", "resnet110", "resnet101_imagenet", "vit_s16", "mixer_b16", "text_cnn"}
IMAGE_NETWORKS = [name for name in all_models() if name not in OTHERS]

# One small network of each class, and inputs for it.
SMALL = {
    "CifarResNet": (lambda: CifarResNet(depth=14), (3, 16, 16)),
    "ResNet": (lambda: ResNet(depth=18), (3, 8, 8)),
    "WideResNet": (lambda: WideResNet(depth=10, width=2), (3, 16, 16)),
    "DenseNet": (lambda: DenseNet(growth=4), (3, 16, 16)),
    "VGG": (lambda: VGG(depth=11), (3, 16, 16)),
    "VisionTransformer": (lambda: VisionTransformer(image_size=16, width=32, depth=2, hidden=64), (3, 16, 16)),
    "MLPMixer": (lambda: MLPMixer(image_size=16, width=32, depth=2, token_hidden=8, channel_hidden=64), (3, 16, 16)),
    "TextCNN": (lambda: TextCNN(n_words=50, n_classes=10, width=32), (30,)),
    "DigitsCNN": (DigitsCNN, (1, 8, 8)),
}


@pytest.fixture(params=SMALL, scope="module")
def built(request):
    build, shape = SMALL[request.param]
    torch.manual_seed(0)
    return build(), torch.randint(1, 50, (4, *shape)) if len(shape) == 1 else torch.randn(4, *shape)


@pytest.fixture
def small(built):
    return deepcopy(built)


class TestEveryNetwork:
    def test_gives_the_heads_answer_to_its_features(self, small):
        network, inputs = small
        network.eval()
        features = network.features(inputs)
        assert features.shape == (4, network.head.in_features)
        torch.testing.assert_close(network(inputs), network.head(features), rtol=0, atol=0)

    def test_learns_with_every_parameter(self, small):
        network, inputs = small
        nn.functional.cross_entropy(network(inputs), torch.arange(4)).backward()
        untouched = [name for name, each in network.named_parameters() if each.grad is None or not each.grad.any()]
        assert untouched == []

    def test_answers_in_evaluation_each_input_by_itself(self, small):
        network, inputs = small
        network.eval().double()
        inputs = inputs.double() if inputs.is_floating_point() else inputs
        alone = torch.cat([network(row) for row in inputs.split(1)])
        torch.testing.assert_close(network(inputs), alone)

    def test_is_a_network_whose_blocks_are_its_own_and_contain_no_others(self, small):
        network, _ = small
        assert isinstance(network.head, torch.nn.Linear)
        parts, blocks = list(network.modules()), list(network.blocks())
        assert all(any(block is part for part in parts) for block in blocks)
        inner = [module for block in blocks for module in list(block.modules())[1:]]
        assert len(set(blocks)) == len(blocks)
        assert not set(inner) & set(blocks)


@pytest.mark.parametrize(("in_channels", "image_size"), [(1, 28), (4, 64)])
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_images_of_28_and_64_pixels_and_any_channels_are_taken_as_those_of_32(name, in_channels, image_size):
    with torch.device("meta"), torch.no_grad():
        network = all_models()[name].build(Sizes(7, in_channels, image_size)).eval()
        logits = network(torch.empty(2, in_channels, image_size, image_size))
    assert logits.shape == (2, 7)


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_the_smallest_images_are_taken_and_smaller_ones_refused(name):
    side = all_models()[name].smallest_side
    with torch.device("meta"), torch.no_grad():
        network = all_models()[name].build(Sizes(10, image_size=side)).eval()
        assert network(torch.empty(2, 3, side, side)).shape == (2, 10)
    with pytest.raises(InputError, match=f"image_size for {name} must be at least {side}; got {side - 1}"):
        build_model(name, n_classes=10, image_size=side - 1)


@pytest.mark.parametrize("build", [lambda: CifarResNet(depth=14), lambda: WideResNet(depth=10, width=2), DenseNet])
def test_convolutions_keep_channels_last_from_block_to_block(build):
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    network = build().to(memory_format=torch.channels_last).eval()
    seen = []
    for block in network.blocks():
        block.register_forward_hook(lambda _, __, maps: seen.append(maps))
    network(images)
    assert seen
    assert all(maps.is_contiguous(memory_format=torch.channels_last) for maps in seen)


def test_the_names_are_those_of_the_papers_networks():
    assert " ".join(all_models()) == (
        "resnet20 resnet32 resnet56 resnet110 resnet18 resnet50 wrn40_10 densenet121 vgg16_bn vgg16 vit_small "
        "mixer_small resnet50_imagenet resnet101_imagenet vit_s16 mixer_b16 text_cnn digits_cnn"
    )
    for name, spec in all_models().items():
        assert spec.name == name
        assert isinstance(spec.paper, Paper) or name == "digits_cnn"


class TestBuildModel:
    def test_gives_the_same_weights_for_the_same_seed_only(self):
        first, again, other = (build_model("resnet20", n_classes=10, seed=seed).state_dict() for seed in (3, 3, 4))
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert not torch.equal(first["head.weight"], other["head.weight"])

    def test_leaves_the_random_state_as_it_was_and_does_not_depend_on_it(self):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = build_model("text_cnn", n_classes=20, n_words=100)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(6)
        again = build_model("text_cnn", n_classes=20, n_words=100)
        assert torch.equal(first.embedding.weight, again.embedding.weight)

    def test_does_not_seed_the_gpus(self, monkeypatch):
        def refuse(*_):
            pytest.fail("the state of the GPUs was changed")

        monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
        build_model("digits_cnn", n_classes=10)

    def test_works_on_the_cpu_whatever_the_default_device(self):
        with torch.device("meta"):
            network = build_model("digits_cnn", n_classes=10)
        assert {parameter.device.type for parameter in network.parameters()} == {"cpu"}

    def test_suggests_the_closest_name(self):
        with pytest.raises(UnknownNameError, match=r"Did you mean resnet110\?"):
            build_model("resnet-110", n_classes=10)

    def test_refuses_texts_for_networks_of_images_and_images_for_those_of_texts(self):
        with pytest.raises(InputError, match=r"text_cnn takes texts, and the data are images.*such as resnet20"):
            build_model("text_cnn", n_classes=20)
        with pytest.raises(InputError, match=r"resnet20 takes images, and the data are texts.*such as text_cnn"):
            build_model("resnet20", n_classes=20, n_words=100)

    @pytest.mark.parametrize("name", ["resnet20", "vit_small", "text_cnn", "digits_cnn"])
    def test_refuses_a_single_class(self, name):
        with pytest.raises(InputError, match="n_classes must be at least 2; got 1"):
            build_model(name, n_classes=1, n_words=9 if name == "text_cnn" else None)


def test_the_network_of_the_digits_is_what_it_was():
    network = DigitsCNN()
    assert sum(parameter.numel() for parameter in network.parameters()) == 20_100
    layers = ("body.0", "body.3", "body.7", "head")
    assert list(network.state_dict()) == [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]


def test_a_residual_network_can_be_exported():
    network = build_model("resnet20", n_classes=10).eval()
    images = torch.randn(2, 3, 32, 32)
    exported = torch.export.export(network, (images,)).module()
    torch.testing.assert_close(exported(images), network(images))
