"""The features of a network, and that its logits are made of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from calibrant.errors import CalibrantError, InputError, in_a_line
from calibrant.inference import HOW_TO_WRAP, with_features
from calibrant.numerics.neighbours import as_features

__all__ = ["check_network", "features_of", "running_on"]


@contextmanager
def running_on(inputs: Tensor) -> Iterator[None]:
    """Within the block a network runs on these inputs; if it cannot, the error tells their shape.

    Raises:
        InputError: If it cannot.
    """
    try:
        yield
    except (CalibrantError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a network may raise anything
        raise InputError(
            f"the network must take inputs of shape (n, {', '.join(map(str, inputs.shape[1:]))}) and type "
            f"{inputs.dtype}; it said: {in_a_line(error)}. Prepare the inputs as in training, or wrap it."
        ) from error


def features_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Activations before the last layer, (n, d), as the network gives them.

    Raises:
        InputError: If they are something else.
    """
    features: object = with_features(model).features(inputs)
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"features must be real numbers of shape (n, d), a row an input; got {got}. {HOW_TO_WRAP}")
    if len(features) != len(inputs):
        raise InputError(
            f"features must have a row for each of {len(inputs)} inputs; got {len(features)}. {HOW_TO_WRAP}"
        )
    return features


def check_network(model: nn.Module, inputs: Tensor) -> None:
    """Its logits are its head's answer to its features, as tried on some inputs.

    Raises:
        InputError: If they are not, or it cannot take the inputs, or the features are not finite.
    """
    with running_on(inputs):
        features = as_features(features_of(model, inputs))
        through, whole = with_features(model).head(features), model(inputs)
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2:
        got = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else type(whole).__name__
        raise InputError(f"a network must return logits of shape (n, k), at least two classes; got {got}.")
    near = torch.finfo(whole.dtype).eps ** 0.5 * (1 + float(whole.abs().max()))
    if through.shape != whole.shape or not (through - whole).abs().max() <= near:
        raise InputError(f"the logits must be head(features(x)); {type(model).__name__} gives others. {HOW_TO_WRAP}")
