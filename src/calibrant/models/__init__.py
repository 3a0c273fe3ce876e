"""Networks, each with ``features(x)`` and a linear ``head``."""

from calibrant.models.convolutional import VGG, CifarResNet, DenseNet, DigitsCNN, ResNet, WideResNet
from calibrant.models.layers import Network
from calibrant.models.sequences import MLPMixer, TextCNN, VisionTransformer
from calibrant.models.zoo import InputKind, ModelSpec, Sizes, all_models, build_model, own_names

__all__ = [
    "VGG", "CifarResNet", "DenseNet", "DigitsCNN", "InputKind", "MLPMixer", "ModelSpec", "Network", "ResNet", "Sizes",
    "TextCNN", "VisionTransformer", "WideResNet", "all_models", "build_model", "own_names",
]  # fmt: skip
