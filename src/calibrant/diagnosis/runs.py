"""Finished runs, read from their folders, and candidates: runs that differ in the seed alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

from torch import Tensor

from calibrant import catalogue
from calibrant.checks import as_tensor, check_known, check_real, check_same_length
from calibrant.errors import FileError, InputError, reading
from calibrant.files import load
from calibrant.files.source import open_npz
from calibrant.losses import Loss, MetaLoss, default_settings
from calibrant.predictions import Predictions
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import RunSettings
from calibrant.training.record import EpochRecord

__all__ = [
    "Candidate",
    "CandidateName",
    "DiagnosedRun",
    "LearnedRows",
    "Option",
    "baseline_of",
    "candidate_notes",
    "flattened",
    "grouped",
    "names_of",
    "options_of",
    "read_runs",
]


class LearnedRows(NamedTuple):
    """When each training sample was learned, and how high its top logit is in the end; (n,) each."""

    learned_epoch: Tensor  # counted from 1; one more than there were epochs for a row that was never learned
    max_logit: Tensor


@final
@dataclass(frozen=True, eq=False)
class DiagnosedRun:
    """A finished run. Its predictions are read each time they are asked for, so that many runs need little memory."""

    path: Path
    settings: RunSettings
    records: tuple[EpochRecord, ...]

    @property
    def seed(self) -> int:
        """Random seed of the weights, the order of the samples and the augmentation."""
        return self.settings.recipe.seed

    @property
    def calibration(self) -> Predictions:
        """The calibration samples.

        Raises:
            FileError: If the file is damaged.
        """
        return self._part("calibration")

    @property
    def test(self) -> Predictions:
        """The test samples.

        Raises:
            FileError: If the file is damaged.
        """
        return self._part("test")

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record of each of its epochs; if not, the last one is not that of the end."""
        return len(self.records) == self.settings.recipe.epochs

    @property
    def is_traced(self) -> bool:
        """Whether it was written down when each training sample was learned."""
        return (self.path / "learning.npz").exists()

    @property
    def learning(self) -> LearnedRows | None:
        """When each training sample was learned; None if the run did not look.

        Raises:
            FileError: If the file is damaged.
        """
        if not self.is_traced:
            return None
        path = self.path / "learning.npz"
        with reading(path, "NumPy archive (.npz)"):
            held = open_npz(path).read(LearnedRows._fields, None)
            learned = LearnedRows(*(check_real(as_tensor(held[name], name), name) for name in LearnedRows._fields))
            check_same_length(learned.learned_epoch, "learned_epoch", learned.max_logit, "max_logit")
            return learned

    def _part(self, name: str) -> Predictions:
        found = load(self.path / f"{name}.npz", kind="logits")
        assert isinstance(found, Predictions), "that is what logits make"
        return found


def read_runs(paths: Sequence[Path]) -> tuple[DiagnosedRun, ...]:
    """The runs of these folders, in their order.

    Args:
        paths: Folders that ``calibrant train`` has left.

    Raises:
        FileError: If one is no folder of a finished run, or has no rows set apart to calibrate.
        InputError: If there is none, one is named twice, or they do not have the same classes and test samples.
    """
    if not paths:
        raise InputError("there must be a run to diagnose; got none. Name folders that calibrant train has left.")
    runs = tuple(_read(Path(path)) for path in paths)
    _check_different(runs)
    first = runs[0]
    labels = first.test.labels
    for run in runs[1:]:
        if run.settings.class_names != first.settings.class_names:
            raise InputError(_unlike_classes(first, run))
        _check_labels(first, labels, run)
    return runs


def _read(path: Path) -> DiagnosedRun:
    folder = RunFolder(path)
    if not (path / "settings.json").exists():
        inside = len(list(path.glob("*/settings.json")))
        hint = f" It holds {inside} such folders: name those ({path / '*'})." if inside else ""
        raise FileError(
            f"{path} must be the folder of a run that calibrant train has left; it has no settings.json.{hint}"
        )
    settings = folder.settings()
    if not folder.has_answers:
        raise FileError(
            f"{path} must hold a finished run; this one was stopped before its end. Repeat its calibrant train, which "
            "goes on from where it stopped."
        )
    for part, use in (("test", "to judge"), ("calibration", "set apart to calibrate, which the maps are fitted on")):
        if not (path / f"{part}.npz").exists():
            raise FileError(
                f"{path} must have rows {use}; it has no {part}.npz. Train with a split that sets some apart, such as "
                "--split holdout."
            )
    return DiagnosedRun(path, settings, tuple(folder.records()))


def _check_different(runs: Sequence[DiagnosedRun]) -> None:
    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.path.resolve() == other.path.resolve():
                raise InputError(f"each run must be named once; {run.path} is named twice.")
            if run.settings == other.settings:
                raise InputError(
                    f"each run must be named once; {other.path} and {run.path} have the same settings and the same "
                    "seed, so they are one run. Leave one out."
                )


