"""What a batch of logits answers, and whether it is right: the start of every penalty on a batch."""

from typing import NamedTuple, Self

from torch import Tensor

__all__ = ["Answers", "entropies"]


class Answers(NamedTuple):
    """The probabilities of a batch, how sure its predictions are, and which are right."""

    probs: Tensor  # (n, k)
    confidence: Tensor  # (n,)
    correct: Tensor  # (n,) of 0 and 1, in the type of the logits

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Self:
        """Read checked rows.

        Args:
            logits: Shape (n, k).
            labels: Shape (n,), int64.
        """
        probs = logits.softmax(1)
        # Of the logits: two large probabilities can be equal in floating point where their logits are not.
        predicted = logits.argmax(1)
        confidence = probs.gather(1, predicted[:, None])[:, 0]
        return cls(probs, confidence, (predicted == labels).to(logits.dtype))


def entropies(logits: Tensor) -> Tensor:
    """The entropy of each row's softmax in nats, (n,)."""
    log_probs = logits.log_softmax(1)
    return -(log_probs.exp() * log_probs).sum(1)
