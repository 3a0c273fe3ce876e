"""One step of training: a batch in, the weights moved. What it reads lies in buffers, so that it can be captured."""

from typing import final

import torch
from torch import Tensor, nn

from calibrant.losses import Loss, NeedsSamples
from calibrant.training.data import StoredExamples
from calibrant.training.meta.forward import MetaForward
from calibrant.training.mixup import MixedBatch
from calibrant.training.peers import Peers
from calibrant.training.plan import EpochPlan
from calibrant.training.precision import Multiplying
from calibrant.training.recipe import Recipe

__all__ = ["Step"]


@final
class Step:
    """The step at which an epoch's plan stands, and the sums over the epoch's steps so far.

    Args:
        model: The network as it is called in training.
        loss: Of logits and labels; or a forward run with a loss that is learned.
        data: Training rows, on the network's device.
        plan: Buffers on that device, filled anew for each epoch.
        recipe: Gives momentum, weight decay, mixing, clipping.
        peers: Other processes that train the same weights.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | MetaForward,
        data: StoredExamples,
        plan: EpochPlan,
        recipe: Recipe,
        peers: Peers,
    ) -> None:
        device = data.labels.device
        self._model, self._loss, self._data, self._plan, self._recipe, self._peers = (
            model, loss, data, plan, recipe, peers,
        )  # fmt: skip
        parts = () if isinstance(loss, MetaForward) else loss.modules()
        self._needy = [module for module in parts if isinstance(module, NeedsSamples)]
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._multiplying = Multiplying(recipe, device.type)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._rate = torch.zeros((), device=device)
        self.rates = torch.zeros(len(plan.rows), device=device)
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.right = torch.zeros((), dtype=torch.int64, device=device)
        self.optimiser = torch.optim.SGD(
            self._weights, lr=self._rate, momentum=recipe.momentum, nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay, fused=True,
        )  # fmt: skip
        for weight in self._weights if recipe.momentum else []:
            # Momentum from the start, all zero: the first step is then like every other, and can be captured.
            self.optimiser.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    def rewind(self) -> None:
        """Stand at the first step of an epoch."""
        for total in (self._at, self.loss_sum, self.right):
            total.zero_()

    def __call__(self) -> None:
        """Train on the batch the plan stands at, and go one further."""
        rows, shifts, mirrored, partners, share, judges = (
            field.index_select(0, self._at)[0] for field in self._plan.fields()
        )
        self._rate.copy_(self.rates.index_select(0, self._at)[0])
        labels = self._data.labels.index_select(0, rows)
        for needy in self._needy:
            needy.look_at(rows)
        # Inputs of this process's part only; labels and logits of the whole batch.
        mine = self._peers.part_of(len(rows))
        inputs = self._data.inputs.augmented(rows[mine], shifts[mine], mirrored[mine])
        if isinstance(self._loss, MetaForward):
            logits, loss = self._loss(inputs, labels, judges, self._rate)
        elif self._recipe.mixup:
            with_whom = partners[mine]
            others = self._data.inputs.augmented(rows[with_whom], shifts[with_whom], mirrored[with_whom])
            mixed = MixedBatch(torch.lerp(others, inputs, share), labels, labels[partners], share)
            logits = self._forward(mixed.inputs)
            loss = mixed.loss(self._loss, logits)
        else:
            logits = self._forward(inputs)
            loss = self._loss(logits, labels)
        loss.backward()
        if self._recipe.clip is not None:
            nn.utils.clip_grad_norm_(self._weights, self._recipe.clip, foreach=True)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()
        self.right += (logits.detach().argmax(dim=1) == labels).sum()
        self._at += 1

    def _forward(self, inputs: Tensor) -> Tensor:
        """Everyone's logits."""
        with self._multiplying():
            logits: Tensor = self._model(inputs)
        return self._peers.gathered(logits.float() if self._multiplying.is_low else logits)
