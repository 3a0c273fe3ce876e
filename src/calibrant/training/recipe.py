"""Recipes: the options that decide the result of a run, and those of the papers."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant import checks
from calibrant.datasets.dataset import Augmentation, PixelScale
from calibrant.datasets.pictures import Pictures
from calibrant.errors import InputError
from calibrant.training.data import TrainingData

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
Schedule: TypeAlias = Literal["cosine", "steps", "constant"]
Selection: TypeAlias = Literal["last", "best", "best-nll"]


@final
@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights apart from network, data and loss: momentum SGD with a schedule.

    Args:
        epochs: Passes over the training samples.
        batch_size: Samples in a step. Those after the last full batch of an epoch are not used in that epoch.
        learning_rate: Highest learning rate.
        momentum: Momentum of the gradient.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Weight decay.
        schedule: ``cosine`` decays to 0 along half a wave; ``steps`` multiplies by ``decay`` at each milestone;
            ``constant`` does not change.
        milestones: Epochs (counted from 0) at whose start the rate falls, for ``steps``.
        decay: Factor of the rate at each milestone.
        warmup: Epochs in which the rate rises linearly from 0.
        augmentation: ``none``, ``crop`` (shifted by up to 4 pixels) or ``crop-flip`` (and mirrored half of the time);
            for pictures that are read in batches, ``none`` or ``resized-crop-flip`` (a random part of the picture, of 8
            to 100 % of its area, mirrored half of the time). None takes the usual one of the data set.
        mixup: The α of mixup's Beta(α, α); 0 mixes nothing.
        clip: Largest norm of a step's gradient; None clips nothing.
        precision: ``auto`` is bfloat16 on a GPU, and float32 elsewhere.
        select: Epoch whose weights are kept: the ``last``; the ``best`` by the error on the calibration samples, as in
            some papers; or ``best-nll``, by their log-loss. Those samples are then used for selection as well as
            calibration. Of several equal epochs the first is kept; only epochs with an evaluation count.
        seed: Random seed of the weights, the order of the samples and the augmentation.

    Example:
        >>> Recipe(epochs=30, batch_size=64).schedule
        'cosine'
    """

    epochs: checks.AtLeastOne = 100
    batch_size: checks.AtLeastOne = 128
    learning_rate: checks.Positive = 0.1
    momentum: checks.UnitInterval = 0.9
    nesterov: bool = False
    weight_decay: checks.NonNegative = 5e-4
    schedule: Schedule = "cosine"
    milestones: tuple[checks.AtLeastOne, ...] = ()
    decay: checks.UnitInterval = 0.1
    warmup: checks.AtLeastZero = 0
    augmentation: Augmentation | None = None
    mixup: checks.NonNegative = 0.0
    clip: checks.Positive | None = None
    precision: Precision = "auto"
    select: Selection = "last"
    seed: checks.AtLeastZero = 0

    def __post_init__(self) -> None:
        checks.check_options(self)
        if self.nesterov and self.momentum == 0:
            raise InputError("nesterov needs a momentum above 0; got 0.")
        if self.warmup >= self.epochs:
            raise InputError(f"warmup must be shorter than the {self.epochs} epochs; got {self.warmup}.")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"milestones must rise; got {self.milestones}.")
        if (self.schedule == "steps") != bool(self.milestones):
            raise InputError(
                f"milestones must be given with schedule='steps' alone; got {self.milestones} with {self.schedule!r}."
            )

    def multiplies_in(self, device_type: str) -> Literal["float32", "bfloat16"]:
        """Return the precision of products on a device of this type, with ``auto`` resolved."""
        if self.precision == "auto":
            return "bfloat16" if device_type == "cuda" else "float32"
        return self.precision

    def autocast(self, device_type: str) -> AbstractContextManager[object]:
        """Return a context for one forward run of a network, in this precision."""
        is_low = self.multiplies_in(device_type) == "bfloat16"
        # bfloat16 copies of the weights are not cached: a captured graph would never update them.
        return torch.autocast(device_type, torch.bfloat16, enabled=is_low, cache_enabled=False)

    def changed(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with other options.

        With other epochs, milestones and warm-up move in proportion. Given milestones make the schedule ``steps``
        unless another is given, and a given schedule without steps drops the milestones. ``decay`` is refused where no
        rate falls by it.

        Example:
            >>> RECIPES["overconfidence"].changed({"epochs": 20}).milestones
            (10, 15)
            >>> RECIPES["overconfidence"].changed({"schedule": "cosine"}).milestones
            ()
        """
        for name in changes:
            checks.check_known(name, vars(self), "an option of a recipe")
        scale = checks.check_at_least(changes.get("epochs", self.epochs), 1, "epochs") / self.epochs
        schedule = changes.get("schedule", "steps" if changes.get("milestones") else self.schedule)
        checks.check_known(schedule, get_args(Schedule), "schedule")
        kept = self.milestones if schedule == "steps" else ()
        if "decay" in changes and schedule != "steps":
            raise InputError(f"decay must come with schedule 'steps' and its milestones; got schedule {schedule!r}.")
        moved = {
            "schedule": schedule,
            "milestones": tuple(dict.fromkeys(max(1, round(milestone * scale)) for milestone in kept)),
            "warmup": round(self.warmup * scale),
        }
        return replace(self, **{**moved, **changes})


# The settings of the papers, named after a word of the title, and ours.
RECIPES: dict[str, Recipe] = {
    "default": Recipe(nesterov=True),
    "overconfidence": Recipe(epochs=200, batch_size=512, weight_decay=1e-4, schedule="steps", milestones=(100, 150)),
    # The paper says only that the rate falls at epoch 50. Without a warm-up most networks stay at chance.
    "overconfidence-newsgroups": Recipe(weight_decay=1e-4, schedule="steps", milestones=(50,), warmup=5),
    # The paper divides by 10 for label smoothing and focal loss, by 5 for cross-entropy, its entropy-regularised form
    # and mixup, and gives neither batch size nor weight decay.
    "dark-side": Recipe(epochs=300, schedule="steps", milestones=(150, 225), decay=0.1),
    "dark-side-by-5": Recipe(epochs=300, schedule="steps", milestones=(150, 225), decay=0.2),
    "dark-side-imagenet": Recipe(batch_size=256, weight_decay=1e-4, schedule="steps", milestones=(30, 60, 90)),
    "meta-regularization": Recipe(epochs=350, schedule="steps", milestones=(150, 250)),
}


def learning_rates(recipe: Recipe, epoch: int, steps: int) -> Tensor:
    """Return the learning rate at each step of an epoch (counted from 0), (steps,), float32.

    Example:
        >>> rates = learning_rates(Recipe(epochs=2, learning_rate=1.0), 1, 4)
        >>> [round(rate, 2) for rate in rates.tolist()]
        [0.5, 0.31, 0.15, 0.04]
    """
    at = epoch + torch.arange(steps, dtype=torch.float64) / steps  # in epochs
    if recipe.schedule == "cosine":
        past_warmup = (at - recipe.warmup).clamp(min=0) / max(recipe.epochs - recipe.warmup, 1)
        share = 0.5 * (1 + torch.cos(torch.pi * past_warmup))
    elif recipe.schedule == "steps":
        share = torch.full_like(at, recipe.decay ** sum(epoch >= milestone for milestone in recipe.milestones))
    else:
        share = torch.ones_like(at)
    if recipe.warmup:
        # The first step is not at 0, which would be a step of length 0.
        share = share * ((at + 1 / steps) / recipe.warmup).clamp(max=1)
    return (recipe.learning_rate * share).float()


@final
@dataclass(frozen=True)
class RunSettings:
    """The network, the data, the loss and the recipe of a run."""

    dataset: str
    data_digest: str  # digest of training and held-out samples after the split
    split: str
    split_seed: checks.AtLeastZero
    model: str
    loss: dict[str, Any]
    recipe: Recipe
    input_shape: tuple[checks.AtLeastOne, ...]
    n_words: checks.AtLeastOne | None
    class_names: tuple[str, ...]
    pixel_scale: PixelScale | None
    train_samples: checks.AtLeastOne | None = None  # number drawn to train on; None for all

    def __post_init__(self) -> None:
        checks.check_options(self)
        if not isinstance(self.loss, dict):
            raise InputError(f"loss must be a mapping of options; got {self.loss!r}.")
        if not self.input_shape:
            raise InputError("input_shape must have at least one size; got none.")
        if len(self.class_names) < 2:
            raise InputError(f"class_names must be at least two; got {self.class_names!r}.")
        scale, channels = self.pixel_scale, self.input_shape[0]
        if scale is not None:
            checks.check_options(scale)
            if not len(scale.mean) == len(scale.std) == channels:
                raise InputError(f"pixel_scale must have a mean and std for each of {channels} channels; got {scale}.")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data to write to a file."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunSettings":
        """Read :meth:`as_dict`; an InputError or a TypeError if it is something else."""
        recipe, scale = Recipe(**_with_tuples(values["recipe"], "milestones")), values["pixel_scale"]
        scale = None if scale is None else PixelScale(**_with_tuples(scale, "mean", "std"))
        return cls(**{**_with_tuples(values, "input_shape", "class_names"), "recipe": recipe, "pixel_scale": scale})

    def differences(self, other: "RunSettings") -> list[str]:
        """Describe the settings that differ."""
        theirs, lines = other.as_dict(), []
        for name, ours in self.as_dict().items():
            others = theirs[name]
            if isinstance(ours, dict) and isinstance(others, dict):
                options = [option for option in {**ours, **others} if ours.get(option) != others.get(option)]
                lines += [f"{name}.{option} {ours.get(option)!r}, not {others.get(option)!r}" for option in options]
            elif ours != others:
                lines.append(f"{name} {ours!r}, not {others!r}")
        return lines


def _with_tuples(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**values, **{name: tuple(values[name]) for name in names}}


def data_digest(data: TrainingData) -> str:
    """Return a digest of all samples, in their order; of pictures in files, the names count and not the pixels."""
    digest = hashlib.sha256()
    for part in (data.training, *(data.held_out[name] for name in sorted(data.held_out)), data.meta):
        for values in () if part is None else (part.inputs, part.labels):
            digest.update(str((tuple(values.shape), values.dtype)).encode())
            digest.update(values.digest() if isinstance(values, Pictures) else values.contiguous().numpy().data)
    return digest.hexdigest()[:16]
