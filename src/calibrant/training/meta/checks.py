"""What must hold for a loss that is learned to be trained with."""

from calibrant.errors import InputError
from calibrant.losses import MetaLoss
from calibrant.training.data import DeviceData
from calibrant.training.peers import Peers
from calibrant.training.recipe import Recipe

__all__ = ["check_meta"]


def check_meta(loss: MetaLoss, data: DeviceData, recipe: Recipe, peers: Peers) -> None:
    """Loss, data and recipe go together.

    Raises:
        InputError: If they do not.
    """
    if data.meta is None:
        raise InputError(
            f"{loss.name} must have rows of its own to be tuned on, which neither train nor judge the network; there "
            "are none. Divide the data by '8:1:1'."
        )
    if len(data.meta) < 2 or bool((data.meta.labels == data.meta.labels[0]).all()):
        raise InputError(
            f"{loss.name} must be tuned on rows of several classes; got {len(data.meta)} of "
            f"{len(data.meta.labels.unique())}. Set more rows apart."
        )
    if recipe.batch_size < 2:
        raise InputError(
            f"batch_size must be at least 2 with {loss.name}, which as many held-out rows judge in each step; got "
            f"{recipe.batch_size}."
        )
    if recipe.mixup:
        raise InputError(f"mixup must be 0 with {loss.name}, whose features are those of single rows.")
    if peers.count > 1:
        raise InputError(f"{loss.name} must be trained by one process; there are {peers.count}.")
