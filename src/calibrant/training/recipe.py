"""Recipes: the options that decide the result of a run, and those of the papers."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_known, check_positive, check_real_number
from calibrant.datasets.dataset import Augmentation
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
            None takes the usual one of the data set.
        mixup: The α of mixup's Beta(α, α); 0 mixes nothing.
        clip: Largest norm of a step's gradient; None clips nothing.
        precision: ``auto`` is bfloat16 on a GPU, and float32 elsewhere.
        select: Epoch whose weights are kept: the ``last``; the ``best`` by the error on the calibration samples, as in
            some papers; or ``best-nll``, by their log-loss. Those samples are then used for selection as well as
            calibration. Of several equal epochs the first is kept; only epochs with an evaluation count.
        seed: Random seed of the weights, the order of the samples and the augmentation.

    Raises:
        InputError: If a number is out of range.

    Example:
        >>> Recipe(epochs=30, batch_size=64).schedule
        'cosine'
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Schedule = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warmup: int = 0
    augmentation: Augmentation | None = None
    mixup: float = 0.0
    clip: float | None = None
    precision: Precision = "auto"
    select: Selection = "last"
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(self.epochs, 1, "epochs")
        check_at_least(self.batch_size, 1, "batch_size")
        check_at_least(self.warmup, 0, "warmup")
        check_at_least(self.seed, 0, "seed")
        check_positive(self.learning_rate, "learning_rate")
        check_real_number(self.momentum, "momentum", least=0, most=1)
        check_real_number(self.weight_decay, "weight_decay", least=0)
        check_real_number(self.decay, "decay", least=0, most=1)
        check_real_number(self.mixup, "mixup", least=0)
        check_known(self.schedule, get_args(Schedule), "schedule")
        check_known(self.precision, get_args(Precision), "precision")
        check_known(self.select, get_args(Selection), "select")
        if self.augmentation is not None:
            check_known(self.augmentation, get_args(Augmentation), "augmentation")
        if self.clip is not None:
            check_positive(self.clip, "clip")
        if self.nesterov and self.momentum == 0:
            raise InputError("nesterov needs a momentum above 0; got 0.")
        if self.warmup >= self.epochs:
            raise InputError(f"warmup must be shorter than the {self.epochs} epochs; got {self.warmup}.")
        for milestone in self.milestones:
            check_at_least(milestone, 1, "a milestone")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"milestones must rise; got {self.milestones}.")
        if (self.schedule == "steps") != bool(self.milestones):
            raise InputError(
                f"milestones must be given with schedule='steps', and only then; got {self.milestones} "
                f"with {self.schedule!r}."
            )

    def multiplies_in(self, device_type: str) -> Literal["float32", "bfloat16"]:
        """Return the precision of products on a device of this type, with ``auto`` resolved.

        Example:
            >>> Recipe().multiplies_in("cpu"), Recipe().multiplies_in("cuda")
            ('float32', 'bfloat16')
        """
        if self.precision == "auto":
            return "bfloat16" if device_type == "cuda" else "float32"
        return self.precision

    def changed(self, changes: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with other options.

        With other epochs, milestones and warm-up move in proportion. Given milestones make the schedule ``steps``
        unless another is given, and a given schedule without steps drops the milestones.

        Raises:
            InputError: If a number is out of range, or ``decay`` is given where no rate falls by it.

        Example:
            >>> RECIPES["overconfidence"].changed({"epochs": 20}).milestones
            (10, 15)
            >>> RECIPES["overconfidence"].changed({"schedule": "cosine"}).milestones
            ()
        """
        scale = changes.get("epochs", self.epochs) / self.epochs
        schedule = changes.get("schedule", "steps" if changes.get("milestones") else self.schedule)
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
    # The paper divides by 10 for label smoothing and focal loss, by 5 for cross-entropy, its entropy-regularised form
    # and mixup, and gives neither batch size nor weight decay.
    "dark-side": Recipe(epochs=300, schedule="steps", milestones=(150, 225), decay=0.1),
    "dark-side-by-5": Recipe(epochs=300, schedule="steps", milestones=(150, 225), decay=0.2),
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
    split_seed: int
    model: str
    loss: dict[str, Any]
    recipe: Recipe
    input_shape: tuple[int, ...]
    n_words: int | None
    class_names: tuple[str, ...]
    pixel_scale: dict[str, Any] | None
    train_samples: int | None = None  # number drawn to train on; None for all

    def as_dict(self) -> dict[str, Any]:
        """Return plain data to write to a file."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunSettings":
        """Read :meth:`as_dict`.

        Raises:
            InputError: If a value has the wrong type, or a size is below 1.
        """
        recipe = dict(values["recipe"])
        recipe["milestones"] = tuple(recipe["milestones"])
        lists = {name: tuple(values[name]) for name in ("input_shape", "class_names")}
        read = cls(**{**values, **lists, "recipe": Recipe(**recipe)})
        read._check()
        return read

    def _check(self) -> None:
        for name in ("dataset", "data_digest", "split", "model"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be text; got {getattr(self, name)!r}.")
        check_at_least(self.split_seed, 0, "split_seed")
        if not isinstance(self.loss, dict):
            raise InputError(f"loss must be a mapping of options; got {self.loss!r}.")
        if not self.input_shape:
            raise InputError("input_shape must have at least one size; got none.")
        for size in self.input_shape:
            check_at_least(size, 1, "every size in input_shape")
        if self.n_words is not None:
            check_at_least(self.n_words, 1, "n_words")
        if len(self.class_names) < 2 or not all(isinstance(name, str) for name in self.class_names):
            raise InputError("class_names must be a list of text, at least two.")
        if self.pixel_scale is not None:
            self._check_pixel_scale(self.pixel_scale)

    def _check_pixel_scale(self, scale: dict[str, Any]) -> None:
        if not isinstance(scale, dict) or set(scale) != {"mean", "std", "peak"}:
            raise InputError(f"pixel_scale must have mean, std and peak; got {scale!r}.")
        for name, least in (("mean", None), ("std", 0)):
            numbers = scale[name]
            if not isinstance(numbers, list) or len(numbers) != self.input_shape[0]:
                raise InputError(
                    f"{name} of pixel_scale must be one number for each of {self.input_shape[0]} channels."
                )
            for number in numbers:
                real = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
                if not real or (least is not None and number <= least):
                    raise InputError(f"{name} of pixel_scale must be finite, and std above 0; got {number!r}.")
        check_positive(scale["peak"], "peak")

    def differences(self, other: "RunSettings") -> list[str]:
        """Describe the settings that differ."""
        mine, theirs = self.as_dict(), other.as_dict()
        lines = []
        for field in fields(self):
            ours, others = mine[field.name], theirs[field.name]
            if isinstance(ours, dict) and isinstance(others, dict):
                names = [name for name in {**ours, **others} if ours.get(name) != others.get(name)]
                lines += [f"{field.name}.{name} {ours.get(name)!r}, not {others.get(name)!r}" for name in names]
            elif ours != others:
                lines.append(f"{field.name} {ours!r}, not {others!r}")
        return lines


def data_digest(data: TrainingData) -> str:
    """Return a digest of all samples, in their order."""
    digest = hashlib.sha256()
    for part in (data.training, *(data.held_out[name] for name in sorted(data.held_out)), data.meta):
        for values in () if part is None else (part.inputs, part.labels):
            digest.update(str((tuple(values.shape), values.dtype)).encode())
            digest.update(values.contiguous().numpy().data)
    return digest.hexdigest()[:16]
