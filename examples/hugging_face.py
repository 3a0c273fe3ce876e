"""The Trainer of Hugging Face with one of our losses, on tokens of which some do not count (label -100).

Wants ``transformers``, 4.48 or newer, and ``accelerate``: ``pip install 'calibrant[hf]'``. Run it with
``python examples/hugging_face.py``; it takes seconds, and the network is a new one, so nothing is downloaded.
A token is the image of a digit here, and a row is a line of five to eight of them.
"""

import tempfile
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

from calibrant import load_map
from calibrant.datasets import load_digits
from calibrant.integrations.transformers import Calibration, attach_map
from calibrant.losses import FocalLoss

CRITERION = FocalLoss(gamma=2.0, reduction="sum", ignore_index=-100)


def token_loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | None = None) -> Tensor:
    """The sum over the tokens that count; the Trainer tells how many there are in all batches of one step."""
    # A mean over this batch alone would not do: the Trainer adds up accumulated batches, and no longer divides.
    counted = (labels != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return CRITERION(outputs.logits.movedim(2, 1), labels) / counted  # classes second, as torch has them


def lines(places: Tensor) -> list[dict[str, Tensor]]:
    """Eight digits a row, of which the first five to eight count."""
    (images, labels), rows = load_digits(), places.view(-1, 8)
    real = torch.arange(8) < 5 + torch.arange(len(rows))[:, None] % 4
    inputs, answers = images[rows].flatten(2), labels[rows].where(real, -100)
    return [{"inputs_embeds": inputs[i], "attention_mask": real[i], "labels": answers[i]} for i in range(len(rows))]


def main() -> dict[str, float]:
    """Train on 168 lines, and evaluate and calibrate on the other 56."""
    torch.manual_seed(0)
    training, test = map(lines, torch.randperm(1792).split([1344, 448]))
    config = BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, num_labels=10)
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        steps = {"num_train_epochs": 20, "learning_rate": 4e-3, "gradient_accumulation_steps": 2}
        options = TrainingArguments(folder, eval_strategy="epoch", use_cpu=True, **steps, **quiet)
        model, calibration = BertForTokenClassification(config), Calibration("temperature", metrics=["accuracy", "ece"])
        data = {"train_dataset": training, "eval_dataset": test, "compute_metrics": calibration}
        trainer = Trainer(model, options, compute_loss_func=token_loss, callbacks=[calibration], **data)
        trainer.train()
        numbers = trainer.evaluate()
        attach_map(model, load_map(f"{folder}/map.safetensors"))  # from here on its logits are calibrated
    print(f"{len(calibration.predictions)} of {8 * len(test)} tokens count")
    print(f"accuracy {numbers['eval_accuracy']:.3f}, ece {numbers['eval_ece']:.3f}")
    return {"accuracy": numbers["eval_accuracy"], "ece": numbers["eval_ece"], "tokens": len(calibration.predictions)}


if __name__ == "__main__":
    main()
