"""The two-dimensional parts of MedMNIST: what they are called, their classes, and the digests of the 28 x 28 files.

Digests and classes as in the publisher's list for the files of https://zenodo.org/records/10519652.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import final

__all__ = ["MEDMNIST_FLAGS", "MedMNISTFlag", "named_flag"]


@final
@dataclass(frozen=True)
class MedMNISTFlag:
    """One part of the collection."""

    digest: str
    class_names: tuple[str, ...]
    channels: int  # 1 is grey, 3 is colour


_ORGANS = (
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
)

MEDMNIST_FLAGS = {
    "pathmnist": MedMNISTFlag(
        "md5:a8b06965200029087d5bd730944a56c1",
        (
            "adipose",
            "background",
            "debris",
            "lymphocytes",
            "mucus",
            "smooth muscle",
            "normal colon mucosa",
            "cancer-associated stroma",
            "colorectal adenocarcinoma epithelium",
        ),
        3,
    ),
    "dermamnist": MedMNISTFlag(
        "md5:0744692d530f8e62ec473284d019b0c7",
        (
            "actinic keratoses and intraepithelial carcinoma",
            "basal cell carcinoma",
            "benign keratosis-like lesions",
            "dermatofibroma",
            "melanoma",
            "melanocytic nevi",
            "vascular lesions",
        ),
        3,
    ),
    "octmnist": MedMNISTFlag(
        "md5:c68d92d5b585d8d81f7112f81e2d0842",
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
        1,
    ),
    "pneumoniamnist": MedMNISTFlag("md5:28209eda62fecd6e6a2d98b1501bb15f", ("normal", "pneumonia"), 1),
    "retinamnist": MedMNISTFlag("md5:bd4c0672f1bba3e3a89f0e4e876791e4", ("0", "1", "2", "3", "4"), 3),
    "breastmnist": MedMNISTFlag("md5:750601b1f35ba3300ea97c75c52ff8f6", ("malignant", "normal, benign"), 1),
    "bloodmnist": MedMNISTFlag(
        "md5:7053d0359d879ad8a5505303e11de1dc",
        (
            "basophil",
            "eosinophil",
            "erythroblast",
            "immature granulocytes",
            "lymphocyte",
            "monocyte",
            "neutrophil",
            "platelet",
        ),
        3,
    ),
    "tissuemnist": MedMNISTFlag(
        "md5:ebe78ee8b05294063de985d821c1c34b",
        (
            "Collecting Duct, Connecting Tubule",
            "Distal Convoluted Tubule",
            "Glomerular endothelial cells",
            "Interstitial endothelial cells",
            "Leukocytes",
            "Podocytes",
            "Proximal Tubule Segments",
            "Thick Ascending Limb",
        ),
        1,
    ),
    # The publisher has mended the three of these once; the digests are of the mended files.
    "organamnist": MedMNISTFlag("md5:68e3f8846a6bd62f0c9bf841c0d9eacc", _ORGANS, 1),
    "organcmnist": MedMNISTFlag("md5:b9ceb9546e10131b32923c5bbeaea2b1", _ORGANS, 1),
    "organsmnist": MedMNISTFlag("md5:9ab87b696fb54e2a387ebe992d6ed5f1", _ORGANS, 1),
}


def named_flag(path: Path) -> str | None:
    """The part that a file is by its name, which may end in the side of its images; None for another name.

    Example:
        >>> named_flag(Path("data/pathmnist_64.npz")), named_flag(Path("cells.npz"))
        ('pathmnist', None)
    """
    found = re.fullmatch(r"([a-z]+)(?:_\d+)?\.npz", path.name)
    return found[1] if found and found[1] in MEDMNIST_FLAGS else None
