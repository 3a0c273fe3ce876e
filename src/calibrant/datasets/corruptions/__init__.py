"""Corruptions: one file each, images spoiled as the world spoils them, to judge networks under a shift."""

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.brightness import Brightness
from calibrant.datasets.corruptions.contrast import Contrast
from calibrant.datasets.corruptions.corrupting import MOST_SEVERE, all_corruptions, corrupt
from calibrant.datasets.corruptions.defocus_blur import DefocusBlur
from calibrant.datasets.corruptions.gaussian_blur import GaussianBlur
from calibrant.datasets.corruptions.gaussian_noise import GaussianNoise
from calibrant.datasets.corruptions.impulse_noise import ImpulseNoise
from calibrant.datasets.corruptions.jpeg_compression import JPEGCompression
from calibrant.datasets.corruptions.motion_blur import MotionBlur
from calibrant.datasets.corruptions.pixelate import Pixelate
from calibrant.datasets.corruptions.shot_noise import ShotNoise

__all__ = [
    "MOST_SEVERE",
    "Brightness",
    "Contrast",
    "Corruption",
    "DefocusBlur",
    "GaussianBlur",
    "GaussianNoise",
    "ImpulseNoise",
    "JPEGCompression",
    "MotionBlur",
    "Pixelate",
    "ShotNoise",
    "all_corruptions",
    "corrupt",
]
