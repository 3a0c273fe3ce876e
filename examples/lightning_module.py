"""A LightningModule that trains with one of our losses, and a callback that evaluates and calibrates it.

Wants ``pip install 'calibrant[lightning]'``. Run it with ``python examples/lightning_module.py``: a few seconds.
"""

import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from calibrant.datasets import load_digits
from calibrant.integrations.lightning import CalibrationCallback
from calibrant.losses import ScheduledFocalLoss
from calibrant.models import DigitsCNN


class DigitsModule(LightningModule):
    """A small network, trained with a focal loss whose γ falls as training goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DigitsCNN()
        self.criterion = ScheduledFocalLoss(gammas=(5.0, 3.0, 1.0), starts=(0, 5, 10))  # saved with the network

    def on_train_epoch_start(self) -> None:
        self.criterion.begin_epoch(self.current_epoch)  # only losses that are ChangesWithEpoch have it

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.criterion(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor]) -> Tensor:
        return self.model(batch[0])  # the callback takes the labels from the batch

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> dict[str, float]:
    """Train on 797 digits, and evaluate and calibrate on the other 1,000."""
    torch.manual_seed(0)
    images, labels = load_digits()
    parts = torch.randperm(len(images)).split([797, 1000])
    training, validation = (DataLoader(TensorDataset(images[p], labels[p]), 64, shuffle=len(p) == 797) for p in parts)
    module, calibration = DigitsModule(), CalibrationCallback("temperature", metrics=["accuracy", "ece"])
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    with tempfile.TemporaryDirectory() as folder:
        options = {"accelerator": "cpu", "default_root_dir": folder, **quiet}
        trainer = Trainer(max_epochs=15, callbacks=[calibration], **options)
        trainer.fit(module, training, validation)
    accuracy, ece = (float(trainer.callback_metrics[name]) for name in ("val_accuracy", "val_ece"))
    print(f"accuracy {accuracy:.3f}, ece {ece:.3f}; {calibration.fitted}")
    print(f"γ was {module.criterion.gamma:.0f} in the last epoch")
    return {"accuracy": accuracy, "ece": ece, "gamma": float(module.criterion.gamma)}


if __name__ == "__main__":
    main()
