"""A map that cares whether it sees logits or log-probabilities is distinguished from one that does not."""

import pytest
import torch

from calibrant import catalogue
from calibrant.files import read_map_file, save_map
from calibrant.files.map_file import depends_on_offset
from calibrant.predictions import Predictions

HEEDING = ("vector", "matrix", "ms_odir")


def some_predictions(n=300):
    made = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(n, 3, generator=made) + 4
    return Predictions.from_logits(logits, (logits / 2).softmax(1).multinomial(1, generator=made).squeeze())


@pytest.mark.parametrize("name", ["temperature", "histogram", "isotonic", "isotonic_ovr", "dirichlet_odir", *HEEDING])
def test_only_maps_with_weights_of_classes_heed_an_added_number(name):
    rows = some_predictions()
    fitted = catalogue.calibrators[name].fit(rows)
    as_log_probs = Predictions.from_probs(rows.probs, rows.labels)
    apart = (fitted.transform(rows).probs - fitted.transform(as_log_probs).probs).abs().max()
    assert depends_on_offset(fitted, rows.logits) == depends_on_offset(fitted, as_log_probs.logits) == (name in HEEDING)
    if name in HEEDING:
        assert apart > 1e-3


def test_the_file_says_what_the_map_was_fitted_on(tmp_path):
    rows, path = some_predictions(), tmp_path / "map.safetensors"
    fitted = catalogue.calibrators["none"].fit(rows)
    for given, said in (
        (rows, "logits"),
        (Predictions.from_probs(rows.probs, rows.labels), "probabilities"),
        (None, None),
    ):
        save_map(fitted, path, fitted_on=given)
        assert read_map_file(path).document["inputs"] == said
