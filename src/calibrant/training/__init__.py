"""Training networks whose confidence is then judged."""

from calibrant.training.loop import predict, train

__all__ = ["predict", "train"]
