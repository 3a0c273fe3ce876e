"""What a batch of logits answers, and whether it is right: the start of every penalty on a batch."""

from typing import NamedTuple, Self

from torch import Tensor

__all__ = ["Answers", "entropies"]

_LOG_OF_NOTHING = -1000.0


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


def entropies(log_probs: Tensor) -> Tensor:
    """The entropy of each row in nats, (n,), to which a class of probability 0 adds nothing.

    Args:
        log_probs: Shape (n, k); -inf where a class is masked.
    """
    # e^-1000 is 0 in every type, so the bound changes no term but that of -inf, where 0 times infinity is no number.
    return -(log_probs.exp() * log_probs.clamp(min=_LOG_OF_NOTHING)).sum(1)
