"""Meta-regularisation: before each step of the network, a loss's parameters φ move to lower a held-out objective."""

import warnings
from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from calibrant.checks import check_real_number
from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import evaluating, with_features
from calibrant.losses import MetaLoss
from calibrant.numerics.softmax import working
from calibrant.training.data import DeviceData, StoredExamples
from calibrant.training.device import Multiplying, Peers
from calibrant.training.recipe import Recipe
from calibrant.training.record import features_of

__all__ = [
    "LossTuning",
    "MetaForward",
    "MetaRegulariser",
    "check_meta",
    "features_in_evaluation",
    "features_in_training",
]


def check_meta(loss: MetaLoss, data: DeviceData, recipe: Recipe, peers: Peers) -> None:
    """Loss, data and recipe go together.

    Raises:
        InputError: If they do not.
    """
    if data.meta is None:
        raise InputError(
            f"{loss.name} must have rows of its own to be tuned on, which neither train nor judge the network; there "
            "are none. Divide the data by '8:1:1'."
        )
    if len(data.meta) < 2 or bool((data.meta.labels == data.meta.labels[0]).all()):
        raise InputError(
            f"{loss.name} must be tuned on rows of several classes; got {len(data.meta)} of "
            f"{len(data.meta.labels.unique())}. Set more rows apart."
        )
    if recipe.batch_size < 2:
        raise InputError(
            f"batch_size must be at least 2 with {loss.name}, which as many held-out rows judge in each step; got "
            f"{recipe.batch_size}."
        )
    if recipe.mixup:
        raise InputError(f"mixup must be 0 with {loss.name}, whose features are those of single rows.")
    if peers.count > 1:
        raise InputError(f"{loss.name} must be trained by one process; there are {peers.count}.")


def features_in_evaluation(model: nn.Module, inputs: Tensor) -> Tensor:
    """Features (n, d) without a gradient, in evaluation mode: running statistics neither move nor see these rows.

    Args:
        model: With ``features`` and ``head``; each of its modules comes back in the mode it was in.
        inputs: As the network takes them.

    Raises:
        InputError: If the network has no features.
    """
    network = with_features(model)
    with evaluating(model), torch.no_grad():
        return network.features(inputs)


