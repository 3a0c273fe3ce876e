"""Run a frozen network over labelled samples: read them in batches, freeze the network, take its logits."""

from calibrant.inference.network import HOW_TO_WRAP as HOW_TO_WRAP
from calibrant.inference.network import NAME_LAYER as NAME_LAYER
from calibrant.inference.network import check_network as check_network
from calibrant.inference.network import device_of as device_of
from calibrant.inference.network import evaluating as evaluating
from calibrant.inference.network import extract_logits as extract_logits
from calibrant.inference.network import features_of as features_of
from calibrant.inference.network import find_layer as find_layer
from calibrant.inference.network import forward_errors as forward_errors
from calibrant.inference.network import frozen as frozen
from calibrant.inference.network import is_training as is_training
from calibrant.inference.network import load_weights as load_weights
from calibrant.inference.network import logits_and_features as logits_and_features
from calibrant.inference.network import network_digest as network_digest
from calibrant.inference.network import network_state as network_state
from calibrant.inference.network import set_evaluating as set_evaluating
from calibrant.inference.network import state_digest as state_digest
from calibrant.inference.network import warn_if_training as warn_if_training
from calibrant.inference.network import with_features as with_features
from calibrant.inference.samples import LabelledInputs as LabelledInputs
from calibrant.inference.samples import SampleSource as SampleSource
from calibrant.inference.samples import labelled_batches as labelled_batches
from calibrant.inference.samples import sample_source as sample_source
from calibrant.inference.samples import to_device as to_device
