"""Steps from lines of different lengths: one curve for all classes, however many cells each has."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from calibrant.maps import Steps

__all__ = ["steps_of"]


def steps_of(lines: Sequence[tuple[Tensor, Tensor]]) -> Steps:
    """One curve of all lines.

    Args:
        lines: Rising edges (b,) and the log-odds between them (b + 1,), a pair for each line.

    Example:
        >>> one_edge, no_edge = (torch.zeros(1), torch.tensor([-1.0, 1.0])), (torch.zeros(0), torch.tensor([2.0]))
        >>> curve = steps_of([one_edge, no_edge])
        >>> curve(torch.tensor([[-5.0, 5.0], [5.0, -5.0]])).tolist()
        [[-1.0, 2.0], [1.0, 2.0]]
    """
    edges, values = zip(*lines, strict=True)
    # No score lies above infinity, so what fills the values up is never read.
    return Steps(
        pad_sequence(list(edges), batch_first=True, padding_value=torch.inf),
        pad_sequence(list(values), batch_first=True),
    )