def _unlike_classes(first: DiagnosedRun, other: DiagnosedRun) -> str:
    ours, theirs = first.settings.class_names, other.settings.class_names
    start = "runs that are diagnosed together must have the same classes, in the same order;"
    end = "Diagnose them apart."
    if len(ours) != len(theirs):
        return f"{start} {first.path} has {len(ours)} and {other.path} has {len(theirs)}. {end}"
    place = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    return f"{start} class {place} is {ours[place]!r} in {first.path} and {theirs[place]!r} in {other.path}. {end}"


def _check_labels(first: DiagnosedRun, labels: Tensor, other: DiagnosedRun) -> None:
    theirs = other.test.labels
    start = "runs that are diagnosed together must be evaluated on the same test rows, in the same order;"
    end = "Diagnose them apart, or train them on the same data and split."
    if len(theirs) != len(labels):
        raise InputError(f"{start} {first.path} has {len(labels):,} and {other.path} has {len(theirs):,}. {end}")
    differ = (labels != theirs).nonzero()
    if differ.numel():
        row = int(differ[0])
        raise InputError(
            f"{start} row {row} is of class {int(labels[row])} in {first.path} and {int(theirs[row])} in {other.path} "
            f"({differ.numel():,} rows differ). {end}"
        )


Option: TypeAlias = bool | int | float | str | tuple[Any, ...] | None


def options_of(settings: RunSettings) -> dict[str, Option]:
    """Every option but the seed, by its path, such as ``loss.smoothing`` or ``recipe.weight_decay``."""
    plain = settings.as_dict()
    del plain["recipe"]["seed"]
    return flattened(plain)


def flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Option]:
    """Nested options by their path; lists as tuples, so that options can be compared.

    Example:
        >>> flattened({"loss": "mmce", "base": {"loss": "focal", "gamma": 3.0}})
        {'loss': 'mmce', 'base.loss': 'focal', 'base.gamma': 3.0}
    """
    return dict(_walk(values, above))


