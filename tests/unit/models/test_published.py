"""Weights as torchvision and timm publish them: their names, and the same logits from them by plain formulas."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from calibrant.cli.networks import read_network
from calibrant.errors import InputError
from calibrant.models import DigitsCNN, MLPMixer, ResNet, VisionTransformer, build_model, own_names

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
PATCHES = {"n_classes": 7, "image_size": 16, "patch_size": 4, "width": 12, "depth": 2}
VIT = {**PATCHES, "heads": 3, "hidden": 20}
MIXER = {**PATCHES, "token_hidden": 5, "channel_hidden": 20}


def normal(shapes, seed=0):
    """Random weights near those of a working network: variances above 0."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(shape, generator=generator) + 0.5
        if name.endswith("running_var")
        else torch.randn(shape, generator=generator) / max(1, torch.Size(shape[1:]).numel()) ** 0.5
        for name, shape in shapes.items()
    }


def norm_shapes(name, size):
    return {f"{name}.{part}": (size,) for part in ("weight", "bias", "running_mean", "running_var")}


def linear_shapes(name, size, into):
    return {f"{name}.weight": (into, size), f"{name}.bias": (into,)}


def resnet_shapes(depth, n_classes):
    """Names and shapes of torchvision's residual networks."""
    widens = 4 if depth >= 50 else 1
    shapes, channels = {"conv1.weight": (64, 3, 7, 7), **norm_shapes("bn1", 64)}, 64
    for stage, length in enumerate(STAGES[depth], start=1):
        width = 32 * 2**stage
        for place in range(length):
            name, out = f"layer{stage}.{place}", width * widens
            sizes = [(channels, width, 1), (width, width, 3), (width, out, 1)]
            for layer, (into, to, side) in enumerate(
                sizes if widens == 4 else [(channels, width, 3), (width, out, 3)], 1
            ):
                shapes |= {f"{name}.conv{layer}.weight": (to, into, side, side), **norm_shapes(f"{name}.bn{layer}", to)}
            if channels != out:
                shapes |= {f"{name}.downsample.0.weight": (out, channels, 1, 1)}
                shapes |= norm_shapes(f"{name}.downsample.1", out)
            channels = out
    return shapes | linear_shapes("fc", channels, n_classes)


