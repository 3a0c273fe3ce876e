"""One network in training: its steps, its weights, its place in the recipe, and its records."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from calibrant.checks import check_at_least, check_real_number
from calibrant.errors import FitError, InputError
from calibrant.losses import ChangesWithEpoch, Loss, MetaLoss, NeedsSamples
from calibrant.training.data import DeviceData, EpochPlan, MixedBatch, StoredExamples, generator_of, plan_epoch
from calibrant.training.device import ALONE, CapturedStep, Multiplying, Peers, compile_blocks
from calibrant.training.meta import LossTuning, MetaForward, check_meta
from calibrant.training.recipe import Recipe, Selection, learning_rates
from calibrant.training.record import EpochRecord, HeldOutRecord, LearningTrace, judge, logits_of

__all__ = ["Session", "Speed", "Step", "selected_epoch"]


@final
class Step:
    """The step at which an epoch's plan stands, and the sums over the epoch's steps so far.

    Args:
        model: The network as it is called in training.
        loss: Loss of logits and labels; or a forward run with a meta-learned loss.
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


@final
@dataclass(frozen=True)
class Speed:
    """How a network is run; the result is the same up to rounding.

    Args:
        compiled: Whether a GPU compiles the network's blocks and records whole steps. It takes half a minute at first.
        traced: Whether to look at every training row after each epoch, for the epoch in which it was learned. It costs
            about a third of the training itself.
        judge_every: Epochs from one look at the held-out rows to the next; after the last epoch there always is one.
        checkpoint_seconds: Time after which a run's place is written again, at the end of an epoch.
    """

    compiled: bool = True
    traced: bool = False
    judge_every: int = 1
    checkpoint_seconds: float = 10.0

    def __post_init__(self) -> None:
        check_at_least(self.judge_every, 1, "judge_every")
        check_real_number(self.checkpoint_seconds, "checkpoint_seconds", least=0)