def _walk(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, Option]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _walk(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", _fixed(value)


def _fixed(value: Any) -> Option:
    if isinstance(value, Mapping):
        return tuple((name, _fixed(each)) for name, each in value.items())
    return tuple(_fixed(each) for each in value) if isinstance(value, list | tuple) else value


_LOSS = "loss."
_NAME = "loss.loss"
# What other options decide, or what only tells that something else differs: told where nothing else tells two apart.
_HIDDEN = {"data_digest", "class_names", "input_shape", "n_words", "pixel_scale", "recipe.milestones", "recipe.warmup"}
_PROPER = {"Brier"}


class CandidateName(NamedTuple):
    """Name of a candidate in a table, and in a sentence."""

    short: str
    words: str


def names_of(candidates: Sequence[Mapping[str, Option]]) -> list[CandidateName]:
    """A short name for each candidate, no two the same.

    The loss, with those of its options that are unusual, or else the first that differs among candidates of that loss;
    and whatever else differs: the network before it, the rest behind, where it is not switched off.

    Args:
        candidates: The options of each, by path, no two the same.

    Example:
        >>> [name.short for name in names_of([{"loss.loss": "focal", "loss.gamma": gamma} for gamma in (1.0, 3.0)])]
        ['focal(1)', 'focal(3)']
        >>> names_of([{"loss.loss": "ce", "recipe.mixup": alpha} for alpha in (0.0, 0.2)])[1]
        CandidateName(short='ce mixup=0.2', words='cross-entropy with mixup 0.2')
    """
    told = _differing(candidates)
    shown = [path for path in told if not path.startswith(_LOSS) and path.partition(".")[0] not in _HIDDEN | {"loss"}]
    names = [_name(one, candidates, [path for path in shown if path not in _HIDDEN]) for one in candidates]
    short = [name.short for name in names]
    return [
        name if short.count(name.short) == 1 else _in_full(one, name, told)
        for name, one in zip(names, candidates, strict=True)
    ]


def _name(one: Mapping[str, Option], all_of_them: Sequence[Mapping[str, Option]], others: list[str]) -> CandidateName:
    loss = str(one[_NAME])
    known: dict[str, type[Loss | MetaLoss]] = {**catalogue.losses.kinds, **catalogue.meta_losses.kinds}
    differing = set(_differing([each for each in all_of_them if each[_NAME] == loss]))
    paths = _told_options(one, differing, _usual(one, known))
    options = {_called(path): one[path] for path in paths}
    rest = {path.removeprefix("recipe."): one[path] for path in others if path in one and not _is_off(path, one[path])}
    model = rest.pop("model", None)
    short, words = loss, _within_a_sentence(known[loss].title) if loss in known else loss
    if options:
        bare = paths == _mine(one)[:1]  # what a loss is asked for first goes without its name: focal(3)
        listed = ", ".join(_text(value) if bare else f"{name}={_text(value)}" for name, value in options.items())
        short, words = f"{short}({listed})", _with_options(words, options)
    for name, value in rest.items():
        short += f" {name}={_text(value)}"
    if rest:
        words += " with " + " and ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in rest.items())
    return CandidateName(*((short, words) if model is None else (f"{model} {short}", f"{words} on {model}")))


def _told_options(one: Mapping[str, Option], differing: set[str], usual: Mapping[str, Option]) -> list[str]:
    """The options of a loss that differ from their defaults; if none does, the first in which its candidates differ."""
    mine = _mine(one)
    unusual = [path for path in mine if (path in usual or path in differing) and one[path] != usual.get(path)]
    return unusual or [path for path in mine if path in differing][:1]


def _mine(one: Mapping[str, Option]) -> list[str]:
    return [path for path in one if path.startswith(_LOSS) and path != _NAME]


def _with_options(words: str, options: Mapping[str, Option]) -> str:
    """``label smoothing 0.1``, where the title names the number; else ``focal loss (gamma 3)``."""
    (name, value), *more = options.items()
    if not more and _is_number(value) and name in words:
        return f"{words} {_text(value)}"
    listed = ", ".join(f"{name} {_text(value)}" for name, value in options.items())
    return f"{words[:-1]}, {listed})" if words.endswith(")") else f"{words} ({listed})"


def _in_full(one: Mapping[str, Option], name: CandidateName, told: Iterable[str]) -> CandidateName:
    """For two that would be called the same: everything in which any candidates differ."""
    listed = ", ".join(f"{path}={_text(one[path])}" for path in told if path in one)
    return CandidateName(f"{name.short} [{listed}]", f"{name.words} ({listed})")


def _usual(
    one: Mapping[str, Option], known: Mapping[str, type[Loss | MetaLoss]], above: str = _LOSS
) -> dict[str, Option]:
    """The defaults of its loss by path, and those of losses inside it."""
    loss = one.get(f"{above}loss")
    if loss not in known:
        return {}
    usual = flattened(default_settings(known[str(loss)]), above)
    for path in one:
        inside = path.removesuffix("loss")
        if path.endswith(".loss") and path.startswith(above) and inside.count(".") == above.count(".") + 1:
            usual |= {name: value for name, value in _usual(one, known, inside).items() if name != path}
    return usual


def _called(path: str) -> str:
    """An option of a loss by its name; a loss inside another by the option that it stands for."""
    return path.removeprefix(_LOSS).removesuffix(".loss")


def _within_a_sentence(title: str) -> str:
    first = title.partition(" ")[0]
    return title if first in _PROPER or not title[1:2].islower() else title[0].lower() + title[1:]


def _differing(candidates: Sequence[Mapping[str, Option]]) -> list[str]:
    """The paths whose values are not the same everywhere, in their order."""
    missing = object()
    paths = dict.fromkeys(path for one in candidates for path in one)
    return [path for path in paths if len({repr(one.get(path, missing)) for one in candidates}) > 1]


def _is_off(path: str, value: Option) -> bool:
    """Whether it says that something is not done, which goes without saying."""
    return value is None or value is False or (path == "recipe.mixup" and value == 0)


def _is_number(value: Option) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to train, tried with one seed or several."""

    name: str  # in a table
    words: str  # in a sentence
    options: Mapping[str, Option]  # all that decides it, by path
    runs: tuple[DiagnosedRun, ...]  # by rising seed

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of its runs."""
        return tuple(run.seed for run in self.runs)


def grouped(runs: Sequence[DiagnosedRun]) -> tuple[Candidate, ...]:
    """Runs of the same data, split, network, recipe and loss become one candidate; in order of first appearance.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
    """
    found: dict[str, list[DiagnosedRun]] = {}
    options: list[dict[str, Option]] = []
    for run in runs:
        one = options_of(run.settings)
        key = repr(sorted(one.items()))
        if key not in found:
            options.append(one)
        found.setdefault(key, []).append(run)
    together = zip(names_of(options), options, found.values(), strict=True)
    return tuple(
        Candidate(name.short, name.words, one, tuple(sorted(members, key=lambda run: run.seed)))
        for name, one, members in together
    )


def baseline_of(candidates: Sequence[Candidate], name: str | None = None) -> Candidate:
    """The candidate that the others are compared with: the named one; else plain cross-entropy; else the first.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name is not None:
        check_known(name, [each.name for each in candidates], "a candidate")
        return next(each for each in candidates if each.name == name)
    plain = [each for each in candidates if each.options["loss.loss"] == "ce" and not each.options.get("recipe.mixup")]
    return plain[0] if plain else candidates[0]


def candidate_notes(candidate: Candidate) -> Iterator[str]:
    """Note runs that lack records, which are left out of curves, and runs in which a learned γ ended at its limit.

    Args:
        candidate: From :func:`~calibrant.diagnosis.runs.grouped`.
    """
    for run in candidate.runs:
        if not run.is_recorded:
            recorded = f"{len(run.records)} of {run.settings.recipe.epochs} records"
            yield f"seed {run.seed}: epochs.jsonl has {recorded}, so the run is left out of the curves over epochs"
    ends = {
        run.seed: next((each.learned for each in reversed(run.records) if each.learned), {}) for run in candidate.runs
    }
    clipped = [
        f"seed {seed}: {end['gamma_clipped']:.1%} of rows" for seed, end in ends.items() if end.get("gamma_clipped")
    ]
    if clipped:
        runs = "run" if len(ends) == 1 else "runs"
        yield f"γ at its limit in {len(clipped)} of {len(ends)} {runs} in the end ({', '.join(clipped)})"
