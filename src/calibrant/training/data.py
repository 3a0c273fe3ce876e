"""Training data on the device, and the plan of every epoch: order, augmentation and mixup."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import Positive, check_known, check_labels, check_options, existing_file
from calibrant.datasets.dataset import Augmentation, Dataset, PixelScale, Samples, Split
from calibrant.datasets.image_arrays import ImageLayout, as_images
from calibrant.datasets.pictures import Pictures
from calibrant.errors import FileError, InputError, Row, reading
from calibrant.losses import Loss
from calibrant.npy import numpy_archive
from calibrant.paper import Paper
from calibrant.training.stores import PADDING, InputStore, PictureStore, reading_threads, seeded_generator, store_of

_AT_ONCE = 2048  # samples in a batch of an evaluation, where all are in memory


class EpochPlan(NamedTuple):
    """The samples of each step of an epoch and their augmentation; also the buffers that steps read."""

    samples: Tensor  # (steps, b) int64
    shifts: Tensor  # (steps, b, 2) int64, down and right, 0 to twice the padding
    mirrored: Tensor  # (steps, b) bool
    partners: Tensor  # (steps, b) int64, a permutation of the positions in each step
    shares: Tensor  # (steps,) float32, weight of the sample itself where it is mixed with its partner
    meta_samples: Tensor  # (steps, m) int64, held-out samples that tune a meta-learned loss; m is 0 if there are none

    def to(self, device: torch.device) -> "EpochPlan":
        return EpochPlan(*(field.to(device, non_blocking=True) for field in self))

    def copy_(self, other: "EpochPlan") -> None:
        """Copy the plan of another epoch into the memory that captured steps read."""
        for mine, theirs in zip(self, other, strict=True):
            mine.copy_(theirs, non_blocking=True)


def epoch_generator(seed: int, epoch: int, rank: int = 0) -> torch.Generator:
    """Return the generator of what is random in an epoch; those of other seeds, epochs and processes are unrelated."""
    return seeded_generator(f"calibrant epoch {seed}/{epoch}{f'/{rank}' * bool(rank)}")


def plan_epoch(n: int, batch_size: int, *, seed: int, epoch: int, mixup: float = 0.0, n_meta: int = 0) -> EpochPlan:
    """Draw an epoch, counted from 0, of ``n`` training samples; those after the last full step are not used.

    Of the ``n_meta`` held-out samples that tune the loss, each step draws as many as there are in a batch, or all, in
    turns, so that each is used equally often.
    """
    generator, steps = epoch_generator(seed, epoch), n // batch_size
    shape = (steps, batch_size)
    samples = torch.randperm(n, generator=generator)[: steps * batch_size].view(shape)
    shifts = torch.randint(2 * PADDING + 1, (*shape, 2), generator=generator)
    mirrored = torch.rand(shape, generator=generator) < 0.5
    partners = torch.rand(shape, generator=generator).argsort(dim=1)
    shares = mixing_shares(steps, mixup, generator)
    size = min(batch_size, n_meta)
    rounds = -(-steps * size // n_meta) if n_meta else 0
    turns = [torch.randperm(n_meta, generator=generator) for _ in range(rounds)] or [torch.zeros(0, dtype=torch.int64)]
    meta_samples = torch.cat(turns)[: steps * size].view(steps, size)
    return EpochPlan(samples, shifts, mirrored, partners, shares, meta_samples)


def mixing_shares(n: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Draw from Beta(α, α), (n,) float32; all 1 where α is 0."""
    if alpha == 0:
        return torch.ones(n)
    both = torch._standard_gamma(torch.full((n, 2), alpha, dtype=torch.float64), generator=generator)
    # For a tiny α both draws can be too small to compare, which stands for a share of 1 or 0. Torch then gives the
    # smallest positive number, not 0.
    return torch.where(both.sum(1) > 1e-300, both[:, 0] / both.sum(1), 1.0).float()


_CLASS_NAMES = "class_names"
_MOST_CLASSES = 1_000_000  # more are identifiers, whose names would fill the memory
_IMAGE_AXES = (3, 4)  # (n, h, w), and (n, c, h, w) or (n, h, w, c)


