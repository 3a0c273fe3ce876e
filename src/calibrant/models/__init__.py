"""Networks, each exposing ``features(x)`` and ``head``."""

from calibrant.models.densenet import DenseNet
from calibrant.models.digits_cnn import DigitsCNN
from calibrant.models.mixer import MLPMixer
from calibrant.models.network import Network
from calibrant.models.resnet import ResNet
from calibrant.models.resnet_cifar import CifarResNet
from calibrant.models.text_cnn import TextCNN
from calibrant.models.vgg import VGG
from calibrant.models.vit import VisionTransformer
from calibrant.models.wide_resnet import WideResNet
from calibrant.models.zoo import InputKind, ModelSpec, Sizes, all_models, build_model

__all__ = [
    "VGG",
    "CifarResNet",
    "DenseNet",
    "DigitsCNN",
    "InputKind",
    "MLPMixer",
    "ModelSpec",
    "Network",
    "ResNet",
    "Sizes",
    "TextCNN",
    "VisionTransformer",
    "WideResNet",
    "all_models",
    "build_model",
]
