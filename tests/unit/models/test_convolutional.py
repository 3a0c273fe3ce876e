"""What residual, wide, dense and VGG networks are made of."""

import pytest
import torch
from torch import nn

from calibrant.errors import InputError
from calibrant.models import VGG, CifarResNet, DenseNet, ResNet, WideResNet
from calibrant.models.convolutional import BasicBlock, BottleneckBlock, DenseBlock, PaddedShortcut, WideBlock
from calibrant.models.layers import he_init


def convolutions(network, *, without: str = "no such part") -> int:
    return sum(isinstance(each, nn.Conv2d) and without not in name for name, each in network.named_modules())


@pytest.fixture
def _without_weights():
    with torch.device("meta"):
        yield


@pytest.mark.usefixtures("_without_weights")
class TestDepth:
    @pytest.mark.parametrize("depth", [20, 32, 44, 56, 110])
    def test_of_thin_networks_counts_their_convolutions_and_the_head(self, depth):
        assert convolutions(CifarResNet(depth=depth)) + 1 == depth

    @pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
    def test_of_residual_networks_does_not_count_the_shortcuts(self, depth):
        assert convolutions(ResNet(depth=depth), without="shortcut") + 1 == depth

    @pytest.mark.parametrize("depth", [16, 28, 40])
    def test_of_wide_networks_counts_the_three_projections_but_not_the_head(self, depth):
        assert convolutions(WideResNet(depth=depth, width=2)) == depth

    @pytest.mark.parametrize("depth", [121, 169, 201])
    def test_of_dense_networks_counts_their_convolutions_and_the_head(self, depth):
        assert convolutions(DenseNet(depth=depth)) + 1 == depth

    @pytest.mark.parametrize("depth", [11, 13, 16, 19])
    def test_of_vgg_counts_three_linear_layers_of_which_one_is_left(self, depth):
        assert convolutions(VGG(depth=depth)) + 3 == depth

    @pytest.mark.parametrize(
        ("build", "depth"), [(CifarResNet, 21), (ResNet, 20), (WideResNet, 41), (DenseNet, 100), (VGG, 15)]
    )
    def test_that_no_network_has_is_refused(self, build, depth):
        with pytest.raises(InputError, match=f"depth must be .*; got {depth}"):
            build(depth=depth)


@pytest.mark.usefixtures("_without_weights")
@pytest.mark.parametrize("build", [lambda: CifarResNet(depth=20), lambda: ResNet(depth=18), WideResNet, DenseNet])
def test_no_convolution_but_those_of_vgg_has_a_bias_for_the_normalisation_to_subtract(build):
    assert all(each.bias is None for each in build().modules() if isinstance(each, nn.Conv2d))


@pytest.mark.usefixtures("_without_weights")
@pytest.mark.parametrize(
    ("build", "width", "side"),
    [
        (lambda: CifarResNet(depth=20), 64, 8),
        (lambda: ResNet(depth=18), 512, 4),
        (lambda: ResNet(depth=50), 2048, 4),
        (WideResNet, 640, 8),
        (DenseNet, 1024, 4),
        (VGG, 512, 1),
    ],
)
def test_the_last_maps_of_a_32_x_32_image_have_the_published_shape(build, width, side):
    network = build()
    maps = torch.empty(1, 3, 32, 32)
    for part in (getattr(network, "stem", nn.Identity()), network.body):
        maps = part(maps)
    assert maps.shape == (1, width, side, side)
    assert network.head.in_features == width


class TestParts:
    def test_a_thin_shortcut_takes_every_second_pixel_between_zeros(self):
        block = BasicBlock(16, 32, stride=2, shortcut=PaddedShortcut).eval()
        nn.init.zeros_(block.norm2.weight)
        maps = torch.rand(2, 16, 7, 7)
        out = block(maps)
        assert out.shape == (2, 32, 4, 4)
        torch.testing.assert_close(out[:, 8:24], maps[:, :, [0, 2, 4, 6]][:, :, :, [0, 2, 4, 6]])
        assert not out[:, :8].any()
        assert not out[:, 24:].any()

    def test_a_thin_shortcut_has_no_parameters(self):
        assert not PaddedShortcut(16, 32, stride=2).state_dict()

    def test_a_bottleneck_projects_its_shortcut_and_widens_four_times(self):
        block = BottleneckBlock(6, 4, stride=2).eval()
        nn.init.zeros_(block.norm3.weight)
        maps = torch.randn(2, 6, 5, 5)
        projected = torch.einsum("oi,nihw->nohw", block.shortcut[0].weight[:, :, 0, 0], maps[:, :, ::2, ::2])
        expected = (projected / (1 + block.norm3.eps) ** 0.5).clamp(min=0)
        torch.testing.assert_close(block(maps), expected)
        assert expected.shape == (2, 16, 3, 3)

    def test_a_bottleneck_of_one_shape_adds_to_its_input_and_learns_with_every_parameter(self):
        block = BottleneckBlock(16, 4, stride=1)
        maps = torch.randn(2, 16, 5, 5)
        block(maps).square().sum().backward()
        assert all(parameter.grad.any() for parameter in block.parameters())
        nn.init.zeros_(block.norm3.weight)
        torch.testing.assert_close(block(maps), maps.clamp(min=0))

    def test_a_wide_block_projects_what_the_first_relu_lets_through(self):
        block = WideBlock(4, 6, stride=2, dropout=0.0).eval()
        nn.init.zeros_(block.conv2.weight)
        maps = torch.randn(2, 4, 6, 6)
        active = (maps / (1 + block.norm1.eps) ** 0.5).clamp(min=0)
        expected = torch.einsum("oi,nihw->nohw", block.projection.weight[:, :, 0, 0], active[:, :, ::2, ::2])
        torch.testing.assert_close(block(maps), expected)

    def test_a_wide_block_of_one_shape_adds_to_its_unchanged_input(self):
        block = WideBlock(4, 4, stride=1, dropout=0.0).eval()
        nn.init.zeros_(block.conv2.weight)
        maps = torch.randn(2, 4, 6, 6)
        torch.testing.assert_close(block(maps), maps)

    def test_dropout_works_in_training_only(self):
        block = WideBlock(4, 4, stride=1, dropout=0.5)
        maps = torch.randn(2, 4, 6, 6)
        assert not torch.equal(block(maps), block(maps))
        block.eval()
        assert torch.equal(block(maps), block(maps))

    def test_a_dense_block_keeps_its_input_and_appends(self):
        block = DenseBlock(6, growth=4, length=3).eval()
        maps = torch.randn(2, 6, 5, 5)
        out = block(maps)
        assert out.shape == (2, 18, 5, 5)
        torch.testing.assert_close(out[:, :6], maps)
        torch.testing.assert_close(out[:, 14:], block.layers[2](out[:, :14]))

    def test_he_weights_have_variance_two_over_fan_in(self):
        conv = nn.Conv2d(64, 128, 3)
        torch.manual_seed(0)
        he_init(conv)
        assert conv.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.01)

    def test_activations_neither_vanish_nor_explode_at_the_start_of_a_deep_network(self):
        torch.manual_seed(0)
        network = CifarResNet(depth=110)
        logits = network(torch.randn(8, 3, 16, 16))
        assert 0.1 < logits.std().item() < 10
