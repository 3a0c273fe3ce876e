"""Passes over the samples with δ added: logits, and the gradient of the mean loss in δ.

Memory holds one batch of inputs and its activations; only logits are kept for all samples. A pass with a gradient costs
a forward and a backward run to the input: weights have no gradient here. Of several processes each takes a part of the
samples; all get the whole result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.checks import are_images
from calibrant.clamping.inputs import InputPreparation, check_gradient
from calibrant.clamping.objective import FirstTemperature, Objective
from calibrant.errors import InputError, Row
from calibrant.inference import LabelledInputs, device_of, extract_logits
from calibrant.maps import Map
from calibrant.numerics.softmax import to_working_precision
from calibrant.processes import SINGLE_PROCESS, ProcessGroup

Precision: TypeAlias = Literal["float32", "tensor-float32", "bfloat16"]


class LogitsAndGradient(NamedTuple):
    """Result of a pass with a gradient."""

    logits: Tensor  # (n, k), float32, or float64 for a network in float64
    gradient: Tensor  # of the mean loss, of an input's shape, float64


@final
@dataclass(eq=False)
class Passes:
    """Runs a frozen network over some of the samples; use :func:`dataclasses.replace` to choose other samples."""

    model: nn.Module  # in evaluation mode, its parameters frozen
    samples: LabelledInputs
    chosen: Tensor | None = None  # positions of the samples to read; None for all
    preparation: InputPreparation = field(default_factory=InputPreparation)  # augments passes with a gradient only
    batch_size: int | None = None
    precision: Precision = "float32"  # of matrix products on a GPU
    processes: ProcessGroup = SINGLE_PROCESS  # that run the same passes

    def __post_init__(self) -> None:
        self.device = device_of(self.model)
        positions = torch.arange(len(self.samples)) if self.chosen is None else self.chosen
        self.labels = self.samples.labels[positions].to(self.device)
        self.view_labels = self.labels.repeat(self.preparation.n_views)  # in a pass with a gradient
        self._place = torch.full((len(self.samples),), -1)
        self._place[positions] = torch.arange(len(positions))
        # So few samples that a process would have none are run by all of them.
        self._sharing = self.processes if len(positions) >= self.processes.count else SINGLE_PROCESS
        self._share = self._sharing.share_of(len(positions))
        self._read = self.chosen if self._sharing.count == 1 else positions[self._share]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augments(self) -> bool:
        """Whether passes with a gradient see augmented inputs."""
        return self.preparation.augmentation != "none"

    @property
    def is_exact(self) -> bool:
        """Whether δ is learned without augmentation and in full precision."""
        return not self.augments and self.precision == "float32"

    def logits(self, delta: Tensor) -> Tensor:
        """Return the logits of every sample, (n, k), never augmented."""
        return self._logits(delta, self._batches(), len(self))

    def view_logits(self, delta: Tensor) -> Tensor:
        """Return the logits of a pass with a gradient: those of every view of every sample, (views · n, k)."""
        return self._logits(delta, self._views_of_batches(), len(self.view_labels))

    def check_finite(self, logits: Tensor) -> None:
        """Check that logits of :meth:`logits` or :meth:`view_logits` are finite; the message names the data's row."""
        broken = (~logits.isfinite().all(dim=1)).nonzero()
        if len(broken):
            place = int(broken[0]) % len(self)
            row = place if self.chosen is None else int(self.chosen[place])
            raise InputError(
                f"the network's logits must be finite; got NaN or infinity for {Row(row)}. Check that input, "
                "and the weights.",
                argument="model",
            )

    def full_precision_logits(self, delta: Tensor) -> Tensor:
        """Return :meth:`logits` in full precision, whatever the precision of the passes."""
        return replace(self, precision="float32").logits(delta)

    @torch.enable_grad()  # also for callers who have it off
    def logits_and_gradient(
        self, delta: Tensor, head: Map, objective: Objective, *, following: FirstTemperature | None = None
    ) -> LogitsAndGradient:
        """Return the logits of every view, and the gradient of their mean loss in δ; only ``following`` follows δ."""
        all_logits: Tensor | None = None
        delta = self._sharing.copy_of_first(delta).requires_grad_()
        gradient = torch.zeros_like(delta, dtype=torch.float64)
        with self._sharing.agreed(), self._matmul_precision():
            for inputs, places in self._views_of_batches():
                logits = self._call(inputs, delta)
                labels = self.view_labels[places]
                losses = objective.sample_losses(head(to_working_precision(logits)), labels)
                check_gradient(logits.requires_grad)
                if not losses.requires_grad:
                    raise InputError(
                        "the head must change smoothly with the logits, for δ to be learned before it; got a "
                        f"{type(head).__name__} of steps. Take a temperature or another scaling."
                    )
                if following is not None:
                    losses = losses + following.sample_terms(to_working_precision(logits), labels)
                (change,) = torch.autograd.grad(losses.sum(), delta, allow_unused=True)
                check_gradient(change is not None)  # gradients that the logits carry may be others
                gradient += change
                all_logits = _stored(all_logits, logits.detach(), places, len(self.view_labels))
        assert all_logits is not None
        self._sharing.sum_(all_logits, gradient)
        return LogitsAndGradient(all_logits, gradient / len(self.view_labels))

    @torch.no_grad()
    def _logits(self, delta: Tensor, batches: Iterator[tuple[Tensor, Tensor]], n: int) -> Tensor:
        all_logits: Tensor | None = None
        delta = self._sharing.copy_of_first(delta)
        with self._sharing.agreed(), self._matmul_precision():
            for inputs, places in batches:
                all_logits = _stored(all_logits, self._call(inputs, delta), places, n)
        assert all_logits is not None
        self._sharing.sum_(all_logits)
        return all_logits

    def _call(self, inputs: Tensor, delta: Tensor) -> Tensor:
        return extract_logits(self.model(self.preparation.add_delta(inputs, delta)))

    def _views_of_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for view in range(self.preparation.n_views):
            generator = self.preparation.generator(view)
            self.preparation.skip(self._share.start, generator)
            for inputs, places in self._batches():
                yield self.preparation.augmented(inputs, generator), places + view * len(self)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, positions in self.samples.batches(self._read, device=self.device, batch_size=self.batch_size):
            is_faster = self.precision != "float32" and inputs.is_cuda and are_images(inputs)
            laid_out = inputs.contiguous(memory_format=torch.channels_last) if is_faster else inputs
            yield laid_out, self._place[positions].to(self.device)

    @contextmanager
    def _matmul_precision(self) -> Iterator[None]:
        """Multiply matrices in the requested precision on a GPU; other devices have only one."""
        if self.device.type != "cuda" or self.precision == "float32":
            yield
        elif self.precision == "bfloat16":
            with torch.autocast("cuda", torch.bfloat16):
                yield
        else:
            flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            try:
                yield
            finally:
                torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


def _stored(all_logits: Tensor | None, logits: Tensor, places: Tensor, n: int) -> Tensor:
    """Put the logits of a batch into their places."""
    if all_logits is None:
        # Zeros, as those of other processes are added.
        all_logits = torch.zeros(n, logits.shape[1], dtype=to_working_precision(logits).dtype, device=logits.device)
    all_logits[places] = logits.to(all_logits)
    return all_logits
