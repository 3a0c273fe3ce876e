"""Logits in whatever networks return, and the error where there are none."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from calibrant.errors import InputError
from calibrant.inference import extract_logits

LOGITS = torch.arange(6.0).reshape(3, 2)
OTHER = torch.zeros(3, 7)


class ModelOutputLike(OrderedDict):
    """As Hugging Face's: a mapping whose entries are attributes, too, and whose empty ones are left out."""

    def __init__(self, **entries):
        super().__init__({name: value for name, value in entries.items() if value is not None})

    def __getattr__(self, name):
        return self.get(name)


@dataclass
class Plain:
    hidden: torch.Tensor
    logits: object


class Named(NamedTuple):
    auxiliary: torch.Tensor
    logits: torch.Tensor


class ReadOnly(Mapping):
    def __getitem__(self, name):
        return {"logits": LOGITS}[name]

    def __iter__(self):
        return iter(["logits"])

    def __len__(self):
        return 1


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        (LOGITS, OTHER),
        [LOGITS],
        (None, "loss", LOGITS, OTHER),
        {"hidden": OTHER, "logits": LOGITS},
        ReadOnly(),
        ModelOutputLike(loss=None, hidden_states=OTHER, logits=LOGITS),
        Plain(OTHER, LOGITS),
        Named(OTHER, LOGITS),
    ],
    ids=lambda output: type(output).__name__,
)
def test_the_logits_are_found_and_are_the_tensor_itself(output):
    assert extract_logits(output) is LOGITS


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_floating_type_passes_unchanged(dtype):
    assert extract_logits(LOGITS.to(dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "got NoneType"),
        (LOGITS.numpy(), "got ndarray"),
        ((), "got tuple of nothing"),
        (([LOGITS], None), "got tuple of list, NoneType"),
        ({"out": LOGITS, "aux": OTHER}, "got dict of 'out', 'aux'"),
        ({"logits": None}, "got dict of 'logits'"),
        (ModelOutputLike(loss=OTHER), "got ModelOutputLike of 'loss'"),
        (Plain(OTHER, None), "got Plain"),
        (torch.tensor(0.3), r"shape \(\)"),
        ((torch.tensor(0.3), LOGITS), r"shape \(\)"),  # a loss before the logits
        (torch.zeros(3, 5, 2), r"shape \(3, 5, 2\)"),  # logits for every word
        (LOGITS.argmax(1, keepdim=True).expand(3, 2), "int64"),
        (LOGITS.to(torch.complex64), "complex64"),
    ],
)
def test_what_holds_no_logits_is_reported_with_what_to_do(output, message):
    with pytest.raises(InputError, match=message) as raised:
        extract_logits(output)
    assert str(raised.value).endswith("Wrap the network in a module that returns them.")


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_logit_a_sample_is_reported_how_to_become_two(shape):
    with pytest.raises(InputError, match="columns 0 and z"):
        extract_logits(torch.zeros(shape))
