"""Write a file for every kind of map that has none, and record what it gives. Files that exist are left alone."""

import json
import sys
from pathlib import Path

import torch

from calibrant.calibrators import Chain, TemperatureScaling, Uncalibrated
from calibrant.files import save_map
from calibrant.predictions import Predictions

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from map_examples import EXAMPLES, used  # noqa: E402  # in reach only now

RECORD = HERE / "outputs.json"


def some_predictions() -> Predictions:
    """Overconfident ones, with class names."""
    made = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(200, 3, generator=made)
    labels = (logits / 2).softmax(1).multinomial(1, generator=made).squeeze()
    return Predictions.from_logits(logits, labels, class_names=["cat", "dog", "bird"])


def main() -> None:
    """Add what is missing."""
    made = torch.Generator().manual_seed(11)
    logits = {str(k): (4 * torch.randn(5, k, generator=made, dtype=torch.float64)).tolist() for k in (2, 3)}
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"logits": logits, "outputs": {}}
    rows = some_predictions()
    fitted = {
        "fitted_chain": Chain((TemperatureScaling(), Uncalibrated())).fit(rows),
        "fitted_temperature": TemperatureScaling().fit(rows),
    }
    for name, example in {**EXAMPLES, **fitted}.items():
        path = HERE / f"{name}.safetensors"
        if not path.exists():
            save_map(example, path, fitted_on=rows if name in fitted else None)
            given = torch.tensor(record["logits"][str(example.n_classes)], dtype=torch.float64)
            record["outputs"][name] = used(example, given).tolist()
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
