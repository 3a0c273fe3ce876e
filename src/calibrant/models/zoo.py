"""Every network by its short name, with the sizes of its paper; weights that torchvision and timm publish for some."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_known, check_seed
from calibrant.errors import InputError
from calibrant.models.convolutional import VGG, CifarResNet, DenseNet, DigitsCNN, ResNet, WideResNet
from calibrant.models.sequences import MLPMixer, TextCNN, VisionTransformer
from calibrant.paper import Paper

InputKind: TypeAlias = Literal["image", "text"]


@final
@dataclass(frozen=True)
class Sizes:
    """Sizes of the data that a network is built for."""

    n_classes: int
    in_channels: int = 3
    image_size: int = 32
    n_words: int = 0


@final
@dataclass(frozen=True)
class ModelSpec:
    """A network that can be built for any data set of its kind."""

    name: str
    title: str
    paper: Paper | None  # None for a network of our own
    input_kind: InputKind
    build: Callable[[Sizes], nn.Module]
    smallest_side: int  # smallest side of the images; 0 for texts


def all_models() -> dict[str, ModelSpec]:
    """Return every network, by name."""
    specs = [
        ModelSpec(f"resnet{depth}", f"ResNet-{depth}", kind.paper, "image", _image(kind, depth=depth), side)
        for kind, side, depths in ((CifarResNet, 4, (20, 32, 56, 110)), (ResNet, 8, (18, 50)))
        for depth in depths
    ]
    specs += [
        ModelSpec("wrn40_10", "WRN-40-10", WideResNet.paper, "image", _image(WideResNet, depth=40, width=10), 4),
        ModelSpec("densenet121", "DenseNet-121", DenseNet.paper, "image", _image(DenseNet, depth=121), 8),
        ModelSpec("vgg16_bn", "VGG-16-BN", VGG.paper, "image", _image(VGG, depth=16), 16),
        ModelSpec("vgg16", "VGG-16", VGG.paper, "image", _image(VGG, depth=16, normalised=False), 16),
        ModelSpec("vit_small", "ViT-Lite-7/4", VisionTransformer.paper, "image", _sized(VisionTransformer), 4),
        ModelSpec("mixer_small", "Mixer-S/4", MLPMixer.paper, "image", _sized(MLPMixer), 4),
        *_of_imagenet(),
        ModelSpec("text_cnn", "8-layer 1-D CNN", TextCNN.paper, "text", _text, 0),
        ModelSpec("digits_cnn", "Small CNN", None, "image", _sized(DigitsCNN), 4),
    ]
    return {spec.name: spec for spec in specs}


def _of_imagenet() -> Iterator[ModelSpec]:
    """Yield networks for images of 224 x 224, whose weights torchvision or timm publish."""
    for depth in (50, 101):
        build = _image(ResNet, depth=depth, imagenet_stem=True)
        yield ModelSpec(f"resnet{depth}_imagenet", f"ResNet-{depth}, ImageNet stem", ResNet.paper, "image", build, 28)
    patches = {"patch_size": 16, "depth": 12}
    vit = _sized(VisionTransformer, **patches, width=384, heads=6, hidden=1536)
    yield ModelSpec("vit_s16", "ViT-S/16", VisionTransformer.paper, "image", vit, 16)
    mixer = _sized(MLPMixer, **patches, width=768, token_hidden=384, channel_hidden=3072)
    yield ModelSpec("mixer_b16", "Mixer-B/16", MLPMixer.paper, "image", mixer, 16)


def _image(kind: Callable[..., nn.Module], **options: Any) -> Callable[[Sizes], nn.Module]:
    return lambda sizes: kind(n_classes=sizes.n_classes, in_channels=sizes.in_channels, **options)


def _sized(kind: Callable[..., nn.Module], **options: Any) -> Callable[[Sizes], nn.Module]:
    return lambda sizes: _image(kind, image_size=sizes.image_size, **options)(sizes)


def _text(sizes: Sizes) -> nn.Module:
    return TextCNN(n_words=sizes.n_words, n_classes=sizes.n_classes)


def build_model(
    name: str, *, n_classes: int, in_channels: int = 3, image_size: int = 32, n_words: int | None = None, seed: int = 0
) -> nn.Module:
    """Build a :class:`Network` in training mode, with random weights that depend on the seed alone.

    It is built on the CPU, whatever torch's default device is, and torch's random state is restored.

    Args:
        name: One of :func:`all_models`.
        n_classes: Number of classes.
        in_channels: Channels of the images, (n, in_channels, image_size, image_size); texts have none.
        image_size: Side of the images; texts have none.
        n_words: Size of the vocabulary of texts, (n, length), with word numbers 0 (no word) to n_words - 1; None for
            images.
        seed: Random seed of the weights.

    Example:
        >>> network = build_model("resnet20", n_classes=10)
        >>> sum(parameter.numel() for parameter in network.parameters())
        269722
    """
    with torch.device("cpu"):
        return _build(name, seed, n_classes, in_channels, image_size, n_words)


def model_shapes(
    name: str, *, n_classes: int, in_channels: int = 3, image_size: int = 32, n_words: int | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the ``state_dict`` that :func:`build_model` would make, without allocating it."""
    with torch.device("meta"):
        network = _build(name, 0, n_classes, in_channels, image_size, n_words)
    return {name: tuple(values.shape) for name, values in network.state_dict().items()}


