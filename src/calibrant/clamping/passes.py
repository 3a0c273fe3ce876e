"""Passes over the samples with δ added: logits, and the gradient of the mean loss in δ.

Memory holds one batch of inputs and its activations; only logits are kept for all samples. A pass with a gradient costs
a forward and a backward run to the input: weights have no gradient here. Where the network allows it, the backward run
ends behind the first layer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn

from calibrant.checks import are_images
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.objective import FirstTemperature, Objective
from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples, device_of, logits_in
from calibrant.maps import Map
from calibrant.numerics.softmax import working

__all__ = ["FirstLayer", "Passes", "Precision", "Slope", "check_gradient", "find_first_layer"]

Precision: TypeAlias = Literal["float32", "tensor-float32", "bfloat16"]


class Slope(NamedTuple):
    """Result of a pass with a gradient."""

    logits: Tensor  # (n, k), float32, or float64 for a network in float64
    gradient: Tensor  # of the mean loss, of an input's shape, float64


@final
class Passes:
    """Runs a frozen network over some of the samples.

    Args:
        model: In evaluation mode, its parameters frozen.
        samples: All calibration samples.
        chosen: Positions of the samples to read; None for all.
        preparation: What is done to the inputs; they are augmented in passes with a gradient only.
        batch_size: Samples per batch; None for the samples' default.
        precision: Type of matrix products on a GPU.
        first_layer: The layer behind which δ is added in passes with a gradient, where that was found equivalent.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: CalibrationSamples,
        chosen: Tensor | None = None,
        *,
        preparation: InputPreparation | None = None,
        batch_size: int | None = None,
        precision: Precision = "float32",
        first_layer: "FirstLayer | None" = None,
    ) -> None:
        self.device = device_of(model)
        self._model, self._samples, self._chosen = model, samples, chosen
        self._preparation, self._batch_size, self._precision = preparation or InputPreparation(), batch_size, precision
        self._first_layer = first_layer
        positions = torch.arange(len(samples)) if chosen is None else chosen
        self.labels = samples.labels[positions].to(self.device)
        self.seen_labels = self.labels.repeat(self._preparation.n_views)  # in a pass with a gradient
        self._place = torch.full((len(samples),), -1)
        self._place[positions] = torch.arange(len(positions))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def augments(self) -> bool:
        """Whether passes with a gradient see other inputs than those without."""
        return self._preparation.augmentation != "none"

    def logits(self, delta: Tensor) -> Tensor:
        """Return the logits of every sample, (n, k), never augmented."""
        return self._logits(delta, self._batches(), len(self))

    def seen_logits(self, delta: Tensor) -> Tensor:
        """Return the logits of a pass with a gradient: those of every view of every sample, (views · n, k)."""
        return self._logits(delta, self._views_of_batches(), len(self.seen_labels))

    def check_finite(self, logits: Tensor) -> None:
        """Check that logits of :meth:`logits` or :meth:`seen_logits` are finite.

        Raises:
            InputError: If some are not; the message names the row of the data.
        """
        broken = (~logits.isfinite().all(dim=1)).nonzero()
        if len(broken):
            place = int(broken[0]) % len(self)
            row = place if self._chosen is None else int(self._chosen[place])
            raise InputError(
                f"the network's logits must be finite; got NaN or infinity for row {row}. Check that input, and the "
                "weights.",
                argument="model",
            )

    def precise_logits(self, delta: Tensor) -> Tensor:
        """Return :meth:`logits` in full precision, whatever the precision of the passes."""
        wanted, self._precision = self._precision, "float32"
        try:
            return self.logits(delta)
        finally:
            self._precision = wanted

    @torch.enable_grad()  # also for callers who have it off
    def slope(
        self, delta: Tensor, head: Map, objective: Objective, *, following: FirstTemperature | None = None
    ) -> Slope:
        """Return the logits of every sample (every view of it), and the gradient of their mean loss in δ.

        Args:
            delta: δ, with the shape of one input.
            head: Held fixed.
            objective: Its strength does not matter here.
            following: The one parameter of the head that follows δ, if there is one.

        Raises:
            InputError: If the network or the head lets no gradient through.
        """
        all_logits: Tensor | None = None
        leaf = delta.detach().clone().requires_grad_()
        with self._matmul_precision(), _differentiated(self._first_layer, leaf) as route:
            gradient = torch.zeros_like(route.leaf, dtype=torch.float64)
            for inputs, places in self._views_of_batches():
                logits = route.call(self._call, inputs)
                labels = self.seen_labels[places]
                losses = objective.sample_losses(head(working(logits)), labels)
                check_gradient(logits)
                if not losses.requires_grad:
                    raise InputError(
                        "the head must change smoothly with the logits, for δ to be learned before it; got a "
                        f"{type(head).__name__} of steps. Take a temperature or another scaling."
                    )
                if following is not None:
                    losses = losses + following.sample_terms(working(logits), labels)
                (change,) = torch.autograd.grad(losses.sum(), route.leaf)
                gradient += change
                all_logits = _stored(all_logits, logits.detach(), places, len(self.seen_labels))
            gradient = route.pull_back(gradient)
        assert all_logits is not None
        return Slope(all_logits, gradient / len(self.seen_labels))

    @torch.no_grad()
    def _logits(self, delta: Tensor, batches: Iterator[tuple[Tensor, Tensor]], n: int) -> Tensor:
        all_logits: Tensor | None = None
        with self._matmul_precision():
            for inputs, places in batches:
                all_logits = _stored(all_logits, self._call(inputs, delta), places, n)
        assert all_logits is not None
        return all_logits

    def _call(self, inputs: Tensor, delta: Tensor | None) -> Tensor:
        # A copy even without δ, for networks that write into their input.
        return logits_in(self._model(inputs.clone() if delta is None else self._preparation.add_delta(inputs, delta)))

    def _views_of_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for view in range(self._preparation.n_views):
            generator = self._preparation.generator(view)
            for inputs, places in self._batches():
                yield self._preparation.augmented(inputs, generator), places + view * len(self)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, positions in self._samples.batches(self._chosen, device=self.device, batch_size=self._batch_size):
            laid_out = inputs
            if self._precision != "float32" and inputs.is_cuda and are_images(inputs):
                laid_out = inputs.contiguous(memory_format=torch.channels_last)
            yield laid_out, self._place[positions].to(self.device)

    @contextmanager
    def _matmul_precision(self) -> Iterator[None]:
        """Multiply in the requested precision on a GPU; elsewhere there is only one."""
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
    """Check that logits are differentiable in δ.

    Raises:
        InputError: If they are not.
    """
    if not logits.requires_grad:
        raise InputError(
            "the network's logits must carry a gradient to its inputs, by which δ is learned; these carry none. Remove "
            "no_grad, inference_mode and detach from its forward, or give strength=math.inf for the head alone.",
            argument="model",
        )


