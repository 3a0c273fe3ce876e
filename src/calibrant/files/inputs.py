"""Whether a map cares if it is given logits or the logarithms of the same probabilities."""

import torch
from torch import Tensor

from calibrant.maps import Map

__all__ = ["heeds_offset"]

_ROWS = 256
_FINEST = 256  # steps in one, of the rows that are tried
_SEEN = 1e-6


@torch.no_grad()
def heeds_offset(fitted: Map, logits: Tensor) -> bool:
    """Whether the map's probabilities change when a number is added to a row of logits, tried on a few of the rows.

    The softmax does not, and neither do most maps. Those with a weight for each class do; to them logits, and the
    logarithms of the probabilities that these give, are different inputs.

    Args:
        fitted: The map.
        logits: Rows as it will see them, (n, k).

    Example:
        >>> from calibrant.maps import Affine, Scale
        >>> rows = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> heeds_offset(Scale(torch.tensor(2.0), n_classes=2), rows)
        False
        >>> heeds_offset(Affine(torch.tensor([2.0, 1.0]), torch.zeros(2), n_classes=2), rows)
        True
    """
    few = logits[:: max(1, len(logits) // _ROWS)].double()
    # Rounded, so that adding one is exact: else a row on the edge of a bin could change sides.
    few = (few * _FINEST).round() / _FINEST
    return bool(((fitted(few + 1).softmax(1) - fitted(few).softmax(1)).abs() > _SEEN).any())
