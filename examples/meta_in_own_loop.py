"""A loss that is learned in a training loop of your own: focal loss with a γ a row, tuned on held-out rows (γ-Net).

Run it with ``python examples/meta_in_own_loop.py``; it takes a few seconds and needs no download.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from calibrant import Predictions, accuracy, ece
from calibrant.datasets import load_digits
from calibrant.losses import MetaFocalLoss
from calibrant.models import DigitsCNN
from calibrant.training import MetaRegulariser, features_in_evaluation, predict


def main() -> dict[str, float]:
    """Train on 1,000 digits, tune the loss on 297 others, judge on the last 500."""
    torch.manual_seed(0)
    images, labels = load_digits()
    training, tuning, test = torch.randperm(len(images)).split([1000, 297, 500])

    model = DigitsCNN()  # or any nn.Module with features(inputs) and a linear head
    regulariser = MetaRegulariser(MetaFocalLoss(objective="sece"), model.head)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        for rows in DataLoader(TensorDataset(training), batch_size=64, shuffle=True):
            inputs, targets = images[rows[0]], labels[rows[0]]
            judges = tuning[torch.randperm(len(tuning))[:64]]
            features = model.features(inputs)
            held_out = features_in_evaluation(model, images[judges])
            regulariser.learn(features, targets, held_out, labels[judges], rate=0.1)
            loss = regulariser.loss(features, model.head(features), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    judged = Predictions.from_logits(predict(model, images[test]), labels[test])
    gamma = regulariser.describe(features_in_evaluation(model, images[test]))
    print(f"accuracy {accuracy(judged):.3f}, ece {ece(judged):.3f}")
    print(f"γ of test rows {gamma['gamma_mean']:.2f} ± {gamma['gamma_std']:.2f}")
    return {"accuracy": float(accuracy(judged)), "ece": float(ece(judged)), **gamma}


if __name__ == "__main__":
    main()
