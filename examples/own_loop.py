"""A training loop of your own: another loss is one line, mixup is two, and a temperature mends what is left.

Run it with ``python examples/own_loop.py``; it takes a few seconds and needs no download.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from calibrant import Predictions, TemperatureScaling, accuracy, ece
from calibrant.datasets import load_digits
from calibrant.losses import FocalLoss
from calibrant.models import DigitsCNN
from calibrant.training import Mixup, predict


def main() -> dict[str, float]:
    """Train on 797 digits, fit the temperature on 500 others, judge on the last 500."""
    torch.manual_seed(0)
    images, labels = load_digits()
    training, calibration, test = torch.randperm(len(images)).split([797, 500, 500])

    model = DigitsCNN()  # or any nn.Module that gives logits
    criterion = FocalLoss(gamma=3.0)  # was: nn.CrossEntropyLoss()
    mixup = Mixup(alpha=0.2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        for batch in DataLoader(TensorDataset(images[training], labels[training]), batch_size=64, shuffle=True):
            mixed = mixup(*batch)
            loss = mixed.loss(criterion, model(mixed.inputs))  # without mixup: criterion(model(inputs), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    # The temperature must not see rows that trained: the network is too sure of those. Nor may it see those that judge.
    held_out = Predictions.from_logits(predict(model, images[calibration]), labels[calibration])
    raw = Predictions.from_logits(predict(model, images[test]), labels[test])
    fitted = TemperatureScaling().fit(held_out)
    mended = fitted.transform(raw)

    print(f"accuracy {accuracy(raw):.3f}")
    print(f"ece as trained {ece(raw):.3f}")
    print(f"ece at temperature {fitted.temperature:.2f} {ece(mended):.3f}")
    return {"accuracy": float(accuracy(raw)), "before": float(ece(raw)), "after": float(ece(mended))}


if __name__ == "__main__":
    main()