def read_arrays(
    training: Path,
    test: Path,
    validation: Path | None = None,
    *,
    inputs: str = "inputs",
    labels: str = "labels",
    layout: ImageLayout = "auto",
) -> Dataset:
    """Read a data set of one's own from ``.npz`` files.

    Images are stored as uint8, (n, h, w), (n, h, w, c) or (n, c, h, w), and are scaled to mean 0 and deviation 1 of the
    training images. Floating-point numbers, (n, d) or (n, ...), reach the network unchanged, in float32. Labels are
    class numbers from 0, or the names of the classes. Names in the order of the numbers may stand in the array
    ``class_names`` of the training file; else they are the numbers up to the largest, or the sorted names.

    Args:
        training: File to train on.
        test: File to evaluate on.
        validation: File to calibrate on; without it, a split takes these samples from the others.
        inputs: Name of the array of inputs.
        labels: Name of the array of labels.
        layout: Place of the channels of images; ``auto`` finds one or three of them, and refuses what is ambiguous.

    Raises:
        FileError: If a file is missing, or its arrays are not as described.
    """
    files = {"training": training, "test": test} | ({} if validation is None else {"validation": validation})
    parts = {use: _read_part(file, inputs, labels, layout) for use, file in files.items()}
    _, stored, class_names = parts["training"]
    if class_names is None and stored.dtype.kind == "U":
        class_names = np.unique(stored)
    elif class_names is None:
        largest = max(int(classes.max()) for _, classes, _ in parts.values() if classes.dtype.kind != "U")
        class_names = np.arange(largest + 1)
    names = tuple(map(str, class_names.reshape(-1).tolist()))
    if len(set(names)) < max(len(names), 2):
        raise FileError(f"{training} must have at least two classes, of different names; got {', '.join(names)}.")
    samples = {
        use: Samples(values, _class_numbers(classes, names, f"{files[use]}: {labels!r}"))
        for use, (values, classes, _) in parts.items()
    }
    types = {part.inputs.dtype for part in samples.values()}
    if len(types) > 1:
        raise FileError(f"inputs must be of one type in all files; got {' and '.join(sorted(map(str, types)))}.")
    scale = PixelScale.of(samples["training"].tensor) if types == {torch.uint8} else None
    parts_of = samples["training"], samples["test"], samples.get("validation")
    return Dataset(training.name, names, *parts_of, pixel_scale=scale)


def _read_part(path: Path, inputs: str, labels: str, layout: ImageLayout) -> tuple[Tensor, Any, Any]:
    """Return inputs, labels (n,) as they are stored, and class names, if the file has any."""
    file = existing_file(path, holding="inputs and labels")
    if file.suffix.lower() != ".npz":
        raise FileError(f"a file of your own data must end in .npz; got {file}. Write one with numpy.savez.")
    with numpy_archive(file) as archive:
        if absent := [name for name in (inputs, labels) if name not in archive.names]:
            raise FileError(
                f"{file} must have the arrays {inputs!r} and {labels!r}; it lacks {' and '.join(absent)} and has "
                f"{', '.join(archive.names) or 'nothing'}. Name the arrays: --inputs NAME --labels NAME."
            )
        has_names = _CLASS_NAMES in archive.names
        values, classes, *names = archive.read([inputs, labels, *([_CLASS_NAMES] if has_names else [])])
    samples = _as_inputs(values, f"{file}: {inputs!r}", layout)
    where = f"{file}: {labels!r}"
    if classes.shape != (len(samples),):
        raise FileError(f"{where} must have shape ({len(samples)},), a label an input; got {classes.shape}.")
    with reading(file, "file of inputs and labels in UTF-8"):
        classes, *names = (np.char.decode(part) if part.dtype.kind == "S" else part for part in (classes, *names))
    if classes.dtype.kind == "f" and ((classes == np.floor(classes)) & (abs(classes) < _MOST_CLASSES)).all():
        classes = classes.astype(np.int64)
    if classes.dtype.kind not in "biuU":
        raise FileError(f"{where} must be whole numbers from 0, or the names of the classes; got {classes.dtype}.")
    if classes.dtype.kind in "iu" and (largest := classes.max()) >= _MOST_CLASSES:
        raise FileError(f"{where} must be below {_MOST_CLASSES:,}; got {largest:,}. Save identifiers as text.")
    return samples, classes, names[0] if names else None


