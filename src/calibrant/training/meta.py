"""Meta-regularisation: before each step of the network, a loss's parameters φ move to lower a held-out objective."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from calibrant.checks import check_real_number
from calibrant.errors import FitError, InputError, warn
from calibrant.inference import evaluating, forward_errors, tensors_under, with_features
from calibrant.losses import MetaLoss
from calibrant.numerics.softmax import full_precision, to_working_precision
from calibrant.processes import ProcessGroup
from calibrant.training.data import DeviceData, StoredSamples
from calibrant.training.recipe import Recipe
from calibrant.training.record import features_of
from calibrant.training.stores import StepInputs


def check_meta(loss: MetaLoss, data: DeviceData, recipe: Recipe, processes: ProcessGroup) -> None:
    """Check that loss, data and recipe go together."""
    if data.meta is None:
        raise InputError(
            f"{loss.name} must have samples of its own to be tuned on, which neither train nor evaluate the network; "
            "there are none. Divide the data by '8:1:1'."
        )
    if len(data.meta) < 2 or bool((data.meta.labels == data.meta.labels[0]).all()):
        raise InputError(
            f"{loss.name} must be tuned on samples of several classes; got {len(data.meta)} of "
            f"{len(data.meta.labels.unique())}. Set more samples apart."
        )
    if recipe.batch_size < 2:
        raise InputError(
            f"batch_size must be at least 2 with {loss.name}, as its objective is computed on as many held-out "
            f"samples in each step; got {recipe.batch_size}."
        )
    if recipe.mixup:
        raise InputError(f"mixup must be 0 with {loss.name}, whose features are those of single samples.")
    if processes.count > 1:
        raise InputError(
            f"{loss.name} must be trained by one process, as its gradient goes through a step; there are "
            f"{processes.count}. Start it without torchrun."
        )


def features_in_evaluation(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return features (n, d) without a gradient, in evaluation mode: running statistics are used and not updated.

    Args:
        model: With ``features`` and ``head``; afterwards each of its modules is in its own mode again.
        inputs: Inputs of the network.
    """
    network = with_features(model)
    with evaluating(model), torch.no_grad():
        return network.features(inputs)


