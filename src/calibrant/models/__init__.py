"""Networks, each with ``features(x)`` and a linear ``head``."""

from calibrant.models.convolutional import VGG, CifarResNet, DenseNet, DigitsCNN, ResNet, WideResNet
from calibrant.models.layers import Network
from calibrant.models.patch_networks import MLPMixer, VisionTransformer
from calibrant.models.text_cnn import TextCNN
from calibrant.models.zoo import InputKind, ModelSpec, Sizes, all_models, build_model, own_names

__all__ = [
    "VGG", "CifarResNet", "DenseNet", "DigitsCNN", "InputKind", "MLPMixer", "ModelSpec", "Network", "ResNet", "Sizes",
    "TextCNN", "VisionTransformer", "WideResNet", "all_models", "build_model", "own_names",
]  # fmt: skip