def _as_inputs(values: Any, where: str, layout: ImageLayout) -> Tensor:
    """Return pixels as (n, c, h, w) uint8, other numbers as float32; ``where`` names them in messages."""
    if values.dtype == np.uint8 and values.ndim in _IMAGE_AXES:
        if layout == "auto" or values.ndim == min(_IMAGE_AXES):
            return as_images(values, where=where, layout=layout)
        pixels = values if layout == "channels_first" else values.transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(pixels))
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size:
        raise FileError(
            f"{where} must be images, uint8 of shape (n, h, w), (n, h, w, c) or (n, c, h, w), or floating-point "
            f"numbers of shape (n, d) or (n, ...); got {values.dtype} of shape {values.shape}. If they are "
            "numbers and no pixels, save inputs.astype('float32')."
        )
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values, dtype=np.float32)
    if not (is_finite := np.isfinite(numbers)).all():
        place = tuple(map(int, np.argwhere(~is_finite)[0]))
        raise FileError(f"{where} must be finite in float32; got {values[place]} at {Row(place[0])}. Remove them.")
    return torch.from_numpy(numbers)


def _class_numbers(labels: Any, names: tuple[str, ...], where: str) -> Tensor:
    """Return labels (n,) as int64 class numbers; ``where`` names them in messages."""
    try:
        if labels.dtype.kind != "U":
            return check_labels(torch.from_numpy(labels.astype(np.int64)), len(names))
        distinct, codes = np.unique(labels, return_inverse=True)
        for word in distinct.tolist():
            check_known(word, names, "a label")
    except InputError as error:
        raise FileError(f"{where}: {error}") from error
    return torch.tensor([names.index(word) for word in distinct.tolist()])[torch.from_numpy(codes.reshape(-1))]


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Samples to train on, and held-out samples by their use."""

    training: Samples
    held_out: Mapping[str, Samples]  # "calibration", "test"
    class_names: tuple[str, ...]
    pixel_scale: PixelScale | None = None
    augmentation: Augmentation = "none"  # the usual one
    meta: Samples | None = None  # samples that tune a meta-learned loss

    def __post_init__(self) -> None:
        self._check_augmentation(self.augmentation)

    @classmethod
    def of(cls, dataset: Dataset, split: Split) -> "TrainingData":
        """Return the data of a split of a data set."""
        held_out = {"calibration": split.calibration, "test": split.test}
        return cls(split.training, held_out, dataset.class_names, dataset.pixel_scale, dataset.augmentation, split.meta)

    def on(
        self, device: torch.device, augmentation: Augmentation | None = None, *, read_threads: int | None = None
    ) -> "DeviceData":
        """Copy everything to a device, once for all networks that train there; pictures in files stay where they are.

        Those that are held out are read once, so that a damaged one is named before an epoch is lost by it.
        """
        chosen = self.augmentation if augmentation is None else augmentation
        self._check_augmentation(chosen)
        threads = reading_threads(read_threads)

        def stored(samples: Samples, augmentation: Augmentation | None = None) -> StoredSamples:
            store = store_of(samples.inputs, self.pixel_scale, augmentation or "none", device, threads)
            if augmentation is None and isinstance(store, PictureStore):
                store.check()
            return StoredSamples(store, samples.labels.to(device))

        held_out = {name: stored(part) for name, part in self.held_out.items()}
        meta = None if self.meta is None else stored(self.meta)
        return DeviceData(stored(self.training, chosen), held_out, device, meta)

    def _check_augmentation(self, augmentation: Augmentation) -> None:
        if self.pixel_scale is None and augmentation != "none":
            raise InputError(f"augmentation must be 'none' for inputs without a pixel scale; got {augmentation!r}.")
        is_read = isinstance(self.training.inputs, Pictures)
        known = ("none", "resized-crop-flip") if is_read else ("none", "crop", "crop-flip")
        if augmentation not in known:
            where = "pictures that are read in batches" if is_read else "images in memory"
            raise InputError(f"augmentation must be {' or '.join(known)} for {where}; got {augmentation!r}.")


@final
@dataclass(frozen=True, eq=False)
class StoredSamples:
    """Inputs and labels on a device; pictures may stay in their files."""

    inputs: InputStore
    labels: Tensor  # (n,)

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self) -> Iterator[Tensor]:
        """Yield all inputs in their order, without augmentation."""
        if isinstance(self.inputs, PictureStore):
            yield from self.inputs.batches()
        else:
            for samples in torch.arange(len(self), device=self.labels.device).split(_AT_ONCE):
                yield self.inputs.plain(samples)


@final
@dataclass(frozen=True, eq=False)
class DeviceData:
    """Training and held-out samples on one device."""

    training: StoredSamples
    held_out: Mapping[str, StoredSamples]
    device: torch.device
    meta: StoredSamples | None = None


@final
@dataclass(frozen=True, eq=False)
class MixedBatch:
    """Mixed inputs, and the two labels of each with their shares."""

    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,)
    partner_labels: Tensor  # (n,)
    share: Tensor  # (), of the first label

    @classmethod
    def of(cls, inputs: Tensor, labels: Tensor, partners: Tensor, share: Tensor) -> "MixedBatch":
        """Mix inputs (n, ...) with those at ``partners`` (n,); ``share`` is the weight of the first of each pair."""
        return cls(torch.lerp(inputs[partners], inputs, share.to(inputs.dtype)), labels, labels[partners], share)

    def loss(self, loss: Loss, logits: Tensor) -> Tensor:
        """Return the same mixture of two losses; works with any loss, as none gets a soft label."""
        return self.share * loss(logits, self.labels) + (1 - self.share) * loss(logits, self.partner_labels)


@final
@dataclass(frozen=True)
class Mixup:
    """Mix every sample of a batch with another, with a share drawn from Beta(α, α). In training only.

    It raises accuracy and reduces overconfidence. The confidence of an unmixed input is then often too low, and
    separates correct from incorrect predictions less well: look at AUROC as well as the calibration error.

    Formula: x̃ = λ x + (1 - λ) x_π; loss = λ L(z̃, y) + (1 - λ) L(z̃, y_π)

    Args:
        alpha: 0.2 leaves most samples nearly whole; 1 draws shares evenly.

    Example:
        >>> from calibrant.losses import FocalLoss
        >>> inputs, labels = torch.rand(8, 3, 4, 4), torch.arange(8) % 5
        >>> mixed = Mixup(alpha=0.2)(inputs, labels, generator=torch.Generator().manual_seed(0))
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5))
        >>> mixed.loss(FocalLoss(), network(mixed.inputs)).ndim
        0
    """

    name: ClassVar[str] = "mixup"
    paper: ClassVar = Paper("Zhang et al.", 2018, "mixup: Beyond Empirical Risk Minimization", "arXiv:1710.09412")

    alpha: Positive = 0.2

    def __post_init__(self) -> None:
        check_options(self)

    def __call__(self, inputs: Tensor, labels: Tensor, *, generator: torch.Generator | None = None) -> MixedBatch:
        """Mix a batch of floating inputs (n, ...) and labels (n,); torch's own generator draws if none is given."""
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            got = f"got {inputs.dtype}" if isinstance(inputs, Tensor) else f"got {type(inputs).__name__}"
            advice = "Scale pixels to floating point; of tokens mix the embeddings."
            raise InputError(f"inputs must be a tensor of floating-point numbers to be mixed; {got}. {advice}")
        generator = torch.default_generator if generator is None else generator
        partners = torch.randperm(len(inputs), generator=generator).to(inputs.device)
        share = mixing_shares(1, self.alpha, generator)[0].to(inputs.device)
        return MixedBatch.of(inputs, labels, partners, share)
