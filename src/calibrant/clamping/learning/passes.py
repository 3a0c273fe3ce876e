"""Passes over the calibration rows with δ added: logits, and the gradient of the mean loss in δ.

Memory holds one batch of inputs and its activations; over all rows only logits are kept. A pass costs a forward and a
backward run to the input: weights have no gradient here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.checks import are_images
from calibrant.clamping.learning.first_temperature import FirstTemperature
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.network.first_layer import FirstLayer
from calibrant.clamping.network.input_preparation import InputPreparation
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples, device_of, logits_in
from calibrant.maps import Map
from calibrant.numerics.precision import working

__all__ = ["Passes", "Precision", "Slope", "check_gradient"]

Precision: TypeAlias = Literal["float32", "tensor-float32", "bfloat16"]


class Slope(NamedTuple):
    """What a pass with a gradient gives."""

    logits: Tensor  # (n, k), float32 or, of a network in it, float64
    gradient: Tensor  # of the mean loss, of an input's shape, float64


@final
class Passes:
    """Runs a frozen network over some of the rows.

    Args:
        model: In evaluation mode, its parameters frozen.
        rows: All calibration rows.
        chosen: Which of them, by position; None for all.
        preparation: What is done to the inputs; they are augmented in passes with a gradient only.
        batch_size: Rows at a time; None leaves it to the rows.
        precision: What is multiplied in, on a GPU.
        first_layer: Behind which δ is added instead, in passes with a gradient, where that was found to be the same.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: CalibrationSamples,
        chosen: Tensor | None = None,
        *,
        preparation: InputPreparation | None = None,
        batch_size: int | None = None,
        precision: Precision = "float32",
        first_layer: FirstLayer | None = None,
    ) -> None:
        self.device = device_of(model)
        self._model, self._rows, self._chosen = model, rows, chosen
        self._preparation, self._batch_size, self._precision = preparation or InputPreparation(), batch_size, precision
        self._first_layer = first_layer
        positions = torch.arange(len(rows)) if chosen is None else chosen
        self.labels = rows.labels[positions].to(self.device)
        self.seen_labels = self.labels.repeat(self._preparation.n_views)  # of the rows of a pass with a gradient
        self._place = torch.full((len(rows),), -1)
        self._place[positions] = torch.arange(len(positions))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augments(self) -> bool:
        """Whether passes with a gradient see other rows than those without."""
        return self._preparation.augmentation != "none"

    def logits(self, delta: Tensor) -> Tensor:
        """Logits of every row, (n, k), never augmented."""
        return self._logits(delta, self._batches(), len(self))

    def seen_logits(self, delta: Tensor) -> Tensor:
        """Logits of the rows of a pass with a gradient: of every view of every row, (views · n, k)."""
        return self._logits(delta, self._views_of_batches(), len(self.seen_labels))

    def check_finite(self, logits: Tensor) -> None:
        """Refuse logits of :meth:`logits` or :meth:`seen_logits` that are not finite, by the row of the data.

        Raises:
            InputError: If some are not.
        """
        broken = (~logits.isfinite().all(dim=1)).nonzero()
        if len(broken):
            place = int(broken[0]) % len(self)
            row = place if self._chosen is None else int(self._chosen[place])
            raise InputError(
                f"the network's logits must be finite; got NaN or infinity for row {row}. Look at that input, or at "
                "the weights.",
                argument="model",
            )

    def precise_logits(self, delta: Tensor) -> Tensor:
        """Logits as :meth:`logits`, in full precision whatever the passes multiply in."""
        wanted, self._precision = self._precision, "float32"
        try:
            return self.logits(delta)
        finally:
            self._precision = wanted

    @torch.enable_grad()  # also for callers who have it off
    def slope(
        self, delta: Tensor, head: Map, objective: Objective, *, following: FirstTemperature | None = None
    ) -> Slope:
        """Logits of every row (of every view of it), and the gradient of their mean loss behind a fixed head.

        Args:
            delta: Of an input's shape.
            head: Stands still.
            objective: Its strength does not matter here.
            following: The one number of the head that does not stand still, if there is one.

        Raises:
            InputError: If the network or the head lets no gradient through.
        """
        found: Tensor | None = None
        leaf = delta.detach().clone().requires_grad_()
        with self._multiplying(), _sharing(self._first_layer, leaf) as shared:
            gradient = torch.zeros_like(shared.leaf, dtype=torch.float64)
            for inputs, places in self._views_of_batches():
                logits = shared.called(self._called, inputs)
                labels = self.seen_labels[places]
                losses = objective.sample_losses(head(working(logits)), labels)
                check_gradient(logits)
                _check_smooth(losses, head)
                if following is not None:
                    losses = losses + following.row_terms(working(logits), labels)
                (change,) = torch.autograd.grad(losses.sum(), shared.leaf)
                gradient += change
                found = _stored(found, logits.detach(), places, len(self.seen_labels))
            gradient = shared.carried_back(gradient)
        assert found is not None
        return Slope(found, gradient / len(self.seen_labels))

    @torch.no_grad()
    def _logits(self, delta: Tensor, batches: Iterator[tuple[Tensor, Tensor]], n: int) -> Tensor:
        found: Tensor | None = None
        with self._multiplying():
            for inputs, places in batches:
                found = _stored(found, self._called(inputs, delta), places, n)
        assert found is not None
        return found

    def _called(self, inputs: Tensor, delta: Tensor | None) -> Tensor:
        # A copy even without δ, for networks that write into what they are given.
        return logits_in(self._model(inputs.clone() if delta is None else self._preparation.moved(inputs, delta)))

    def _views_of_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for view in range(self._preparation.n_views):
            chance = self._preparation.chance(view)
            for inputs, places in self._batches():
                yield self._preparation.augmented(inputs, chance), places + view * len(self)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, positions in self._rows.batches(self._chosen, device=self.device, batch_size=self._batch_size):
            laid_out = inputs
            if self._precision != "float32" and inputs.is_cuda and are_images(inputs):
                laid_out = inputs.contiguous(memory_format=torch.channels_last)
            yield laid_out, self._place[positions].to(self.device)

    @contextmanager
    def _multiplying(self) -> Iterator[None]:
        """With the precision asked for, on a GPU; elsewhere there is only one."""
        if self.device.type != "cuda" or self._precision == "float32":
            yield
        elif self._precision == "bfloat16":
            with torch.autocast("cuda", torch.bfloat16):
                yield
        else:
            flags = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            try:
                yield
            finally:
                torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags


