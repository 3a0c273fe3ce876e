"""A loss that remembers each training sample, in a loop of your own: three calls more than any other loss.

The correctness ranking loss asks how often a sample was right so far, so the loop says which samples a batch holds.
Losses say what they ask for: ``NeedsSamples`` (``remember``, ``look_at``), ``ChangesWithEpoch`` (``begin_epoch``).
Run it with ``python examples/crl_in_own_loop.py``; it takes a few seconds and needs no download.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from calibrant import Predictions, accuracy, auroc
from calibrant.datasets import load_digits
from calibrant.losses import CorrectnessRankingLoss
from calibrant.models import DigitsCNN
from calibrant.training import predict


def main() -> dict[str, float]:
    """Train on 797 digits and judge on the other 1,000."""
    torch.manual_seed(0)
    images, labels = load_digits()
    training, test = torch.randperm(len(images)).split([797, 1000])
    # The third column is the sample's place in the training set, which shuffling would otherwise lose.
    rows = TensorDataset(images[training], labels[training], torch.arange(len(training)))

    model = DigitsCNN()
    criterion = CorrectnessRankingLoss()
    criterion.remember(len(training))  # once, before the first batch
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(20):
        criterion.begin_epoch(epoch)
        for inputs, targets, samples in DataLoader(rows, batch_size=64, shuffle=True):
            criterion.look_at(samples)
            loss = criterion(model(inputs), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    judged = Predictions.from_logits(predict(model, images[test]), labels[test])
    history = criterion.times_right
    assert history is not None
    often = float(history.double().mean()) / 20
    print(f"a training sample was right in {often:.0%} of the epochs on average")
    print(f"accuracy {accuracy(judged):.3f}, auroc of confidence {auroc(judged):.3f}")
    return {"accuracy": float(accuracy(judged)), "auroc": float(auroc(judged)), "often": often}


if __name__ == "__main__":
    main()
