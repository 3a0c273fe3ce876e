"""Weights that torchvision and timm publish, under the names of the networks here."""

import re
from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn

from calibrant.models.convolutional import ResNet
from calibrant.models.patch_networks import MLPMixer, VisionTransformer

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
