"""The two-dimensional parts of MedMNIST: what they are called, their classes, and the digests of the 28 x 28 files.

Digests and classes as in the publisher's list for the files of https://zenodo.org/records/10519652.
"""

from dataclasses import dataclass
from typing import final

__all__ = ["MEDMNIST_FLAGS", "MedMNISTFlag"]


@final
@dataclass(frozen=True)
class MedMNISTFlag:
    """One part of the collection."""

    digest: str
    class_names: tuple[str, ...]


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
    ),
    "octmnist": MedMNISTFlag(
        "md5:c68d92d5b585d8d81f7112f81e2d0842",
        ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    ),
    "pneumoniamnist": MedMNISTFlag("md5:28209eda62fecd6e6a2d98b1501bb15f", ("normal", "pneumonia")),
    "retinamnist": MedMNISTFlag("md5:bd4c0672f1bba3e3a89f0e4e876791e4", ("0", "1", "2", "3", "4")),
    "breastmnist": MedMNISTFlag("md5:750601b1f35ba3300ea97c75c52ff8f6", ("malignant", "normal, benign")),
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
    ),
    # The publisher has mended the three of these once; the digests are of the mended files.
    "organamnist": MedMNISTFlag("md5:68e3f8846a6bd62f0c9bf841c0d9eacc", _ORGANS),
    "organcmnist": MedMNISTFlag("md5:b9ceb9546e10131b32923c5bbeaea2b1", _ORGANS),
    "organsmnist": MedMNISTFlag("md5:9ab87b696fb54e2a387ebe992d6ed5f1", _ORGANS),
}