def resnet(weights, images):
    def normed(name, maps):
        mean, var, scale, shift = (
            weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(maps, mean, var, scale, shift)

    def convolved(name, maps, stride=1):
        kernel = weights[f"{name}.weight"]
        return F.conv2d(maps, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    maps = F.max_pool2d(normed("bn1", convolved("conv1", images, 2)).relu(), 3, 2, 1)
    blocks = sorted(
        {tuple(name.split(".")[:2]) for name in weights if name.startswith("layer")}, key=lambda at: (at[0], int(at[1]))
    )
    for block in blocks:
        name, stride = ".".join(block), 2 if block[1] == "0" and block[0] != "layer1" else 1
        layers = 3 if f"{name}.conv3.weight" in weights else 2
        out = maps
        for layer in range(1, layers + 1):
            # The 3 x 3 convolution halves the size: the second of three, the first of two.
            strides = stride if layer == layers - 1 else 1
            out = normed(f"{name}.bn{layer}", convolved(f"{name}.conv{layer}", out, strides))
            out = out.relu() if layer < layers else out
        if f"{name}.downsample.0.weight" in weights:
            maps = normed(f"{name}.downsample.1", convolved(f"{name}.downsample.0", maps, stride))
        maps = (maps + out).relu()
    return F.linear(maps.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


def of_patches(shapes_of_block):
    width, patches = PATCHES["width"], (PATCHES["image_size"] // PATCHES["patch_size"]) ** 2
    shapes = {}
    for place in range(PATCHES["depth"]):
        for norm in ("norm1", "norm2"):
            shapes |= {f"blocks.{place}.{norm}.weight": (width,), f"blocks.{place}.{norm}.bias": (width,)}
        for name, size, into in shapes_of_block:
            shapes |= linear_shapes(f"blocks.{place}.{name}", size, into)
    return width, patches, shapes | {"norm.weight": (width,), "norm.bias": (width,)} | linear_shapes("head", width, 7)


def vit_shapes():
    """Names and shapes of timm's vision transformers."""
    blocks = [("attn.qkv", 12, 36), ("attn.proj", 12, 12), ("mlp.fc1", 12, 20), ("mlp.fc2", 20, 12)]
    width, patches, shapes = of_patches(blocks)
    kernel = {"patch_embed.proj.weight": (width, 3, 4, 4), "patch_embed.proj.bias": (width,)}
    return {"cls_token": (1, 1, width), "pos_embed": (1, patches + 1, width), **kernel, **shapes}


def mixer_shapes():
    """Names and shapes of timm's mixers."""
    tokens = [("mlp_tokens.fc1", 16, 5), ("mlp_tokens.fc2", 5, 16)]
    width, _, shapes = of_patches([*tokens, ("mlp_channels.fc1", 12, 20), ("mlp_channels.fc2", 20, 12)])
    return {"stem.proj.weight": (width, 3, 4, 4), "stem.proj.bias": (width,), **shapes}


def of_layers(weights):
    def linear(name, values):
        return F.linear(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def normed(name, values):
        return F.layer_norm(values, values.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-6)

    return linear, normed


def vit(weights, images):
    linear, normed = of_layers(weights)
    patches = F.conv2d(images, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=4)
    tokens = (
        torch.cat((weights["cls_token"].expand(len(images), -1, -1), patches.flatten(2).mT), 1) + weights["pos_embed"]
    )
    for place in range(PATCHES["depth"]):
        name = f"blocks.{place}"
        queries, keys, values = linear(f"{name}.attn.qkv", normed(f"{name}.norm1", tokens)).chunk(3, -1)
        heads = []
        for part in range(0, 12, 4):  # three heads of four numbers
            q, k, v = (each[..., part : part + 4] for each in (queries, keys, values))
            heads.append(torch.softmax(q @ k.mT / 2, -1) @ v)
        tokens = tokens + linear(f"{name}.attn.proj", torch.cat(heads, -1))
        hidden = F.gelu(linear(f"{name}.mlp.fc1", normed(f"{name}.norm2", tokens)))
        tokens = tokens + linear(f"{name}.mlp.fc2", hidden)
    return linear("head", normed("norm", tokens)[:, 0])


def mixer(weights, images):
    linear, normed = of_layers(weights)
    patches = F.conv2d(images, weights["stem.proj.weight"], weights["stem.proj.bias"], stride=4).flatten(2).mT
    for place in range(PATCHES["depth"]):
        name = f"blocks.{place}"
        columns = normed(f"{name}.norm1", patches).mT
        patches = patches + linear(f"{name}.mlp_tokens.fc2", F.gelu(linear(f"{name}.mlp_tokens.fc1", columns))).mT
        hidden = F.gelu(linear(f"{name}.mlp_channels.fc1", normed(f"{name}.norm2", patches)))
        patches = patches + linear(f"{name}.mlp_channels.fc2", hidden)
    return linear("head", normed("norm", patches).mean(1))


@pytest.mark.parametrize(
    ("build", "shapes", "formula", "side"),
    [
        (lambda: ResNet(depth=18, n_classes=7, imagenet_stem=True), resnet_shapes(18, 7), resnet, 40),
        (lambda: ResNet(depth=50, n_classes=7, imagenet_stem=True), resnet_shapes(50, 7), resnet, 40),
        (lambda: VisionTransformer(**VIT), vit_shapes(), vit, 16),
        (lambda: MLPMixer(**MIXER), mixer_shapes(), mixer, 16),
    ],
    ids=["resnet18", "resnet50", "vit", "mixer"],
)
def test_published_weights_give_the_logits_of_their_formula(build, shapes, formula, side):
    with torch.device("meta"):  # where weights are not drawn
        network = build().eval()
    weights = normal(shapes)
    counts = {name.replace("running_var", "num_batches_tracked") for name in weights if name.endswith("running_var")}
    given = weights | dict.fromkeys(counts, torch.tensor(0))
    network.load_state_dict(own_names(network, given), assign=True)  # strict: none is missing, none is left over
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        ours, theirs = network(images), formula(weights, images)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_files_that_count_no_batches_are_enough():
    network = ResNet(depth=18, n_classes=7, imagenet_stem=True)
    network.load_state_dict(
        own_names(network, {name: torch.zeros(shape) for name, shape in resnet_shapes(18, 7).items()})
    )
    assert not network.body[7].norm2.weight.any()


def test_weights_with_names_of_the_network_or_of_none_are_left_as_they_are():
    network = MLPMixer(**MIXER)
    assert own_names(network, network.state_dict()).keys() == network.state_dict().keys()
    assert own_names(DigitsCNN(), {"fc.bias": torch.zeros(2)}).keys() == {"fc.bias"}
    assert "pre_logits.bias" in own_names(network, {"pre_logits.bias": torch.zeros(2)})


def test_the_clamp_command_takes_published_weights(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(
        f"import calibrant.models as m\ndef made(): return m.MLPMixer(**{MIXER})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    weights = normal(mixer_shapes())
    save_file(weights, tmp_path / "model.safetensors")
    network = read_network("own_network:made", tmp_path / "model.safetensors", torch.device("cpu"))
    assert torch.equal(network.model.head.weight, weights["head.weight"])
    del weights["blocks.1.mlp_tokens.fc1.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"1 missing \(body\.1\.token_expand\.bias\)"):
        read_network("own_network:made", tmp_path / "model.safetensors", torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "package", "theirs"),
    [
        ("resnet50_imagenet", "torchvision.models", lambda module: module.resnet50()),
        ("resnet101_imagenet", "timm", lambda module: module.create_model("resnet101")),
        ("vit_s16", "timm", lambda module: module.create_model("vit_small_patch16_224")),
        ("mixer_b16", "timm", lambda module: module.create_model("mixer_b16_224")),
    ],
)
def test_a_network_is_that_of_the_package_which_publishes_it(name, package, theirs):
    peer = theirs(pytest.importorskip(package)).eval()
    network = build_model(name, n_classes=1000, image_size=224).eval()
    network.load_state_dict(own_names(network, peer.state_dict()))
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(network(images), peer(images))