@torch.no_grad()
def features_in_training(model: nn.Module, inputs: Tensor) -> Tensor:
    """Features (n, d) as the next training step would see them, with the batch's own statistics; none are kept.

    Before the first step a network's running statistics are anything but its batches', and a deep one in evaluation
    mode gives features of any size.

    Args:
        model: In training mode; comes back as it was.
        inputs: As the network takes them.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        return with_features(model).features(inputs)
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


@final
class MetaRegulariser:
    """Owns the learned parameters φ of a loss, and the gradient by which they move.

    That gradient looks one step ahead: the network's last layer takes a plain gradient step on the training rows, which
    depends on φ; held-out rows judge the layer that comes out; and φ goes down the slope of their judgement. Everything
    before the last layer stands still in this, and gets no gradient from held-out rows.

    The look ahead leaves momentum and weight decay out, as meta-calibration does, so the step that is then taken is
    not quite the one that was judged.

    Args:
        loss: Its parameters are made here, anew.
        head: The network's last layer.
        seed: Random seed of the initial parameters.
        name: What warnings call it, such as a run's folder.

    Raises:
        InputError: If the loss or the head is not of its kind.

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
            raise InputError(f"loss must be one that is learned, such as MetaFocalLoss(); got {type(loss).__name__}.")
        if not isinstance(head, nn.Linear):
            raise InputError(
                f"head must be the network's last layer, an nn.Linear; got {type(head).__name__}. A network is fit for "
                "this if it has features(inputs), (n, d), and a head that makes logits of them."
            )
        self._head, self._name = head, name
        self._warned_of: set[str] = set()
        loss.build(head.in_features, head.out_features, seed=seed)
        self.meta_loss = loss.to(head.weight.device, working(head.weight).dtype)
        self._phi = list(self.meta_loss.parameters())
        on_gpu = head.weight.is_cuda
        # A number where it stays; a tensor where it follows the network's, so that a captured step sees it change.
        self._rate = (
            None if loss.schedule == "constant" else torch.tensor(loss.learning_rate, device=head.weight.device)
        )
        lr: float | Tensor = loss.learning_rate if self._rate is None else self._rate
        self.optimiser = torch.optim.Adam(self._phi, lr=lr, capturable=on_gpu)
        for each in self._phi:
            # From the start, all zero: the first step is then like every other, and can be captured.
            self.optimiser.state[each] = {
                "step": torch.zeros((), device=each.device if on_gpu else None),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }

    def initialise(self, features: Tensor) -> None:
        """Bring φ to where training begins, as seen on rows' features (n, d).

        :meth:`learn` and :meth:`loss` do with the first rows they see, if neither this nor :meth:`load_state_dict` was
        called.

        Raises:
            InputError: If the features are not the head's, or not finite.
        """
        self.meta_loss.initialise(self._known(features))
        self.meta_loss.is_initialised = True

    def describe(self, features: Tensor) -> dict[str, float]:
        """What φ has come to, as seen on rows' features (n, d): of γ-Net, how γ lies, and the share at its limit.

        Warns:
            CalibrantWarning: If γ is above its limit; once.
        """
        self._look_at(features)
        return self.meta_loss.describe(self._known(features))

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that learning depends on, beside the options: φ, and what Adam remembers of it.

        These are the very tensors, not copies, as torch has it.
        """
        phi = {f"loss.{name}": tensor for name, tensor in self.meta_loss.state_dict().items()}
        return phi | {f"optimiser.{name}": tensor for name, tensor in self.optimiser_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from where :meth:`state_dict` was called, in the same memory.

        Raises:
            InputError: If the state is not one of this loss and head.
        """
        mine, theirs = (
            {name: getattr(each, "shape", None) for name, each in one.items()} for one in (self.state_dict(), state)
        )
        if mine != theirs:
            raise InputError("the state must be one of this loss and head; its names or shapes are not.")
        self.meta_loss.load_state_dict(
            {name.removeprefix("loss."): each for name, each in state.items() if name.startswith("loss.")}
        )
        for name, tensor in self.optimiser_state():
            tensor.copy_(state[f"optimiser.{name}"])

    def optimiser_state(self) -> Iterator[tuple[str, Tensor]]:
        """What Adam remembers of φ, by name."""
        for name, each in self.meta_loss.named_parameters():
            for what, tensor in self.optimiser.state[each].items():
                yield f"{what}.{name}", tensor

    def learn(
        self,
        features: Tensor,
        labels: Tensor,
        held_out_features: Tensor,
        held_out_labels: Tensor,
        *,
        rate: float | Tensor,
        share: float | Tensor = 1.0,
    ) -> None:
        """Move φ one step.

        Args:
            features: Features of the training batch, (n, d).
            labels: Shape (n,).
            held_out_features: Features of held-out samples, (m, d); see :func:`features_in_evaluation`.
            held_out_labels: Shape (m,).
            rate: The learning rate of the step that is looked ahead to; a tensor's number is not looked at.
            share: Current learning rate of the network as a share of its highest; φ's rate is multiplied by it if it
                follows the network's schedule.

        Raises:
            InputError: If features are not the head's, there are fewer than two held-out rows, the rate is below 0 or
                not finite, or features on the CPU are not finite.

        Warns:
            CalibrantWarning: On the CPU, once each: if a held-out batch is of one class, φ's gradient is not finite,
                or γ is above its limit. On a GPU, where a look would wait, :meth:`describe` tells the last.
        """
        self._check(features, held_out_features, held_out_labels, rate)
        if not self.meta_loss.is_initialised:
            self.initialise(features)
        gradients = torch.autograd.grad(
            self.look_ahead(features, labels, held_out_features, held_out_labels, rate=rate), self._phi
        )
        if features.device.type == "cpu":
            self._look_at(features, gradients)
        for each, gradient in zip(self._phi, gradients, strict=True):
            # In a deep network's first steps, features in evaluation mode can be beyond any number.
            each.grad = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if self._rate is not None:
            self._rate.copy_(torch.as_tensor(share * self.meta_loss.learning_rate))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    @torch.enable_grad()
    def look_ahead(
        self,
        features: Tensor,
        labels: Tensor,
        held_out_features: Tensor,
        held_out_labels: Tensor,
        *,
        rate: float | Tensor,
    ) -> Tensor:
        """The objective on held-out rows after a step of the last layer, a single number that φ has a slope in.

        Args:
            features: As for :meth:`learn`.
            labels: As there.
            held_out_features: As there.
            held_out_labels: As there.
            rate: As there.
        """
        self._check_sizes(features, held_out_features)
        head = self._head
        # Copies, so that nothing of this reaches the layer itself or what lies before it.
        layer = [
            working(part).detach().clone().requires_grad_() for part in (head.weight, head.bias) if part is not None
        ]
        with torch.autocast(head.weight.device.type, enabled=False):
            known = features.detach().to(layer[0].dtype)
            loss = self.meta_loss(known, F.linear(known, *layer), labels, layer[0])
            slopes = torch.autograd.grad(loss, layer, create_graph=True)
            stepped = [part - rate * slope for part, slope in zip(layer, slopes, strict=True)]
            judged = F.linear(held_out_features.detach().to(layer[0].dtype), *stepped)
            return self.meta_loss.held_out(judged, held_out_labels)

    def loss(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """What the network minimises on a training batch; φ has no gradient from it.

        Args:
            features: Shape (n, d); without a gradient here, but for those that come by the logits.
            logits: Shape (n, k), the head's answer to them.
            labels: Shape (n,).

        Raises:
            InputError: If features are not the head's, or not of the logits' rows.
        """
        if not self.meta_loss.is_initialised:
            self.initialise(features)
        standing = {name: each.detach() for name, each in self.meta_loss.named_parameters()}
        found: Tensor = functional_call(self.meta_loss, standing, (features, logits, labels, self._head.weight))
        return found

    def _known(self, features: Tensor) -> Tensor:
        return features.detach().to(self._phi[0].dtype)

    def _check_sizes(self, features: Tensor, held_out: Tensor) -> None:
        self.meta_loss.check_built(features)
        self.meta_loss.check_built(held_out, "held_out_features")

    def _check(self, features: Tensor, held_out: Tensor, labels: Tensor, rate: float | Tensor) -> None:
        self._check_sizes(features, held_out)
        if len(held_out) < 2:
            raise InputError(f"a held-out batch must have two rows or more to judge by; got {len(held_out)}.")
        if not isinstance(rate, Tensor):
            check_real_number(rate, "rate", least=0)
        if features.device.type != "cpu":  # a look would wait for a GPU, and break a captured graph
            return
        for rows, name in ((features, "features"), (held_out, "held_out_features")):
            if not bool(rows.isfinite().all()):
                raise InputError(f"{name} must be finite; some are not. Lower the learning rate, or clip the gradient.")
        if "class" not in self._warned_of and bool((labels == labels[0]).all()):
            self._warn(
                "class",
                f"a held-out batch of {len(labels)} rows is all of class {int(labels[0])}, and says nothing of the "
                "others: shuffle the rows, or take more at a time (a larger batch_size).",
            )

    def _look_at(self, features: Tensor, gradients: tuple[Tensor, ...] = ()) -> None:
        """Warn of what has come of φ, and of its gradient; once it was seen, nobody looks again."""
        if "parameters" not in self._warned_of and (warning := self.meta_loss.warning(self._known(features))):
            self._warn("parameters", warning)
        if "gradient" not in self._warned_of and not all(bool(each.isfinite().all()) for each in gradients):
            self._warn("gradient", "a gradient of the learned loss is not finite; where it is not, 0 is taken.")

    def _warn(self, of: str, words: str) -> None:
        self._warned_of.add(of)
        warnings.warn(f"{self._name}: {words}" if self._name else words, CalibrantWarning, stacklevel=4)


@final
class LossTuning:
    """The learned loss of one network in training.

    Args:
        loss: On the network's device.
        model: In training mode.
        data: With rows to tune on.
        recipe: Training recipe.
        first: The training rows that the loss is initialised on, (n,).
        name: What warnings call it.

    Raises:
        InputError: If the network shows no features.
    """

    def __init__(
        self, loss: MetaLoss, model: nn.Module, data: DeviceData, recipe: Recipe, first: Tensor, *, name: str | None
    ) -> None:
        assert data.meta is not None, "check_meta sees to it"
        self._model = model
        self._regulariser = MetaRegulariser(loss, with_features(model).head, seed=recipe.seed, name=name)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            self._regulariser.initialise(features_in_training(model, data.training.inputs.plain(first)))
        self.forward = MetaForward(
            model, self._regulariser, data.meta, Multiplying(recipe, data.device.type), recipe.learning_rate
        )

    def describe(self, held_out: StoredExamples) -> dict[str, float]:
        """What the loss has come to, as seen on rows that had no part in it.

        Warns:
            CalibrantWarning: As :meth:`MetaRegulariser.describe`.
        """
        return self._regulariser.describe(features_of(self._model, held_out))

    def optimiser_state(self) -> Iterator[tuple[str, Tensor]]:
        """What the loss's own optimiser remembers, by name."""
        return self._regulariser.optimiser_state()


@final
class MetaForward:
    """Logits and loss of a training batch.

    Args:
        model: With ``features`` and ``head``.
        regulariser: Meta-regulariser of the last layer.
        held_out: The rows that judge, on the network's device.
        multiplying: In what precision the network runs.
        highest_rate: Highest learning rate of the network.
    """

    def __init__(
        self,
        model: nn.Module,
        regulariser: MetaRegulariser,
        held_out: StoredExamples,
        multiplying: Multiplying,
        highest_rate: float,
    ) -> None:
        self._highest_rate = highest_rate
        self._model, self._network = model, with_features(model)
        self._regulariser, self._held_out, self._multiplying = regulariser, held_out, multiplying

    def __call__(self, inputs: Tensor, labels: Tensor, judges: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Move the loss's parameters, then say the network's logits and loss.

        Args:
            inputs: Inputs of the training batch.
            labels: Shape (n,).
            judges: Which held-out rows judge, (m,).
            rate: Learning rate of the step that follows.
        """
        with self._multiplying():
            features = self._network.features(inputs)
            logits = self._network.head(features).float()
            seen = features_in_evaluation(self._model, self._held_out.inputs.plain(judges))
        held_out_labels = self._held_out.labels.index_select(0, judges)
        share = rate / self._highest_rate
        self._regulariser.learn(features, labels, seen, held_out_labels, rate=rate, share=share)
        return logits, self._regulariser.loss(features, logits, labels)
