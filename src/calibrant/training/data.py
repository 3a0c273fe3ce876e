"""Training data on the device, and the plan of every epoch: order, augmentation and mixup."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_positive
from calibrant.datasets.dataset import Augmentation, Dataset, PixelScale, Samples, Split
from calibrant.errors import InputError
from calibrant.losses import Loss
from calibrant.paper import Paper

__all__ = [
    "PADDING",
    "DeviceData",
    "EpochPlan",
    "ImageStore",
    "InputStore",
    "MixedBatch",
    "Mixup",
    "PlainStore",
    "Standardise",
    "StoredExamples",
    "TrainingData",
    "generator_of",
    "plan_epoch",
    "store_of",
]

PADDING = 4  # pixels by which a crop may be off, to each side


@final
@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Of each row of each step: which example it is, and what is done to it. Also the buffers that steps read."""

    rows: Tensor  # (steps, b) int64
    shifts: Tensor  # (steps, b, 2) int64, down and right, 0 to twice the padding
    mirrored: Tensor  # (steps, b) bool
    partners: Tensor  # (steps, b) int64, a permutation of each step's places
    shares: Tensor  # (steps,) float32, of the row itself where it is mixed with its partner
    judges: Tensor  # (steps, m) int64, which held-out rows judge a loss that is learned; m is 0 if there are none

    def to(self, device: torch.device) -> "EpochPlan":
        return EpochPlan(*(field.to(device, non_blocking=True) for field in self.fields()))

    def fields(self) -> tuple[Tensor, ...]:
        return self.rows, self.shifts, self.mirrored, self.partners, self.shares, self.judges

    def copy_(self, other: "EpochPlan") -> None:
        """Take over another epoch's plan, in the place that captured steps read."""
        for mine, theirs in zip(self.fields(), other.fields(), strict=True):
            mine.copy_(theirs, non_blocking=True)


