"""Run a frozen network over labelled samples: read them in batches, freeze the network, take its logits."""

from calibrant.inference.loaders import SampleSource, StreamedSamples, open_samples
from calibrant.inference.network import (
    HOW_TO_WRAP,
    check_network,
    device_of,
    evaluating,
    extract_logits,
    first_inputs,
    forward_errors,
    frozen,
    is_training,
    load_weights,
    network_digest,
    network_state,
    set_evaluating,
    state_digest,
    warn_if_training,
    with_features,
)
from calibrant.inference.samples import LabelledInputs, check_batch_size, read_checked, to_device

__all__ = [
    "HOW_TO_WRAP",
    "LabelledInputs",
    "SampleSource",
    "StreamedSamples",
    "check_batch_size",
    "check_network",
    "device_of",
    "evaluating",
    "extract_logits",
    "first_inputs",
    "forward_errors",
    "frozen",
    "is_training",
    "load_weights",
    "network_digest",
    "network_state",
    "open_samples",
    "read_checked",
    "set_evaluating",
    "state_digest",
    "to_device",
    "warn_if_training",
    "with_features",
]
