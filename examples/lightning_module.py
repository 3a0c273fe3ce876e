"""A LightningModule that trains with one of our losses, and a Trainer that runs it.

Wants ``lightning``, 2.4 or newer: ``pip install 'calibrant[lightning]'``; for ``pytorch_lightning`` change the
import. Run it with ``python examples/lightning_module.py``; it takes a few seconds and needs no download.
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from calibrant import Predictions, accuracy, ece
from calibrant.datasets import load_digits
from calibrant.losses import ScheduledFocalLoss
from calibrant.models import DigitsCNN


class DigitsModule(LightningModule):
    """A small network, trained with a focal loss whose γ falls as training goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DigitsCNN()
        # As an attribute it moves to the device, and is saved, with the network.
        self.criterion = ScheduledFocalLoss(gammas=(5.0, 3.0, 1.0), starts=(0, 5, 10))

    def on_train_epoch_start(self) -> None:
        self.criterion.begin_epoch(self.current_epoch)  # only losses that are ChangesWithEpoch have it

    def training_step(self, batch: list[Tensor]) -> Tensor:
        inputs, labels = batch
        return self.criterion(self.model(inputs), labels)

    def predict_step(self, batch: list[Tensor]) -> Tensor:
        return self.model(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> dict[str, float]:
    """Train on 797 digits and judge on the other 1,000."""
    torch.manual_seed(0)
    images, labels = load_digits()
    training, test = torch.randperm(len(images)).split([797, 1000])
    rows = DataLoader(TensorDataset(images[training], labels[training]), batch_size=64, shuffle=True)
    module = DigitsModule()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=15, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(module, rows)
    batches = trainer.predict(module, DataLoader(TensorDataset(images[test]), batch_size=250))
    judged = Predictions.from_logits(torch.cat(batches), labels[test])
    print(f"accuracy {accuracy(judged):.3f}, ece {ece(judged):.3f}")
    print(f"γ was {module.criterion.gamma:.0f} in the last epoch")
    return {"accuracy": float(accuracy(judged)), "ece": float(ece(judged)), "gamma": float(module.criterion.gamma)}


if __name__ == "__main__":
    main()