def _stored(all_logits: Tensor | None, logits: Tensor, places: Tensor, n: int) -> Tensor:
    """Put the logits of a batch into their places."""
    if all_logits is None:
        all_logits = torch.empty(n, logits.shape[1], dtype=working(logits).dtype, device=logits.device)
    all_logits[places] = logits.to(all_logits)
    return all_logits


# δ behind the first layer. A convolution or linear layer gives W(x + δ) = Wx + Wδ, so δ can be added behind it: the
# backward run then ends there for every sample, and passes through the layer once for all of them. Whether a network
# allows it (nothing nonlinear before its first layer, no second path for x) is tested numerically.

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SAME = 1e-4  # largest difference of equivalent logits, relative to their range
_TRIED = 2  # samples
# Sizes of the perturbations tried, in standard deviations of the inputs: networks that clip do so far out.
_SIZES = (0.1, 3.0, 30.0)


class _Reached(Exception):  # noqa: N818  # not an error
    """Carries the layer's output past the rest of the network, which need not run."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


@final
class FirstLayer:
    """A network's first layer, and an input by which δ's share of its output is computed."""

    def __init__(self, model: nn.Module, layer: nn.Module, probe: Tensor) -> None:
        self._model, self._layer, self._probe = model, layer, probe

    def share(self, delta: Tensor) -> Tensor:
        """Return the change of the layer's output by δ, (1, ...); differentiable in δ."""
        with_delta = self._output(self._probe + delta.to(self._probe))
        with torch.no_grad():
            without_delta = self._output(self._probe)
        return with_delta - without_delta

    @contextmanager
    def adding(self, share: Tensor) -> Iterator[None]:
        """Add the share to every output of the layer within the block."""
        handle = self._layer.register_forward_hook(lambda _layer, _inputs, output: output + share.to(output))
        try:
            yield
        finally:
            handle.remove()

    def _output(self, inputs: Tensor) -> Tensor:
        def stop(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
            raise _Reached(output)

        handle = self._layer.register_forward_hook(stop)
        try:
            self._model(inputs.clone())  # a copy, for networks that write into their input
        except _Reached as reached:
            return reached.output
        finally:
            handle.remove()
        raise InputError(
            "the network must run through the same layers for any δ; at this one it skipped its first. Give a larger "
            "strength, so that δ stays smaller.",
            argument="model",
        )


def find_first_layer(model: nn.Module, inputs: Tensor) -> FirstLayer | None:
    """Return the network's first layer, if adding δ behind it is the same as adding δ to the input; else None.

    Args:
        model: Frozen, in evaluation mode.
        inputs: A few inputs.
    """
    called: list[nn.Module] = []
    handles = [
        module.register_forward_pre_hook(lambda module, _inputs: called.append(module))
        for module in model.modules()
        if isinstance(module, _LINEAR)
    ]
    try:
        with torch.no_grad():
            model(inputs[:1].clone())
    finally:
        for handle in handles:
            handle.remove()
    if not called or called.count(called[0]) > 1:
        return None
    first = FirstLayer(model, called[0], inputs[:1])
    try:
        return first if _is_equivalent(first, model, inputs[:_TRIED]) else None
    except InputError:  # a network whose path depends on the input
        return None


@torch.no_grad()
def _is_equivalent(first: FirstLayer, model: nn.Module, inputs: Tensor) -> bool:
    generator = torch.Generator().manual_seed(0)
    scale = float(inputs.float().std()) or 1.0
    for size in _SIZES:
        delta = (size * scale * torch.randn(inputs.shape[1:], generator=generator)).to(inputs)
        direct = logits_in(model(inputs + delta)).float()
        with first.adding(first.share(delta)):
            behind = logits_in(model(inputs.clone())).float()
        spread = float(direct.max() - direct.min())
        if not float((direct - behind).abs().max()) <= _SAME * spread:  # also if it is NaN
            return False
    return True


class _Route(NamedTuple):
    """The leaf whose gradient the batches add up, and how to get from its gradient to δ's."""

    leaf: Tensor
    call: Callable[[Callable[[Tensor, Tensor | None], Tensor], Tensor], Tensor]
    pull_back: Callable[[Tensor], Tensor]


@contextmanager
def _differentiated(first: FirstLayer | None, delta: Tensor) -> Iterator[_Route]:
    if first is None:
        yield _Route(delta, lambda call, inputs: call(inputs, delta), lambda gradient: gradient)
        return
    share = first.share(delta)
    leaf = share.detach().clone().requires_grad_()

    def pull_back(gradient: Tensor) -> Tensor:
        (back,) = torch.autograd.grad(share, delta, gradient.to(share))
        return back.double()

    with first.adding(leaf):
        yield _Route(leaf, lambda call, inputs: call(inputs, None), pull_back)
