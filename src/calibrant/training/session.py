"""Training of one network: its steps, compiled or captured on a GPU, its epochs, records and state."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import final

import torch
from torch import Tensor, nn

from calibrant.checks import AtLeastOne, NonNegative, check_options, has_float64
from calibrant.errors import FitError, InputError, one_line, warn
from calibrant.inference import extract_logits, forward_errors, tensors_under
from calibrant.losses import ChangesWithEpoch, Loss, MetaLoss, NeedsSamples
from calibrant.processes import SINGLE_PROCESS, ProcessGroup
from calibrant.training.data import DeviceData, EpochPlan, MixedBatch, StoredSamples, epoch_generator, plan_epoch
from calibrant.training.meta import MetaForward, check_meta
from calibrant.training.recipe import Recipe, Selection, learning_rates
from calibrant.training.record import EpochRecord, HeldOutRecord, LearningTrace, evaluate_held_out, logits_of
from calibrant.training.stores import LoadedPictures, StepInputs, for_steps, training_pictures

_WARMUPS = 3  # steps in which torch chooses its algorithms and allocates its buffers
_VARIANTS = 64  # compiled versions of one block that torch may keep: for each shape, in training or not


@final
class Step:
    """The next step of an epoch's plan, and the sums over the epoch's steps so far; the plan's buffers are refilled."""

    def __init__(
        self, model: nn.Module, loss: Loss | MetaForward, inputs: StepInputs, labels: Tensor, plan: EpochPlan,
        recipe: Recipe, processes: ProcessGroup,
    ) -> None:  # fmt: skip
        self._model, self._loss, self._inputs, self._labels, self._plan = model, loss, inputs, labels, plan
        self._recipe, self._processes, self._device = recipe, processes, labels.device
        parts = () if isinstance(loss, MetaForward) else loss.modules()
        self._sample_losses = [module for module in parts if isinstance(module, NeedsSamples)]
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._at = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._rate = torch.zeros((), device=self._device)
        self.rates = torch.zeros(len(plan.samples), device=self._device)
        precision = torch.float64 if has_float64(self._device) else torch.float32
        self.loss_sum = torch.zeros((), dtype=precision, device=self._device)
        self.n_correct = torch.zeros((), dtype=torch.int64, device=self._device)
        self.optimiser = torch.optim.SGD(
            self._weights, lr=self._rate, momentum=recipe.momentum, nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay, fused=True,
        )  # fmt: skip
        for weight in self._weights if recipe.momentum else []:
            # All zero from the start: the first step is then like every other, and can be captured.
            self.optimiser.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    def rewind(self) -> None:
        """Go to the first step of an epoch."""
        for total in (self._at, self.loss_sum, self.n_correct):
            total.zero_()

    def __call__(self) -> None:
        """Train on the next batch of the plan."""
        step = (field.index_select(0, self._at)[0] for field in self._plan)
        samples, shifts, mirrored, partners, share, meta_samples = step
        self._rate.copy_(self.rates.index_select(0, self._at)[0])
        labels = self._labels.index_select(0, samples)
        for module in self._sample_losses:
            module.look_at(samples)
        # Inputs of this process's part only; labels and logits of the whole batch.
        part = self._processes.part_of(len(samples))
        inputs = self._inputs.augmented(samples[part], shifts[part], mirrored[part])
        if isinstance(self._loss, MetaForward):
            logits, loss = self._loss(inputs, labels, meta_samples, self._rate)
        elif self._recipe.mixup:
            other = partners[part]
            others = self._inputs.augmented(samples[other], shifts[other], mirrored[other])
            mixed = MixedBatch(torch.lerp(others, inputs, share.to(inputs.dtype)), labels, labels[partners], share)
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
        self.n_correct += (logits.detach().argmax(dim=1) == labels).sum()
        self._at += 1

    def _forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of all processes."""
        with self._recipe.autocast(self._device.type), forward_errors(self._model, inputs):
            logits = extract_logits(self._model(inputs))  # some networks give more in training mode
        return self._processes.gathered(logits.float() if logits.dtype == torch.bfloat16 else logits)


def compile_blocks(model: nn.Module) -> None:
    """Compile each block of a network, if it has any and torch can; equal blocks share the compiled code."""
    if not _compiles(next(model.parameters()).device):
        return
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
    # Logs dozens of harmless failed guesses about shapes.
    logging.getLogger("torch.utils._sympy.interp").setLevel(logging.ERROR)
    for block in getattr(model, "blocks", tuple)():
        block.compile(dynamic=False)


@cache
def _compiles(device: torch.device) -> bool:
    """Return whether torch compiles code for a device, which needs Triton and a C compiler; warn if it does not."""
    try:
        torch.compile(lambda number: number + 1)(torch.zeros(1, device=device))
    except Exception as error:  # noqa: BLE001  # of whatever kind the compilers' are
        warn(f"torch does not compile, so an epoch takes longer. Is there a C compiler? {one_line(error)}")
        return False
    return True


@final
class CapturedStep:
    """A step captured as a CUDA graph on a stream of its own; calling it replays the graph on the current buffers.

    The step reads and writes the same memory in every call, and is rewound before each warm-up step; the tensors to
    ``keep``, all that it changes, are restored after them.
    """

    def __init__(self, step: Callable[[], None], keep: list[Tensor], rewind: Callable[[], None]) -> None:
        self.stream = torch.cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            before = [tensor.detach().clone() for tensor in keep]
            for _ in range(_WARMUPS):
                rewind()
                step()
            rewind()
            with torch.no_grad():
                for tensor, value in zip(keep, before, strict=True):
                    tensor.copy_(value)
        torch.cuda.synchronize()
        with torch.cuda.graph(self._graph, stream=self.stream):
            step()
        torch.cuda.synchronize()

    def __call__(self) -> None:
        with torch.cuda.stream(self.stream):
            self._graph.replay()


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Restrict torch to algorithms that give the same numbers in every run on the same kind of device.

    Torch warns of an operation that has no such algorithm. Networks must not be compiled
    (``RuntimeOptions(compiled=False)``): compiled code is chosen by timing. All settings are restored afterwards.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, products on a GPU may differ
    cudnn = torch.backends.cudnn
    algorithms = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    choice = cudnn.benchmark, cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])
        cudnn.benchmark, cudnn.deterministic = choice


@final
@dataclass(frozen=True)
class RuntimeOptions:
    """How a network is run; the result is the same up to rounding.

    Args:
        compiled: Whether to compile the network's blocks and capture whole steps on a GPU. The first epoch takes half a
            minute longer.
        traced: Whether to evaluate every training sample after each epoch, to record when each was learned. It costs
            about half of the training itself.
        evaluate_every: Epochs between evaluations of the held-out samples; the last epoch is always evaluated.
        checkpoint_seconds: Time between checkpoints, which are written at the end of an epoch.
        read_threads: Number of threads that read pictures in batches; None takes one for each processor.
    """

    compiled: bool = True
    traced: bool = False
    evaluate_every: AtLeastOne = 1
    checkpoint_seconds: NonNegative = 10.0
    read_threads: AtLeastOne | None = None

    def __post_init__(self) -> None:
        check_options(self)


@final
class Session:
    """Trains one network, epoch by epoch.

    Args:
        model: Moved to the data's device, and trained in place.
        loss: Loss of logits and labels; or a meta-learned one, which needs held-out samples of its own and a network
            with features.
        data: Training and held-out samples on a device.
        recipe: Everything else that decides the result.
        runtime: How the network is run.
        processes: The processes that train the same weights.
        name: Prefix of warnings, such as its folder.
    """

    def __init__(
        self, model: nn.Module, loss: Loss | MetaLoss, data: DeviceData, recipe: Recipe,
        runtime: RuntimeOptions | None = None, processes: ProcessGroup = SINGLE_PROCESS, *, name: str | None = None,
    ) -> None:  # fmt: skip
        n, runtime = len(data.training), runtime or RuntimeOptions()
        if recipe.batch_size > n:
            raise InputError(f"batch_size must be at most the {n} training samples; got {recipe.batch_size}.")
        if recipe.select != "last" and "calibration" not in data.held_out:
            raise InputError(f"select must be 'last' without calibration samples to choose by; got {recipe.select!r}.")
        part = processes.part_of(recipe.batch_size)
        _check_loss(loss, data, recipe, processes)
        self._rank = processes.rank
        for module in loss.modules():
            if isinstance(module, NeedsSamples):
                module.remember(n)
        self.model = model.to(data.device).train()
        # Torch's annotations know this keyword only without a device.
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss: Loss | MetaLoss = loss.to(data.device).train()
        self.recipe, self.data, self._evaluate_every = recipe, data, runtime.evaluate_every
        self.epoch = 0
        self.records: list[EpochRecord] = []
        self.held_out_logits: dict[str, Tensor] = {}  # from the last evaluation
        self.trace = LearningTrace(n) if runtime.traced else None
        self._best: dict[str, Tensor] = {}  # network and loss after the best epoch so far, where one is selected
        self._plan = self._drawn().to(data.device)
        inputs = for_steps(data.training.inputs, recipe.batch_size if recipe.mixup else part.stop - part.start)
        self._part, self._loaded = part, inputs if isinstance(inputs, LoadedPictures) else None
        self._meta_loaded: LoadedPictures | None = None
        called: Loss | MetaForward
        if isinstance(loss, MetaLoss):
            assert data.meta is not None, "_check_loss ensures it"
            held_out = for_steps(data.meta.inputs, self._plan.meta_samples.shape[1])
            self._meta_loaded = held_out if isinstance(held_out, LoadedPictures) else None
            called = MetaForward(loss, self.model, data, held_out, recipe, self._plan.samples[0], name=name)
        else:
            called = loss
        self._meta = called if isinstance(called, MetaForward) else None
        network = processes.wrapped(self.model, data.device)
        self.step = Step(network, called, inputs, data.training.labels, self._plan, recipe, processes)
        self.is_captured = runtime.compiled and data.device.type == "cuda" and processes.count == 1
        self._captured: CapturedStep | None = None
        self._started = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.recipe.epochs

    @property
    def steps_an_epoch(self) -> int:
        """Number of batches in an epoch."""
        return len(self._plan.samples)

    def begin_epoch(self) -> None:
        """Draw the plan of the epoch, and go to its first step."""
        self._started = time.perf_counter()
        if self.is_captured and self._captured is None:
            compile_blocks(self.model)
            self._captured = CapturedStep(self.step, list(self._tensors().values()), self.step.rewind)
        plan, seed, mixes = self._drawn(), self.recipe.seed, self.recipe.mixup > 0
        if self._loaded is not None:
            drawn = plan.samples, plan.mirrored, plan.partners
            self._loaded.begin(training_pictures(*drawn, self._part, seed=seed, epoch=self.epoch, mixes=mixes))
        if self._meta_loaded is not None:
            self._meta_loaded.begin((samples, None) for samples in plan.meta_samples.tolist())
        with self._stream():
            self._plan.copy_(plan)
            self.step.rates.copy_(learning_rates(self.recipe, self.epoch, self.steps_an_epoch))
            for module in self.loss.modules():
                if isinstance(module, ChangesWithEpoch):
                    module.begin_epoch(self.epoch)
            self.step.rewind()
        self.model.train()
        # For what is random in the network itself, such as dropout: every process has samples, and chance, of its own.
        torch.manual_seed(epoch_generator(self.recipe.seed, self.epoch, self._rank).initial_seed())

    def advance(self) -> None:
        """Take one step; a FileError names pictures that cannot be read."""
        for loaded in filter(None, (self._loaded, self._meta_loaded)):
            with self._stream():  # not part of a captured step, which finds them in the same memory each time
                loaded.load()
        (self._captured or self.step)()

    def wait(self) -> None:
        """Wait until the device has taken the steps so far."""
        if self._captured is not None:
            self._captured.stream.synchronize()

    def end_epoch(self) -> EpochRecord:
        """Evaluate the network, and record the epoch; a FitError if loss or logits are no longer finite."""
        with self._stream():
            loss = float(self.step.loss_sum) / self.steps_an_epoch
            if not math.isfinite(loss):
                raise FitError(
                    f"the loss must stay finite; in epoch {self.epoch + 1} it is {loss}. Lower the learning rate, "
                    "warm up, or clip the gradient."
                )
            accuracy = int(self.step.n_correct) / (self.steps_an_epoch * self.recipe.batch_size)
            is_evaluated = (self.epoch + 1) % self._evaluate_every == 0 or self.epoch + 1 == self.recipe.epochs
            held_out = self._evaluated() if is_evaluated else {}
            training_accuracy = None
            if self.trace is not None:
                logits = logits_of(self.model, self.data.training, exact=False)
                training_accuracy = self.trace.add(logits, self.data.training.labels)
            learned = {}
            if self._meta and held_out:
                # Samples that have no part in the training.
                parts = self.data.held_out
                learned = self._meta.describe(parts.get("calibration") or next(iter(parts.values())))
            rate = float(self.step.rates[-1])
        self.epoch += 1
        seconds = time.perf_counter() - self._started
        record = EpochRecord(self.epoch, seconds, rate, loss, accuracy, held_out, learned, training_accuracy)
        self.records.append(record)
        if self.recipe.select != "last" and self.selected_epoch == self.epoch:
            with self._stream():
                self._best = {name: tensor.detach().clone() for name, tensor in self._kept().items()}
        return record

    @property
    def selected_epoch(self) -> int:
        """The epoch whose weights are kept, counted from 1, of those trained so far; 0 before the first."""
        return selected_epoch(self.records, self.recipe.select)

    def select(self) -> None:
        """Restore network and loss to the epoch that the recipe selects."""
        with self._stream(), torch.no_grad():
            for name, tensor in self._kept().items() if self._best else ():
                tensor.copy_(self._best[name])

    def logits(self, samples: StoredSamples) -> Tensor:
        """Return the logits of samples on the network's device, (n, k), float32."""
        return logits_of(self.model, samples)

    def state(self) -> dict[str, Tensor]:
        """Return everything that the rest of the training depends on, apart from the recipe: copies to save."""
        with self._stream():
            copied = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self._tensors().items()}
            copied |= {f"best.{name}": tensor.cpu().contiguous() for name, tensor in self._best.items()}
        return copied | {f"trace.{name}": tensor for name, tensor in (self.trace.state() if self.trace else {}).items()}

    def restore(self, state: Mapping[str, Tensor], records: Sequence[EpochRecord]) -> None:
        """Resume from a :meth:`state`; an InputError if it is not one of this network and loss."""
        mine, kept = self._tensors(), self._kept()
        theirs = {name: tensor for name, tensor in state.items() if not name.startswith(("trace.", "best."))}
        if _shapes(mine) != _shapes(theirs):
            raise InputError("the state must be one of this network and loss; its names or shapes are not.")
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(theirs[name])
        if self.trace is not None:
            if "trace.packed" not in state:
                raise InputError("the state must hold a trace to resume with one; it was made without.")
            self.trace.restore(tensors_under("trace.", state))
        best = tensors_under("best.", state)
        if best and _shapes(kept) != _shapes(best):
            raise InputError("the best state must be one of this network and loss; its names or shapes are not.")
        self._best = {name: tensor.to(kept[name]) for name, tensor in best.items()}
        self.records, self.epoch = list(records), len(records)

    def _evaluated(self) -> dict[str, HeldOutRecord]:
        parts = self.data.held_out
        self.held_out_logits = {name: self.logits(part) for name, part in parts.items()}
        return {name: evaluate_held_out(self.held_out_logits[name], part.labels) for name, part in parts.items()}

    def _drawn(self) -> EpochPlan:
        n, n_meta = len(self.data.training), len(self.data.meta or ()) if isinstance(self.loss, MetaLoss) else 0
        size, seed, mixup = self.recipe.batch_size, self.recipe.seed, self.recipe.mixup
        return plan_epoch(n, size, seed=seed, epoch=self.epoch, mixup=mixup, n_meta=n_meta)

    def _tensors(self) -> dict[str, Tensor]:
        """Return all lasting tensors that a step changes, by name."""
        groups: dict[str, Mapping[str, object]] = {
            "model": self.model.state_dict(keep_vars=True),
            "loss": self.loss.state_dict(keep_vars=True),
            "optimiser": {
                f"{key}.{name}": tensor
                for name, weight in self.model.named_parameters()
                for key, tensor in self.step.optimiser.state.get(weight, {}).items()
            },
            "meta": dict(self._meta.regulariser.optimiser_state()) if self._meta else {},
        }
        named = {f"{group}.{name}": tensor for group, part in groups.items() for name, tensor in part.items()}
        return {name: tensor for name, tensor in named.items() if isinstance(tensor, Tensor) and tensor.numel()}

    def _kept(self) -> dict[str, Tensor]:
        """Return the result of the training: the network, and the parameters of the loss."""
        return {name: tensor for name, tensor in self._tensors().items() if name.startswith(("model.", "loss."))}

    def _stream(self) -> AbstractContextManager[object]:
        """Return a context for the CUDA stream of this network."""
        return nullcontext() if self._captured is None else torch.cuda.stream(self._captured.stream)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def selected_epoch(records: Sequence[EpochRecord], select: Selection) -> int:
    """Return the epoch whose weights the recipe's ``select`` keeps, counted from 1; 0 if there are no records."""
    evaluated = [record for record in records if "calibration" in record.held_out]
    if select == "last" or not evaluated:
        return records[-1].epoch if records else 0
    if select == "best":
        return max(evaluated, key=lambda record: record.held_out["calibration"].accuracy).epoch
    return min(evaluated, key=lambda record: record.held_out["calibration"].nll).epoch


def _check_loss(loss: Loss | MetaLoss, data: DeviceData, recipe: Recipe, processes: ProcessGroup) -> None:
    if isinstance(loss, MetaLoss):
        check_meta(loss, data, recipe, processes)
        return
    if loss.reduction == "none":
        raise InputError("the reduction of a loss must be mean or sum to train with it; got none.")
    if not recipe.mixup:
        return
    if any(isinstance(module, NeedsSamples) for module in loss.modules()):
        raise InputError(f"mixup must be 0 with {loss.name}, which follows single samples; got {recipe.mixup}.")
    if not data.training.inputs.plain(torch.zeros_like(data.training.labels[:1])).is_floating_point():
        raise InputError(f"mixup must be 0 for texts, whose words cannot be mixed; got {recipe.mixup}.")