@final
class Session:
    """Trains one network, epoch by epoch.

    Args:
        model: Moved to the data's device, and trained in place.
        loss: Loss of logits and labels; or a meta-learned one, which needs held-out samples of its own and a network
            with features.
        data: Training and held-out rows on a device.
        recipe: Everything else that decides the result.
        speed: What is allowed to make it fast.
        peers: Other processes that train the same weights.
        name: What warnings call it, such as its folder.

    Raises:
        InputError: If there are fewer training rows than a batch, or loss, network, data and recipe do not go together.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | MetaLoss,
        data: DeviceData,
        recipe: Recipe,
        speed: Speed | None = None,
        peers: Peers = ALONE,
        *,
        name: str | None = None,
    ) -> None:
        n, speed = len(data.training), speed or Speed()
        _check_batches(n, recipe, peers)
        _check_loss(loss, data, recipe, peers)
        for module in loss.modules():
            if isinstance(module, NeedsSamples):
                module.remember(n)
        self.model = model.to(data.device).train()
        # Torch's annotations know this keyword only without a device.
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss: Loss | MetaLoss = loss.to(data.device).train()
        self.recipe, self.data, self._judge_every = recipe, data, speed.judge_every
        self.epoch = 0
        self.records: list[EpochRecord] = []
        self.held_out_logits: dict[str, Tensor] = {}  # of the last evaluation
        self.trace = LearningTrace(n) if speed.traced else None
        self._best: dict[str, Tensor] = {}  # network and loss after the best epoch so far, where one is selected
        self._plan = self._drawn().to(data.device)
        self._tuning: LossTuning | None = None
        called: Loss | MetaForward
        if isinstance(loss, MetaLoss):
            self._tuning = LossTuning(loss, self.model, data, recipe, self._plan.rows[0], name=name)
            called = self._tuning.forward
        else:
            called = loss
        self.step = Step(peers.wrapped(self.model, data.device), called, data.training, self._plan, recipe, peers)
        self._is_captured = speed.compiled and data.device.type == "cuda" and peers.count == 1
        self._captured: CapturedStep | None = None
        self._started = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.recipe.epochs

    @property
    def steps_an_epoch(self) -> int:
        """How many batches there are in an epoch."""
        return len(self._plan.rows)

    def begin_epoch(self) -> None:
        """Draw what the epoch will do, and stand before its first step."""
        self._started = time.perf_counter()
        if self._is_captured and self._captured is None:
            compile_blocks(self.model)
            self._captured = CapturedStep(self.step, self._changing(), self.step.rewind)
        with self._stream():
            self._plan.copy_(self._drawn())
            self.step.rates.copy_(learning_rates(self.recipe, self.epoch, self.steps_an_epoch))
            for module in self.loss.modules():
                if isinstance(module, ChangesWithEpoch):
                    module.begin_epoch(self.epoch)
            self.step.rewind()
        self.model.train()
        # What a network itself leaves to chance, such as dropout.
        torch.manual_seed(generator_of(self.recipe.seed, self.epoch).initial_seed())

    def advance(self) -> None:
        """Take one step."""
        (self._captured or self.step)()

    def wait(self) -> None:
        """Wait until the device has taken the steps so far."""
        if self._captured is not None:
            self._captured.stream.synchronize()

    def end_epoch(self) -> EpochRecord:
        """Look at the network, and write down what is seen.

        Raises:
            FitError: If loss or logits are no longer finite.
        """
        with self._stream():
            loss = float(self.step.loss_sum) / self.steps_an_epoch
            if not math.isfinite(loss):
                raise FitError(
                    f"the loss must stay finite; in epoch {self.epoch + 1} it is {loss}. Lower the learning rate, "
                    "warm up, or clip the gradient."
                )
            accuracy = int(self.step.right) / (self.steps_an_epoch * self.recipe.batch_size)
            held_out = self._judged() if self._is_judged() else {}
            training_accuracy = None
            if self.trace is not None:
                training_accuracy = self.trace.add(self.logits(self.data.training), self.data.training.labels)
            learned = self._tuning.describe(self._onlookers()) if self._tuning and held_out else {}
            rate = float(self.step.rates[-1])
        self.epoch += 1
        seconds = time.perf_counter() - self._started
        record = EpochRecord(self.epoch, seconds, rate, loss, accuracy, held_out, learned, training_accuracy)
        self.records.append(record)
        if self.recipe.select != "last" and self.selected_epoch == self.epoch:
            with self._stream():
                self._best = {name: tensor.detach().clone() for name, tensor in self._kept()}
        return record

    @property
    def selected_epoch(self) -> int:
        """The epoch whose weights are kept, counted from 1, as far as the training has come; 0 before the first."""
        return selected_epoch(self.records, self.recipe.select)

    def select(self) -> None:
        """Bring network and loss back to the epoch that the recipe selects."""
        if not self._best:
            return
        with self._stream(), torch.no_grad():
            for name, tensor in self._kept():
                tensor.copy_(self._best[name])

    def logits(self, examples: StoredExamples) -> Tensor:
        """Of rows on the network's device, (n, k), float32."""
        return logits_of(self.model, examples)

    def state(self) -> dict[str, Tensor]:
        """Everything that the rest of the training depends on, beside the recipe: a copy to put into a file."""
        with self._stream():
            named = {f"{part}.{name}": tensor for part, name, tensor in self._named() if tensor.numel()}
            copied = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
            copied |= {f"best.{name}": tensor.cpu().contiguous() for name, tensor in self._best.items()}
        return copied | {f"trace.{name}": tensor for name, tensor in (self.trace.state() if self.trace else {}).items()}

    def restore(self, state: Mapping[str, Tensor], records: Sequence[EpochRecord]) -> None:
        """Go on from where :meth:`state` was called.

        Raises:
            InputError: If the state is not one of this network and loss.
        """
        mine = {f"{part}.{name}": tensor for part, name, tensor in self._named() if tensor.numel()}
        theirs = {name: tensor for name, tensor in state.items() if not name.startswith(("trace.", "best."))}
        if {name: tensor.shape for name, tensor in mine.items()} != {name: t.shape for name, t in theirs.items()}:
            raise InputError("the state must be one of this network and loss; its names or shapes are not.")
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        if self.trace is not None:
            if "trace.packed" not in state:
                raise InputError("the state must hold a trace to go on with one; it was made without.")
            self.trace.restore({name: state[f"trace.{name}"] for name in self.trace.state()})
        best = {name.removeprefix("best."): tensor for name, tensor in state.items() if name.startswith("best.")}
        kept = dict(self._kept())
        if best and {name: each.shape for name, each in kept.items()} != {
            name: each.shape for name, each in best.items()
        }:
            raise InputError("the best state must be one of this network and loss; its names or shapes are not.")
        self._best = {name: tensor.to(kept[name]) for name, tensor in best.items()}
        self.records, self.epoch = list(records), len(records)

    def _is_judged(self) -> bool:
        """Whether the held-out rows are looked at after the epoch that ends."""
        return (self.epoch + 1) % self._judge_every == 0 or self.epoch + 1 == self.recipe.epochs

    def _judged(self) -> dict[str, HeldOutRecord]:
        self.held_out_logits = {name: self.logits(part) for name, part in self.data.held_out.items()}
        return {name: judge(self.held_out_logits[name], part.labels) for name, part in self.data.held_out.items()}

    def _onlookers(self) -> StoredExamples:
        """Held-out rows that have no part in the training."""
        return self.data.held_out.get("calibration") or next(iter(self.data.held_out.values()))

    def _drawn(self) -> EpochPlan:
        recipe = self.recipe
        n_judges = len(self.data.meta) if self.data.meta and isinstance(self.loss, MetaLoss) else 0
        return plan_epoch(
            len(self.data.training), recipe.batch_size, seed=recipe.seed, epoch=self.epoch, mixup=recipe.mixup,
            n_judges=n_judges,
        )  # fmt: skip

    def _named(self) -> Iterator[tuple[str, str, Tensor]]:
        """All that a step changes and that lasts."""
        yield from (("model", name, tensor) for name, tensor in self.model.state_dict(keep_vars=True).items())
        yield from (("loss", name, tensor) for name, tensor in self.loss.state_dict(keep_vars=True).items())
        for name, weight in self.model.named_parameters():
            for what, tensor in self.step.optimiser.state.get(weight, {}).items():
                yield "optimiser", f"{what}.{name}", tensor
        if self._tuning is not None:
            yield from (("meta", name, tensor) for name, tensor in self._tuning.optimiser_state())

    def _kept(self) -> Iterator[tuple[str, Tensor]]:
        """What is left of a training: the network, and a loss that is learned."""
        for part, name, tensor in self._named():
            if tensor.numel() and part in {"model", "loss"}:
                yield f"{part}.{name}", tensor

    def _changing(self) -> list[Tensor]:
        """All that a step changes."""
        return [tensor for _, _, tensor in self._named()]

    def _stream(self) -> AbstractContextManager[object]:
        """Where this network's work is queued."""
        return nullcontext() if self._captured is None else torch.cuda.stream(self._captured.stream)


