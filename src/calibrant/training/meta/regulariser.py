"""The parameters of a loss moved so that, after the network's next step, held-out rows come out better."""

import warnings
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812  # torch's own name for it

from calibrant.errors import CalibrantWarning, InputError
from calibrant.losses import MetaLoss
from calibrant.numerics.precision import working

__all__ = ["MetaRegulariser"]


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
        seed: Of the first parameters.

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

    def __init__(self, loss: MetaLoss, head: nn.Linear, *, seed: int = 0) -> None:
        if not isinstance(loss, MetaLoss):
            raise InputError(f"loss must be one that is learned, such as MetaFocalLoss(); got {type(loss).__name__}.")
        if not isinstance(head, nn.Linear):
            raise InputError(
                f"head must be the network's last layer, an nn.Linear; got {type(head).__name__}. A network is fit for "
                "this if it has features(inputs), (n, d), and a head that makes logits of them."
            )
        self._head, self._is_settled, self._has_warned = head, False, False
        loss.build(head.in_features, head.out_features, seed=seed)
        self.meta_loss = loss.to(head.weight.device, working(head.weight).dtype)
        self._phi = list(self.meta_loss.parameters())
        on_gpu = head.weight.is_cuda
        self.optimiser = torch.optim.Adam(self._phi, lr=loss.learning_rate, capturable=on_gpu)
        for each in self._phi:
            # From the start, all zero: the first step is then like every other, and can be captured.
            self.optimiser.state[each] = {
                "step": torch.zeros((), device=each.device if on_gpu else None),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }

    def settle(self, features: Tensor) -> None:
        """Bring φ to where training begins, as seen on rows' features (n, d); :meth:`learn` does, if nobody did."""
        self.meta_loss.settle(features.detach().to(self._phi[0].dtype))
        self._is_settled = True

    def learn(
        self,
        features: Tensor,
        labels: Tensor,
        held_out_features: Tensor,
        held_out_labels: Tensor,
        *,
        rate: float | Tensor,
    ) -> None:
        """Move φ one step.

        Args:
            features: Of the training batch, (n, d).
            labels: Shape (n,).
            held_out_features: Of rows that train nothing else, (m, d); see :func:`features_in_evaluation`.
            held_out_labels: Shape (m,).
            rate: The learning rate of the step that is looked ahead to.

        Raises:
            InputError: If there are fewer than two held-out rows, or features on the CPU are not finite.

        Warns:
            CalibrantWarning: If a held-out batch on the CPU is of one class; once.
        """
        self._check(features, held_out_features, held_out_labels)
        if not self._is_settled:
            self.settle(features)
        gradients = torch.autograd.grad(
            self.look_ahead(features, labels, held_out_features, held_out_labels, rate=rate), self._phi
        )
        for each, gradient in zip(self._phi, gradients, strict=True):
            # In a deep network's first steps, features in evaluation mode can be beyond any number.
            each.grad = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
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
        """
        standing = {name: each.detach() for name, each in self.meta_loss.named_parameters()}
        found: Tensor = functional_call(self.meta_loss, standing, (features, logits, labels, self._head.weight))
        return found

    def _check(self, features: Tensor, held_out: Tensor, labels: Tensor) -> None:
        if len(held_out) < 2:
            raise InputError(f"a held-out batch must have two rows or more to judge by; got {len(held_out)}.")
        if features.device.type != "cpu":  # a look would wait for a GPU, and break a captured graph
            return
        for rows, name in ((features, "features"), (held_out, "held_out_features")):
            if not bool(rows.isfinite().all()):
                raise InputError(f"{name} must be finite; some are not. Lower the learning rate, or clip the gradient.")
        if not self._has_warned and bool((labels == labels[0]).all()):
            self._has_warned = True
            warnings.warn(
                f"a held-out batch is all of class {int(labels[0])}, and says nothing of the others: shuffle its rows.",
                CalibrantWarning,
                stacklevel=3,
            )