def _build(name: str, seed: int, n_classes: int, in_channels: int, image_size: int, n_words: int | None) -> nn.Module:
    known = all_models()
    check_known(name, known, "a network")
    spec = known[name]
    if spec.input_kind == "text" and n_words is None:
        raise InputError(
            f"{name} takes texts, and the data are images (n_words is None). Take a network for images, such as "
            "resnet20; or, if they are texts, give n_words."
        )
    if spec.input_kind == "image" and n_words is not None:
        raise InputError(
            f"{name} takes images, and the data are texts (n_words is {n_words}). Take a network for texts, such as "
            "text_cnn; or, if they are images, leave n_words out."
        )
    if spec.input_kind == "image":
        check_at_least(image_size, spec.smallest_side, f"image_size for {name}")
    # torch.manual_seed would also seed the GPUs, whose state fork_rng does not restore here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(check_seed(seed))
        return spec.build(Sizes(n_classes, in_channels, image_size, n_words or 0))


# Parts of the published names, and what is there instead, in turn. Of a residual network those of torchvision, which
# timm has too; its blocks are counted through the stages.
_PARTS: Final[Mapping[type[nn.Module], tuple[tuple[str, str], ...]]] = {
    ResNet: (
        (r"^conv1\.", "stem.conv."),
        (r"^bn1\.", "stem.norm."),
        (r"^fc\.", "head."),
        (r"\.bn(\d)\.", r".norm\1."),
        (r"\.downsample\.", ".shortcut."),
    ),
    VisionTransformer: (
        (r"^cls_token$", "class_token"),
        (r"^pos_embed$", "positions"),
        (r"^patch_embed\.proj\.", "patches.project."),
        (r"^blocks\.", "body."),
        (r"\.attn\.qkv\.", ".queries_keys_values."),
        (r"\.attn\.proj\.", ".mix_heads."),
        (r"\.mlp\.fc1\.", ".expand."),
        (r"\.mlp\.fc2\.", ".contract."),
    ),
    MLPMixer: (
        (r"^stem\.proj\.", "patches.project."),
        (r"^blocks\.", "body."),
        (r"\.mlp_(token|channel)s\.fc1\.", r".\1_expand."),
        (r"\.mlp_(token|channel)s\.fc2\.", r".\1_contract."),
    ),
}
_STAGE: Final = re.compile(r"^layer(\d+)\.(\d+)\.")


def own_names(network: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under a network's own names, if they have those of torchvision or timm for the same network.

    A ``ResNet`` with ImageNet stem is torchvision's and timm's ``resnet50`` (or of another depth), a
    ``VisionTransformer`` is timm's ``vit_small_patch16_224``, an ``MLPMixer`` timm's ``mixer_b16_224`` (or of other
    sizes). Weights with other names are returned as they are: loading them says which are missing or unknown.

    Args:
        network: Any; other networks know no published names.
        weights: A state dict.

    Example:
        >>> network = ResNet(depth=18, imagenet_stem=True)
        >>> published = {"fc.bias": network.head.bias, "layer2.0.bn1.bias": network.head.bias}
        >>> [name for name in own_names(network, published) if name.endswith("bias")]
        ['head.bias', 'body.0.norm1.bias']
    """
    parts = next((parts for kind, parts in _PARTS.items() if isinstance(network, kind)), ())
    own = network.state_dict()
    if not parts or weights.keys() <= own.keys():
        return dict(weights)
    blocks = sorted({tuple(map(int, stage.groups())) for name in weights if (stage := _STAGE.match(name))})

    def renamed(name: str) -> str:
        if stage := _STAGE.match(name):
            name = f"body.{blocks.index((int(stage[1]), int(stage[2])))}.{name[stage.end() :]}"
        for pattern, ours in parts:
            name = re.sub(pattern, ours, name)
        return name

    mapped = {renamed(name): values for name, values in weights.items()}
    # Files that were written before torch counted batches have no counts, which evaluation does not use.
    counts = {name: values for name, values in own.items() if name.endswith(".num_batches_tracked")}
    return counts | mapped