def selected_epoch(records: Sequence[EpochRecord], select: Selection) -> int:
    """The epoch whose weights are kept, counted from 1; 0 where there are no records.

    Args:
        records: One per epoch, from the first.
        select: As in the recipe.
    """
    judged = [record for record in records if "calibration" in record.held_out]
    if select == "last" or not judged:
        return records[-1].epoch if records else 0
    if select == "best":
        return max(judged, key=lambda record: record.held_out["calibration"].accuracy).epoch
    return min(judged, key=lambda record: record.held_out["calibration"].nll).epoch


def _check_batches(n: int, recipe: Recipe, peers: Peers) -> None:
    if recipe.batch_size > n:
        raise InputError(f"batch_size must be at most the {n} training rows; got {recipe.batch_size}.")
    peers.part_of(recipe.batch_size)


def _check_loss(loss: Loss | MetaLoss, data: DeviceData, recipe: Recipe, peers: Peers) -> None:
    if isinstance(loss, MetaLoss):
        check_meta(loss, data, recipe, peers)
        return
    if loss.reduction == "none":
        raise InputError("the reduction of a loss must be mean or sum to train with it; got none.")
    if not recipe.mixup:
        return
    if any(isinstance(module, NeedsSamples) for module in loss.modules()):
        raise InputError(f"mixup must be 0 with {loss.name}, which follows single rows; got {recipe.mixup}.")
    if not data.training.inputs.plain(torch.zeros_like(data.training.labels[:1])).is_floating_point():
        raise InputError(f"mixup must be 0 for texts, whose words have no blend; got {recipe.mixup}.")
