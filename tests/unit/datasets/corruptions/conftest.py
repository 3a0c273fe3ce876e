"""Real photographs, cut into pieces of the size of CIFAR's."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image


@pytest.fixture(scope="session")
def photos():
    """Twenty-four pieces of two photographs, (24, 3, 32, 32) uint8."""
    pieces = []
    for name in ("china.jpg", "flower.jpg"):
        small = np.asarray(Image.fromarray(load_sample_image(name)).resize((128, 96), Image.Resampling.LANCZOS))
        pieces.append(small.reshape(3, 32, 4, 32, 3).transpose(0, 2, 4, 1, 3).reshape(12, 3, 32, 32))
    return torch.from_numpy(np.concatenate(pieces))
