"""The loop of ConfidNet: squared error against the true-class probability, and the best epoch kept."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from calibrant.confidence.best_epoch import BestEpoch
from calibrant.confidence.gathering import Gathered
from calibrant.confidence.held_out import ChooseEpochBy, Parts

__all__ = ["Answers", "Progress", "Stage"]

Progress: TypeAlias = Callable[[str, float], None]

Answers: TypeAlias = Callable[[Tensor], Iterator[Tensor]]
"""From numbers of rows to their log-odds, a batch at a time, in that order."""


class Stage(NamedTuple):
    """What is trained, and how: the head on features that stay, or then a copy of the encoder with it."""

    name: str
    modules: tuple[nn.Module, ...]
    epochs: int
    learning_rate: float
    batch_size: int
    choose_by: ChooseEpochBy
    seed: int
    epochs_before: int = 0

    def run(
        self, answers: Answers, known: Gathered, parts: Parts, *, progress: Progress, value: float | None = None
    ) -> BestEpoch:
        """Train, and leave the weights as they were after the epoch that is best on the held-out rows.

        Args:
            answers: Batches of ``batch_size`` rows; each is asked for after the step of the one before.
            known: Of all rows.
            parts: Which are fitted, and which choose.
            progress: Told of every epoch.
            value: To be beaten, else the weights stay what they are; None if any epoch will do.

        Raises:
            FitError: If it diverges.
        """
        device, first = known.target.device, next(self.modules[0].parameters())
        target, held_out = known.target.to(first.dtype), parts.held_out.to(device)
        best = BestEpoch(
            self.modules,
            criterion=self.choose_by,
            target=known.target[held_out],
            correct=known.correct[held_out],
            value=value,
        )
        weights = [parameter for module in self.modules for parameter in module.parameters()]
        optimiser = torch.optim.Adam(weights, lr=self.learning_rate)
        order = torch.Generator().manual_seed(self.seed)
        for epoch in range(1, self.epochs + 1):
            shuffled = parts.fitted[torch.randperm(len(parts.fitted), generator=order)].to(device)
            total = torch.zeros((), device=device)
            for some, log_odds in zip(shuffled.split(self.batch_size), answers(shuffled), strict=True):
                loss = mse_loss(log_odds.sigmoid(), target[some])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.detach() * len(some)
            with torch.no_grad():
                now = best.look(epoch, torch.cat(list(answers(held_out))))
            told = f"squared error {float(total) / len(shuffled):.3g}, held out {self.choose_by} {now:.3g}"
            progress(f"{self.name}, epoch {epoch} of {self.epochs}: {told}", self.epochs_before + epoch)
        best.restore()
        return best