@torch.no_grad()
def _features_in_training(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return features (n, d) with the batch's own statistics, as in the next training step; buffers are restored."""
    # Before the first step running statistics are unrelated to the batches, and a deep network in evaluation mode gives
    # features of any size.
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with forward_errors(model, inputs):
            return with_features(model).features(inputs)
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


@final
class MetaRegulariser:
    """Owns the parameters φ of a meta-learned loss, and updates them.

    The gradient of φ looks one step ahead: the network's last layer takes a plain gradient step on the training
    samples, which depends on φ; the objective is computed on held-out samples with the resulting layer; and φ follows
    its gradient. All layers before the last are constants, and get no gradient from held-out samples. The step that is
    looked ahead to leaves out momentum and weight decay, as in meta-calibration, so it differs slightly from the step
    that is then taken.

    Args:
        loss: Its parameters are created here, replacing earlier ones.
        head: The network's last layer.
        seed: Random seed of the initial parameters.
        name: Prefix of warnings, such as a run's folder.

    Example:
        >>> from calibrant.losses import MetaFocalLoss
        >>> head = nn.Linear(8, 3)
        >>> regulariser = MetaRegulariser(MetaFocalLoss(), head)
        >>> features, labels = torch.randn(32, 8), torch.randint(3, (32,))
        >>> regulariser.learn(features[:16], labels[:16], features[16:], labels[16:], rate=0.1)
        >>> loss = regulariser.loss(features[:16], head(features[:16]), labels[:16])
    """

    def __init__(self, loss: MetaLoss, head: nn.Linear, *, seed: int = 0, name: str | None = None) -> None:
        if not isinstance(loss, MetaLoss):
            raise InputError(f"loss must be meta-learned, such as MetaFocalLoss(); got {type(loss).__name__}.")
        if not isinstance(head, nn.Linear):
            raise InputError(
                f"head must be the network's last layer, an nn.Linear; got {type(head).__name__}. The network needs "
                "features(inputs), (n, d), and a head that maps them to logits."
            )
        self._head, self._name = head, name
        self._warned_of: set[str] = set()
        loss.build(head.in_features, head.out_features, seed=seed)
        self.meta_loss = loss.to(head.weight.device, to_working_precision(head.weight).dtype)
        self._phi = list(self.meta_loss.parameters())
        on_gpu = head.weight.is_cuda
        # A number if constant; a tensor if it follows the network's, so that a captured step sees it change.
        self._rate: float | Tensor = loss.learning_rate
        if loss.schedule == "network":
            self._rate = torch.tensor(loss.learning_rate, device=head.weight.device)
        self.optimiser = torch.optim.Adam(self._phi, lr=self._rate, capturable=on_gpu)
        for parameter in self._phi:
            # All zero from the start: the first step is then like every other, and can be captured.
            self.optimiser.state[parameter] = {
                "step": torch.zeros((), device=parameter.device if on_gpu else None),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def initialise(self, features: Tensor) -> None:
        """Initialise φ given the features (n, d) of some samples.

        :meth:`learn` and :meth:`loss` do so with the first samples they see, if neither this nor
        :meth:`load_state_dict` was called.
        """
        self.meta_loss.initialise(self._converted(features))
        self.meta_loss.is_initialised = True

    def describe(self, features: Tensor) -> dict[str, float]:
        """Return numbers that summarise φ on the features (n, d) of some samples; warn once of a γ above its limit."""
        self._check_parameters(features)
        return self.meta_loss.describe(self._converted(features))

    def state_dict(self) -> dict[str, Tensor]:
        """Return φ and the state of its optimiser: the tensors themselves, not copies, as in torch."""
        phi = {f"loss.{name}": tensor for name, tensor in self.meta_loss.state_dict().items()}
        return phi | {f"optimiser.{name}": tensor for name, tensor in self.optimiser_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a :meth:`state_dict` of the same loss and head, in the same memory."""
        mine = {name: tensor.shape for name, tensor in self.state_dict().items()}
        if mine != {name: getattr(tensor, "shape", None) for name, tensor in state.items()}:
            raise InputError("the state must be one of this loss and head; its names or shapes are not.")
        self.meta_loss.load_state_dict(tensors_under("loss.", state))
        for name, tensor in self.optimiser_state():
            tensor.copy_(state[f"optimiser.{name}"])

    def optimiser_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the state of the optimiser of φ, by name."""
        for name, parameter in self.meta_loss.named_parameters():
            for key, tensor in self.optimiser.state[parameter].items():
                yield f"{key}.{name}", tensor

    def learn(
        self, features: Tensor, labels: Tensor, held_out_features: Tensor, held_out_labels: Tensor, *,
        rate: float | Tensor, share: float | Tensor = 1.0,
    ) -> None:  # fmt: skip
        """Update φ by one step.

        Args:
            features: Features of the training batch, (n, d).
            labels: Shape (n,).
            held_out_features: Features of held-out samples, (m, d); see :func:`features_in_evaluation`.
            held_out_labels: Shape (m,).
            rate: Learning rate of the step that is looked ahead to; a tensor is not checked.
            share: Current learning rate of the network as a share of its highest; φ's rate is multiplied by it if it
                follows the network's schedule.

        Warns:
            CalibrantWarning: On the CPU, once each: if a held-out batch is of one class, φ's gradient is not finite,
                or γ is above its limit. On a GPU, where the check would wait, :meth:`describe` warns of the last.
        """
        self._check(features, held_out_features, held_out_labels, rate)
        if not self.meta_loss.is_initialised:
            self.initialise(features)
        objective = self.look_ahead(features, labels, held_out_features, held_out_labels, rate=rate)
        gradients = torch.autograd.grad(objective, self._phi)
        if features.device.type == "cpu":
            self._check_parameters(features, gradients)
        for parameter, gradient in zip(self._phi, gradients, strict=True):
            # In a deep network's first steps, features in evaluation mode can overflow.
            parameter.grad = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if isinstance(self._rate, Tensor):
            self._rate.copy_(torch.as_tensor(share * self.meta_loss.learning_rate))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.enable_grad()
    def look_ahead(
        self, features: Tensor, labels: Tensor, held_out_features: Tensor, held_out_labels: Tensor, *,
        rate: float | Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the objective of :meth:`learn` on held-out samples after a step of the last layer, with a gradient."""
        self._check_sizes(features, held_out_features)
        parts = [part for part in (self._head.weight, self._head.bias) if part is not None]
        # Copies, so that no gradient reaches the layer itself or those before it.
        layer = [to_working_precision(part).detach().clone().requires_grad_() for part in parts]
        with full_precision(parts[0]):
            inputs = features.detach().to(layer[0].dtype)
            loss = self.meta_loss(inputs, F.linear(inputs, *layer), labels, layer[0])
            slopes = torch.autograd.grad(loss, layer, create_graph=True)
            stepped = [part - rate * slope for part, slope in zip(layer, slopes, strict=True)]
            logits = F.linear(held_out_features.detach().to(layer[0].dtype), *stepped)
            return self.meta_loss.held_out(logits, held_out_labels)

    def loss(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of the network on a training batch; φ gets no gradient from it.

        Args:
            features: Shape (n, d); their gradient is that through the logits alone.
            logits: Shape (n, k), the output of the head.
            labels: Shape (n,).
        """
        if not self.meta_loss.is_initialised:
            self.initialise(features)
        constants = {name: parameter.detach() for name, parameter in self.meta_loss.named_parameters()}
        return functional_call(self.meta_loss, constants, (features, logits, labels, self._head.weight))

    def _converted(self, features: Tensor) -> Tensor:
        return features.detach().to(self._phi[0].dtype)

    def _check_sizes(self, features: Tensor, held_out: Tensor) -> None:
        self.meta_loss.check_built(features)
        self.meta_loss.check_built(held_out, "held_out_features")

    def _check(self, features: Tensor, held_out: Tensor, labels: Tensor, rate: float | Tensor) -> None:
        self._check_sizes(features, held_out)
        if len(held_out) < 2:
            raise InputError(f"a held-out batch must have two samples or more; got {len(held_out)}.")
        if not isinstance(rate, Tensor):
            check_real_number(rate, "rate", least=0)
        if features.device.type != "cpu":  # the checks below would wait for a GPU, and break a captured graph
            return
        for values, name in ((features, "features"), (held_out, "held_out_features")):
            if not bool(values.isfinite().all()):
                raise FitError(f"{name} must be finite; some are not. Lower the learning rate, or clip the gradient.")
        if "class" not in self._warned_of and bool((labels == labels[0]).all()):
            only = f"a held-out batch of {len(labels)} samples has class {int(labels[0])} only"
            self._warn("class", f"{only}: shuffle the samples, or take more at a time (a larger batch_size).")

    def _check_parameters(self, features: Tensor, gradients: tuple[Tensor, ...] = ()) -> None:
        """Warn of φ and its gradient, once each."""
        if "parameters" not in self._warned_of and (warning := self.meta_loss.warning(self._converted(features))):
            self._warn("parameters", warning)
        if "gradient" not in self._warned_of and not all(bool(gradient.isfinite().all()) for gradient in gradients):
            self._warn("gradient", "a gradient of the meta-learned loss is not finite; 0 is used in its place.")

    def _warn(self, of: str, message: str) -> None:
        self._warned_of.add(of)
        warn(f"{self._name}: {message}" if self._name else message)


@final
class MetaForward:
    """Forward pass of a training batch with a meta-learned loss, which it updates first.

    A step finds the samples that tune the loss in ``held_out``. The loss is initialised on the training samples
    ``first``, (n,); ``name`` is the prefix of warnings.
    """

    def __init__(
        self, loss: MetaLoss, model: nn.Module, data: DeviceData, held_out: StepInputs, recipe: Recipe, first: Tensor,
        *, name: str | None,
    ) -> None:  # fmt: skip
        assert data.meta is not None, "check_meta ensures it"
        self._model, self._network = model, with_features(model)
        self._held_out, self._held_out_labels = held_out, data.meta.labels
        self._recipe, self._device_type = recipe, data.device.type
        self.regulariser = MetaRegulariser(loss, self._network.head, seed=recipe.seed, name=name)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(recipe.seed)  # dropout must not draw from the caller's random state
            self.regulariser.initialise(_features_in_training(model, data.training.inputs.plain(first)))

    def __call__(self, inputs: Tensor, labels: Tensor, meta_samples: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Update the loss's parameters on the held-out ``meta_samples``, (m,); return the network's logits and loss."""
        with self._recipe.autocast(self._device_type):
            features = self._network.features(inputs)
            logits = self._network.head(features).float()
            held_out = features_in_evaluation(self._model, self._held_out.plain(meta_samples))
        held_out_labels = self._held_out_labels.index_select(0, meta_samples)
        share = rate / self._recipe.learning_rate
        with suppress(FitError):  # the epoch's end reports a network that has diverged, and others go on
            self.regulariser.learn(features, labels, held_out, held_out_labels, rate=rate, share=share)
        return logits, self.regulariser.loss(features, logits, labels)

    def describe(self, samples: StoredSamples) -> dict[str, float]:
        """Summarise φ on samples that it was not tuned on; see :meth:`MetaRegulariser.describe`."""
        return self.regulariser.describe(features_of(self._model, samples))
