"""Run a frozen network over labelled samples: read them in batches, freeze the network, take its logits."""

from calibrant.inference.loaders import SampleSource, StreamedSamples, open_samples
from calibrant.inference.network import (
    HOW_TO_WRAP,
    check_network,
    device_of,
    evaluating,
    first_inputs,
    frozen,
    is_training,
    logits_in,
    network_digest,
    network_state,
    put_weights,
    running_on,
    set_evaluating,
    state_digest,
    warn_if_training,
    with_features,
)
from calibrant.inference.samples import CalibrationSamples, check_batch_size, read_checked, to_device

__all__ = [
    "HOW_TO_WRAP",
    "CalibrationSamples",
    "SampleSource",
    "StreamedSamples",
    "check_batch_size",
    "check_network",
    "device_of",
    "evaluating",
    "first_inputs",
    "frozen",
    "is_training",
    "logits_in",
    "network_digest",
    "network_state",
    "open_samples",
    "put_weights",
    "read_checked",
    "running_on",
    "set_evaluating",
    "state_digest",
    "to_device",
    "warn_if_training",
    "with_features",
]