def generator_of(seed: int, epoch: int) -> torch.Generator:
    """The one source of chance in an epoch: neighbours in seed or epoch have nothing in common."""
    digest = hashlib.sha256(f"calibrant epoch {seed}/{epoch}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))


def plan_epoch(n: int, batch_size: int, *, seed: int, epoch: int, mixup: float = 0.0, n_judges: int = 0) -> EpochPlan:
    """Draw an epoch.

    Args:
        n: Training rows, at least ``batch_size``; what is left over after the last full step is not used.
        batch_size: Rows a step.
        seed: Random seed of the run.
        epoch: Counted from 0.
        mixup: The α of the Beta distribution that shares are drawn from; 0 leaves every row whole.
        n_judges: Held-out rows that a batch of judges is drawn from in each step, as large as the training batch if
            there are as many; 0 draws none.
    """
    chance = generator_of(seed, epoch)
    steps = n // batch_size
    shape = (steps, batch_size)
    rows = torch.randperm(n, generator=chance)[: steps * batch_size].view(shape)
    shifts = torch.randint(2 * PADDING + 1, (*shape, 2), generator=chance)
    mirrored = torch.rand(shape, generator=chance) < 0.5
    partners = torch.rand(shape, generator=chance).argsort(dim=1)
    shares = mixing_shares(steps, mixup, chance)
    return EpochPlan(rows, shifts, mirrored, partners, shares, _judges(n_judges, batch_size, steps, chance))


def _judges(n: int, batch_size: int, steps: int, chance: torch.Generator) -> Tensor:
    """As many rows a step as there are in a batch, or all; each as often as any other, in turns, (steps, m)."""
    size = min(batch_size, n)
    rounds = -(-steps * size // n) if n else 0
    order = [torch.randperm(n, generator=chance) for _ in range(rounds)] or [torch.zeros(0, dtype=torch.int64)]
    return torch.cat(order)[: steps * size].view(steps, size)


def mixing_shares(n: int, alpha: float, chance: torch.Generator) -> Tensor:
    """Draws from Beta(α, α), (n,) float32; all 1 where α is 0."""
    if alpha == 0:
        return torch.ones(n)
    both = torch._standard_gamma(torch.full((n, 2), alpha, dtype=torch.float64), generator=chance)
    # For a tiny α both draws can be too small to be told apart, which stands for all of one or all of the other. Torch
    # then gives the smallest number there is, not 0.
    return torch.where(both.sum(1) > 1e-300, both[:, 0] / both.sum(1), 1.0).float()


@final
class Standardise(nn.Module):
    """Stored pixels as network inputs: ``(pixel / peak - mean) / std`` for each channel, in float32."""

    factor: Tensor
    offset: Tensor

    def __init__(self, scale: PixelScale) -> None:
        super().__init__()
        std = torch.tensor(scale.std, dtype=torch.float64)
        self.register_buffer("factor", (1 / (scale.peak * std)).float()[:, None, None])
        self.register_buffer("offset", (-torch.tensor(scale.mean, dtype=torch.float64) / std).float()[:, None, None])

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.addcmul(self.offset, pixels.float(), self.factor)


class InputStore(Protocol):
    """Gives a batch of network inputs by the rows' numbers."""

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor: ...

    def plain(self, rows: Tensor) -> Tensor: ...


@final
class PlainStore:
    """Inputs that are used as they are: texts, or numbers that are scaled already."""

    def __init__(self, inputs: Tensor) -> None:
        self._inputs = inputs

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002  # nothing to move
        return self._inputs.index_select(0, rows)

    def plain(self, rows: Tensor) -> Tensor:
        return self._inputs.index_select(0, rows)


@final
class ImageStore:
    """Images with a black border, as the papers' code has it, pixel by pixel with the channels last.

    A crop is one gather of whole pixels, and what it gives is already laid out as fast convolutions want it.
    """

    def __init__(self, images: Tensor, standardise: Standardise, augmentation: Augmentation) -> None:
        self._standardise = standardise
        self._moves, self._mirrors = augmentation != "none", augmentation == "crop-flip"
        self._border = PADDING if self._moves else 0
        n, channels, self._height, self._width = images.shape
        border = self._border
        self._wide = self._width + 2 * border
        self._area = (self._height + 2 * border) * self._wide
        pixels = images.new_zeros(n, self._height + 2 * border, self._wide, channels)
        pixels[:, border : border + self._height, border : border + self._width] = images.permute(0, 2, 3, 1)
        self._pixels = pixels.view(-1, channels)
        self._down = torch.arange(self._height, device=images.device)
        self._right = torch.arange(self._width, device=images.device)

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
        if not self._moves:
            return self.plain(rows)
        right = self._right
        if self._mirrors:
            right = torch.where(mirrored[:, None], self._width - 1 - right, right)
        return self._gather(rows, self._down + shifts[:, :1], right + shifts[:, 1:])

    def plain(self, rows: Tensor) -> Tensor:
        return self._gather(rows, (self._down + self._border)[None], (self._right + self._border)[None])

    def _gather(self, rows: Tensor, down: Tensor, right: Tensor) -> Tensor:
        """Pixels at the given places of the given images, standardised, (n, c, h, w)."""
        places = (rows * self._area)[:, None, None] + (down * self._wide)[:, :, None] + right[:, None, :]
        shape = (len(rows), self._height, self._width, -1)
        pixels = self._pixels.index_select(0, places.view(-1)).view(shape).permute(0, 3, 1, 2)
        return self._standardise(pixels)


def store_of(inputs: Tensor, scale: PixelScale | None, augmentation: Augmentation, device: torch.device) -> InputStore:
    """The store that suits the inputs: images are those with a pixel scale."""
    inputs = inputs.to(device)
    return PlainStore(inputs) if scale is None else ImageStore(inputs, Standardise(scale).to(device), augmentation)


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Rows to train on, and held-out rows by what they are for."""

    training: Samples
    held_out: Mapping[str, Samples]  # "calibration", "test"
    class_names: tuple[str, ...]
    pixel_scale: PixelScale | None = None
    augmentation: Augmentation = "none"  # the usual one
    meta: Samples | None = None  # rows that tune a loss which is learned

    def __post_init__(self) -> None:
        if self.pixel_scale is None and self.augmentation != "none":
            raise InputError(
                f"augmentation must be 'none' for inputs without a pixel scale; got {self.augmentation!r}."
            )

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> "TrainingData":
        """A data set divided by one of the named protocols."""
        held_out = {"calibration": split.calibration, "test": split.test}
        return cls(split.training, held_out, dataset.class_names, dataset.pixel_scale, dataset.augmentation, split.meta)

    def on(self, device: torch.device, augmentation: Augmentation | None = None) -> "DeviceData":
        """Move everything to a device, once for all networks that train there."""
        chosen = self.augmentation if augmentation is None else augmentation
        if self.pixel_scale is None and chosen != "none":
            raise InputError(f"augmentation must be 'none' for inputs that are no images; got {chosen!r}.")

        def stored(examples: Samples, moved: Augmentation) -> StoredExamples:
            store = store_of(examples.inputs, self.pixel_scale, moved, device)
            return StoredExamples(store, examples.labels.to(device))

        held_out = {name: stored(part, "none") for name, part in self.held_out.items()}
        meta = None if self.meta is None else stored(self.meta, "none")
        return DeviceData(stored(self.training, chosen), held_out, device, meta)


@final
@dataclass(frozen=True, eq=False)
class StoredExamples:
    """Inputs and labels on a device."""

    inputs: InputStore
    labels: Tensor  # (n,)

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, eq=False)
class DeviceData:
    """Training and held-out rows on one device."""

    training: StoredExamples
    held_out: Mapping[str, StoredExamples]
    device: torch.device
    meta: StoredExamples | None = None


@final
@dataclass(frozen=True, eq=False)
class MixedBatch:
    """Blended inputs, and the two labels of each with their shares."""

    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,)
    partner_labels: Tensor  # (n,)
    share: Tensor  # (), of the first label

    @classmethod
    def of(cls, inputs: Tensor, labels: Tensor, partners: Tensor, share: Tensor) -> "MixedBatch":
        """Blend each row with its partner.

        Args:
            inputs: Shape (n, ...), floating.
            labels: Shape (n,).
            partners: The place of each row's partner, (n,).
            share: Weight of the first sample of each pair; a single number.
        """
        return cls(torch.lerp(inputs[partners], inputs, share.to(inputs.dtype)), labels, labels[partners], share)

    def loss(self, loss: Loss, logits: Tensor) -> Tensor:
        """The same blend of two losses; works with any loss, as none sees a soft label."""
        return self.share * loss(logits, self.labels) + (1 - self.share) * loss(logits, self.partner_labels)


@final
@dataclass(frozen=True)
class Mixup:
    """Blend every row of a batch with another by one share drawn from Beta(α, α). At test time, do nothing.

    It raises accuracy and tames overconfidence. The confidence of an unmixed input is then often too low, and it tells
    right from wrong less well: look at AUROC beside the calibration error.

    Formula: x̃ = λ x + (1 - λ) x_π; loss = λ L(z̃, y) + (1 - λ) L(z̃, y_π)

    Args:
        alpha: 0.2 leaves most rows nearly whole; 1 draws shares evenly.

    Example:
        >>> from calibrant.losses import FocalLoss
        >>> inputs, labels = torch.rand(8, 3, 4, 4), torch.arange(8) % 5
        >>> mixed = Mixup(alpha=0.2)(inputs, labels, generator=torch.Generator().manual_seed(0))
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5))
        >>> mixed.loss(FocalLoss(), network(mixed.inputs)).ndim
        0
    """

    name: ClassVar[str] = "mixup"
    paper: ClassVar[Paper] = Paper(
        "Zhang et al.", 2018, "mixup: Beyond Empirical Risk Minimization", "arXiv:1710.09412"
    )

    alpha: float = 0.2

    def __post_init__(self) -> None:
        check_positive(self.alpha, "alpha")

    def __call__(self, inputs: Tensor, labels: Tensor, *, generator: torch.Generator | None = None) -> MixedBatch:
        """Blend a batch.

        Args:
            inputs: Shape (n, ...), floating.
            labels: Shape (n,).
            generator: The source of chance, on the CPU; None takes torch's own.
        """
        chance = torch.default_generator if generator is None else generator
        partners = torch.randperm(len(inputs), generator=chance).to(inputs.device)
        share = mixing_shares(1, self.alpha, chance)[0].to(inputs.device)
        return MixedBatch.of(inputs, labels, partners, share)