def check_gradient(logits: Tensor) -> None:
    """Logits follow from δ in a way that can be differentiated.

    Raises:
        InputError: If they do not.
    """
    if not logits.requires_grad:
        raise InputError(
            "the network's logits must carry a gradient to its inputs, by which δ is learned; these carry none. Take "
            "no_grad, inference_mode and detach out of its forward, or give strength=math.inf for the head alone.",
            argument="model",
        )


def _check_smooth(losses: Tensor, head: Map) -> None:
    if not losses.requires_grad:
        raise InputError(
            f"the head must change smoothly with the logits, for δ to be learned before it; got a {type(head).__name__}"
            " of steps. Take a temperature or another scaling."
        )


def _stored(found: Tensor | None, logits: Tensor, places: Tensor, n: int) -> Tensor:
    """All logits so far, with those of a batch put in their places."""
    if found is None:
        found = torch.empty(n, logits.shape[1], dtype=working(logits).dtype, device=logits.device)
    found[places] = logits.to(found)
    return found


class _Shared(NamedTuple):
    """The leaf whose gradient the batches add up, and how to get from its gradient to δ's."""

    leaf: Tensor
    called: Callable[[Callable[[Tensor, Tensor | None], Tensor], Tensor], Tensor]
    carried_back: Callable[[Tensor], Tensor]


@contextmanager
def _sharing(first: FirstLayer | None, delta: Tensor) -> Iterator[_Shared]:
    if first is None:
        yield _Shared(delta, lambda call, inputs: call(inputs, delta), lambda gradient: gradient)
        return
    share = first.share(delta)
    leaf = share.detach().clone().requires_grad_()

    def carried_back(gradient: Tensor) -> Tensor:
        (back,) = torch.autograd.grad(share, delta, gradient.to(share))
        return back.double()

    with first.adding(leaf):
        yield _Shared(leaf, lambda call, inputs: call(inputs, None), carried_back)
