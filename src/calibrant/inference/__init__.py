"""Run a frozen network over labelled samples: read them in batches, freeze the network, take its logits."""

from calibrant.inference.network import *  # noqa: F403
from calibrant.inference.samples import *  # noqa: F403
