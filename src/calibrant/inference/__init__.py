"""Run a frozen network over labelled samples: read them in batches, freeze the network, take its logits."""

from calibrant.inference.loaders import SampleSource, StreamedSamples, TensorSamples, open_samples
from calibrant.inference.network import (
    HOW_TO_WRAP,
    device_of,
    evaluating,
    frozen,
    is_exported,
    is_training,
    logits_in,
    network_digest,
    network_state,
    put_weights,
    set_evaluating,
    state_digest,
    warn_if_training,
    with_features,
)
from calibrant.inference.probe import check_network, first_inputs
from calibrant.inference.samples import (
    CalibrationSamples,
    check_batch_size,
    default_batch_size,
    read_checked,
    to_device,
)

__all__ = [
    "HOW_TO_WRAP",
    "CalibrationSamples",
    "SampleSource",
    "StreamedSamples",
    "TensorSamples",
    "check_batch_size",
    "check_network",
    "default_batch_size",
    "device_of",
    "evaluating",
    "first_inputs",
    "frozen",
    "is_exported",
    "is_training",
    "logits_in",
    "network_digest",
    "network_state",
    "open_samples",
    "put_weights",
    "read_checked",
    "set_evaluating",
    "state_digest",
    "to_device",
    "warn_if_training",
    "with_features",
]
