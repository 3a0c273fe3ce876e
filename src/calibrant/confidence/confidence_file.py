"""Save and load a fitted confidence as one safetensors file, with the record of its fit.

The tensors of a head are its weights, under ``head.``, and those of a fine-tuned copy, under ``encoder.``; those of a
trust score are its reference samples and their classes. The metadata is one JSON document: the format's version, the
kind, its sizes, the summary of the fit, a fingerprint of the classifier, and the layer that takes its features. A
digest of all of it is checked on reading, and sizes are compared with the numbers before anything is made of them.
Nothing in a file is executed.
"""

import os
from dataclasses import asdict
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from calibrant.checks import existing_file
from calibrant.confidence import learned
from calibrant.confidence.trust_score import NeighbourConfidence
from calibrant.errors import InputError, reading
from calibrant.files.map_file import Container, describe_fit, read_fit
from calibrant.inference import device_of, load_weights, network_digest, network_state, tensors_under

AnyConfidence: TypeAlias = learned.ConfidenceHead | learned.LearnedConfidence | NeighbourConfidence

_CONTAINER = Container("calibrant.confidence", 3, "a confidence", "Make one with save_confidence.")


def save_confidence(fitted: AnyConfidence, path: str | os.PathLike[str]) -> None:
    """Write what ConfidNet or TrustScore fitted to a ``.safetensors`` file, atomically.

    The classifier itself is not in it, only a fingerprint; a fine-tuned copy of its encoder is.

    Args:
        fitted: A head, one with its classifier, or a trust score.
        path: File to write; the folder must exist, and an existing file is replaced.
    """
    _CONTAINER.check_path(path)
    if not isinstance(fitted, learned.FeatureConfidence | learned.LearnedConfidence):
        raise InputError(f"what is saved must be a fitted confidence; got {type(fitted).__name__}. Call fit first.")
    whole = fitted if isinstance(fitted, learned.LearnedConfidence) else None
    head = fitted if isinstance(fitted, learned.FeatureConfidence) else fitted.head
    assert isinstance(head, learned.ConfidenceHead | NeighbourConfidence)
    document: dict[str, Any] = {"sizes": head.settings(), "fit": describe_fit(head.summary)}
    if whole is not None:
        document |= {"network": network_digest(whole.model), "layer": whole.layer}
    if isinstance(head, NeighbourConfidence):
        _CONTAINER.write(path, {"kind": "trust_score", **document}, head.state_dict())
        return
    encoder = None if whole is None else whole.encoder
    choice = None if head.choice is None else asdict(head.choice)
    document = {"kind": "confidnet", "network": None, **document, "choice": choice, "fine_tuned": encoder is not None}
    tensors = {f"head.{name}": values for name, values in head.state_dict().items()}
    if encoder is not None:
        tensors |= {f"encoder.{name}": values for name, values in network_state(encoder).items()}
    _CONTAINER.write(path, document, tensors)


def load_confidence(path: str | os.PathLike[str], model: nn.Module | None = None) -> AnyConfidence:
    """Load a confidence, in evaluation mode.

    Args:
        path: File written by :func:`save_confidence`.
        model: The classifier that it was fitted for, with the weights it had, which is not copied; for what
            ``ConfidNet.fit`` or ``TrustScore.fit_network`` made. Its device becomes that of the result, which is else
            on the CPU.
    """
    file = existing_file(path, holding="a confidence")
    with reading(file, "confidence saved by calibrant"):
        document, tensors = _CONTAINER.read(file)
        for name, values in tensors.items():
            if values.is_complex() or (values.is_floating_point() and not torch.isfinite(values).all()):
                raise InputError(f"the numbers {name!r} must be real and finite; they are not.")
        loaded = _rebuilt(document, tensors).eval()
        network, layer = document.get("network"), document.get("layer")
        if not isinstance(layer, str | None):
            raise InputError(f"the layer must be a name; it says {layer!r}.")
    if network is None:
        if model is not None:
            raise InputError(f"{file} holds a confidence of features; load it without a classifier.")
        return loaded
    if model is None:
        raise InputError(f"{file} was fitted for a classifier; give it: load_confidence(path, model).")
    if network_digest(model) != network:
        raise InputError(
            f"{file} was fitted for another classifier: the weights are not those of the model given. Load its weights "
            "into the model first; cast it to another type, if at all, after this."
        )
    encoder = learned.encoder_copy(model, trained=False, layer=layer) if document.get("fine_tuned") else None
    with reading(file, "confidence saved by calibrant"):
        if encoder is not None:
            load_weights(encoder, tensors_under("encoder.", tensors), casts=False)
        return learned.LearnedConfidence(model, loaded.to(device_of(model)), encoder=encoder, layer=layer).eval()


def _rebuilt(document: dict[str, Any], tensors: dict[str, Tensor]) -> learned.ConfidenceHead | NeighbourConfidence:
    if document["kind"] == "trust_score":
        neighbours = NeighbourConfidence(tensors["reference"], tensors["classes"], **document["sizes"])
        neighbours.summary = read_fit(document["fit"])
        return neighbours
    if document["kind"] != "confidnet":
        raise InputError(f"it must hold what confidnet or trust_score fitted; it says {document['kind']!r}.")
    weights = tensors_under("head.", tensors)
    learned.check_head_sizes(weights, **document["sizes"])
    head = learned.ConfidenceHead(**document["sizes"])
    head.requires_grad_(requires_grad=False).load_state_dict(weights)
    head.summary = read_fit(document["fit"])
    head.choice = None if document["choice"] is None else learned.ChosenEpoch(**document["choice"])
    return head
