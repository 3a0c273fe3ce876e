"""Finished runs, read from their folders, and candidates: runs that differ in the seed alone."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

from torch import Tensor

from calibrant import catalogue
from calibrant.checks import as_tensor, check_known, check_real, check_same_length
from calibrant.diagnosis.run_table import RUN_FILE, TABLE_ENDINGS, read_table
from calibrant.errors import FileError, InputError, Row, reading
from calibrant.files.choose import LoadOptions
from calibrant.files.load import load_detailed
from calibrant.files.source import open_npz
from calibrant.losses import Loss, MetaLoss, default_settings
from calibrant.predictions import Predictions
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import RunSettings
from calibrant.training.record import EpochRecord

__all__ = ["Candidate", "DiagnosedRun", "LearnedSamples", "baseline_of", "grouped", "read_runs"]


class LearnedSamples(NamedTuple):
    """When each training sample was learned, and its top logit in the end; (n,) each."""

    learned_epoch: Tensor  # counted from 1; one more than there were epochs for a sample that was never learned
    max_logit: Tensor


Option: TypeAlias = bool | int | float | str | tuple[Any, ...] | None
Options: TypeAlias = Mapping[str, Option]  # by path, such as "loss.smoothing" or "recipe.weight_decay"


@final
@dataclass(frozen=True, eq=False)
class DiagnosedRun:
    """A finished run. Predictions are read each time they are needed, so that many runs need little memory.

    Reading them raises a FileError if a file is damaged.
    """

    path: Path  # its folder; of a run in a table, the file of its test predictions
    seed: int
    options: Options  # all but the seed; a run of another training loop has a "name" among them
    calibration_file: Path
    test_file: Path
    trained: RunSettings | None = None  # None for a run of another training loop
    records: tuple[EpochRecord, ...] = ()
    reading: LoadOptions = field(default_factory=LoadOptions)  # of a run of another training loop

    @property
    def settings(self) -> RunSettings:
        """Settings of ``calibrant train``; an InputError if another loop has trained it."""
        if self.trained is None:
            raise InputError(
                f"shifted images are for runs of calibrant train, whose networks can be read; {self.path} is of "
                "another training loop. Diagnose it without a shift."
            )
        return self.trained

    @property
    def calibration(self) -> Predictions:
        return self._read(self.calibration_file)

    @property
    def test(self) -> Predictions:
        return self._read(self.test_file)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, or else their numbers."""
        if self.trained is not None:
            return self.trained.class_names
        test = self.test
        return test.class_names or tuple(map(str, range(test.n_classes)))

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record of each of its epochs; if not, the last one is not that of the end."""
        return self.trained is None or len(self.records) == self.trained.recipe.epochs

    @property
    def is_traced(self) -> bool:
        return (self.path / "learning.npz").exists()

    @property
    def learning(self) -> LearnedSamples | None:
        """When each training sample was learned; None if the run was not traced."""
        if not self.is_traced:
            return None
        path = self.path / "learning.npz"
        with reading(path, "NumPy archive (.npz)"):
            arrays = open_npz(path).read(LearnedSamples._fields, None)
            learned = LearnedSamples(*(check_real(as_tensor(arrays[key], key), key) for key in LearnedSamples._fields))
            check_same_length(learned.learned_epoch, "learned_epoch", learned.max_logit, "max_logit")
            return learned

    def _read(self, file: Path) -> Predictions:
        options = self.reading if self.trained is None else LoadOptions(kind="logits")
        part = load_detailed(file, options).predictions
        if not isinstance(part, Predictions):
            raise FileError(f"{file} must have logits or probabilities of every class; it has only the top label's.")
        return part


def read_runs(
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str], options: LoadOptions | None = None
) -> tuple[DiagnosedRun, ...]:
    """Read the runs of these folders and tables, in their order.

    Args:
        paths: Folders that ``calibrant train`` or :func:`save_run` wrote, and tables of runs of other training loops;
            or one of them.
        options: Options of :func:`~calibrant.files.load` for the files of other training loops, such as the name of
            their weights.

    Raises:
        FileError: If one is neither a table nor the folder of a finished run, or has no calibration samples.
        InputError: If there is none, one is named twice, or they do not have the same classes and test samples.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not paths:
        raise InputError("there must be a run to diagnose; got none. Name folders that calibrant train has left.")
    runs = tuple(run for path in paths for run in _read(Path(path), options or LoadOptions()))
    if len({run.trained is None for run in runs}) > 1:
        raise InputError(
            "runs diagnosed together must all be of calibrant train or all of other training loops; got both. "
            "Write a table (.csv) that names the predictions of all of them."
        )
    _check_different(runs)
    first = runs[0]
    if options and first.trained is not None:
        raise InputError(
            "options that say how to read predictions are for runs of other training loops, whose files have names of "
            f"their own; {first.path} is of calibrant train. Leave them out."
        )
    expected = first.test
    for run in runs[1:]:
        _check_classes(first, run)
        test = run.test
        difference = labels_differ(expected.labels, str(first.path), test.labels, str(run.path))
        weights = [None if part.weights is None else part.weights.tolist() for part in (expected, test)]
        if not difference and weights[0] != weights[1]:
            difference = f"{first.path} and {run.path} give them other weights"
        if difference:
            raise InputError(
                "runs diagnosed together must be evaluated on the same test samples, in the same order; "
                f"{difference}. Diagnose them separately, or train them on the same data and split."
            )
    return runs


def _read(path: Path, options: LoadOptions) -> Iterator[DiagnosedRun]:
    table = path / RUN_FILE if path.is_dir() else path
    if table.suffix.lower() in TABLE_ENDINGS and table.is_file():
        for row in read_table(table):
            where = path if path.is_dir() else row.test
            named = {"name": row.name, **flattened(row.options)}
            reading = replace(options, weights=options.weights or row.weights)
            yield DiagnosedRun(where, row.seed, named, row.calibration, row.test, reading=reading)
        return
    folder = RunFolder(path)
    if not (path / "settings.json").exists():
        inside = len(list(path.glob("*/settings.json")))
        hint = f" It holds {inside} such folders: name those ({path / '*'})." if inside else ""
        raise FileError(
            f"{path} must be the folder of a run that calibrant train or save_run has left, or a table of runs (.csv, "
            f".json); it has no settings.json.{hint}"
        )
    settings = folder.settings()
    if not folder.has_answers:
        raise FileError(f"{path} must hold a finished run; this one was stopped. Run its calibrant train again.")
    for part, use in (("test", "evaluate"), ("calibration", "fit the maps on")):
        if not (path / f"{part}.npz").exists():
            raise FileError(
                f"{path} must have {part} samples to {use}; it has no {part}.npz. Train with a split that sets some "
                "apart, such as --split holdout."
            )
    own, records = options_of(settings), tuple(folder.records())
    files = path / "calibration.npz", path / "test.npz"
    yield DiagnosedRun(path, settings.recipe.seed, own, *files, settings, records)


def _check_different(runs: Sequence[DiagnosedRun]) -> None:
    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.path.resolve() == other.path.resolve():
                raise InputError(f"each run must be named once; {run.path} is named twice.")
            if (run.seed, run.options) == (other.seed, other.options):
                raise InputError(
                    f"each run must be named once; {other.path} and {run.path} have the same settings and the same "
                    "seed, so they are one run. Leave one out."
                )


def _check_classes(first: DiagnosedRun, other: DiagnosedRun) -> None:
    ours, theirs = first.class_names, other.class_names
    if ours == theirs:
        return
    differs = f"{first.path} has {len(ours)} and {other.path} has {len(theirs)}"
    if len(ours) == len(theirs):
        place = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        differs = f"class {place} is {ours[place]!r} in {first.path} and {theirs[place]!r} in {other.path}"
    raise InputError(
        f"runs diagnosed together must have the same classes, in the same order; {differs}. Diagnose them separately."
    )


def labels_differ(first: Tensor, in_first: str, second: Tensor, in_second: str) -> str:
    """Describe how the test labels of two sources differ; empty if they do not."""
    if len(first) != len(second):
        return f"{in_first} has {len(first):,} test samples and {in_second} has {len(second):,}"
    differ = (first != second).nonzero()
    if not differ.numel():
        return ""
    row, number = int(differ[0]), f"({differ.numel():,} samples differ)"
    return f"{Row(row)} is of class {int(first[row])} in {in_first} and {int(second[row])} in {in_second} {number}"


_LOSS, _NAME = "loss.", "loss.loss"
_GIVEN = "name"  # of a run of another training loop
_UNLISTED = ".class_weights"  # in settings only where they are given, and not among the defaults
# Follow from other options, or only show that something else differs: named where nothing else separates two.
_HIDDEN = {"data_digest", "class_names", "input_shape", "n_words", "pixel_scale", "recipe.milestones", "recipe.warmup"}
_PROPER_NOUNS = {"Brier"}


def options_of(settings: RunSettings) -> dict[str, Option]:
    """Return every option but the seed, by its path."""
    plain = settings.as_dict()
    del plain["recipe"]["seed"]
    return flattened(plain)


def flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Option]:
    """Return nested options by their path; lists as tuples, so that options can be compared.

    Example:
        >>> flattened({"loss": "mmce", "base": {"loss": "focal", "gamma": 3.0}})
        {'loss': 'mmce', 'base.loss': 'focal', 'base.gamma': 3.0}
    """
    options: dict[str, Option] = {}
    for name, value in values.items():
        options |= flattened(value, f"{above}{name}.") if isinstance(value, Mapping) else {above + name: _fixed(value)}
    return options


def _fixed(value: Any) -> Option:
    if isinstance(value, Mapping):
        return tuple((name, _fixed(item)) for name, item in value.items())
    return tuple(_fixed(item) for item in value) if isinstance(value, list | tuple) else value


class CandidateName(NamedTuple):
    """Name of a candidate in a table, and in a sentence."""

    short: str
    words: str


def names_of(candidates: Sequence[Options]) -> list[CandidateName]:
    """Name each candidate, no two the same.

    A name is the loss, with its options that differ from their defaults, or else the first that differs among
    candidates of that loss; and whatever else differs and is not switched off: the network before it, the rest behind.

    Example:
        >>> [name.short for name in names_of([{"loss.loss": "focal", "loss.gamma": gamma} for gamma in (1.0, 3.0)])]
        ['focal(1)', 'focal(3)']
        >>> [name.short for name in names_of([{"loss.loss": "ce", "loss.class_weights": (1.0, 5.0)}])]
        ['ce([1, 5])']
        >>> names_of([{"loss.loss": "ce", "recipe.mixup": alpha} for alpha in (0.0, 0.2)])[1]
        CandidateName(short='ce mixup=0.2', words='cross-entropy with mixup 0.2')
    """
    if all(_GIVEN in options for options in candidates):
        return _given_names(candidates)
    differing = _differing(candidates)
    shown = [path for path in differing if path.partition(".")[0] not in _HIDDEN | {"loss"} and path not in _HIDDEN]
    names = [_name(options, candidates, shown) for options in candidates]
    often = Counter(name.short for name in names)
    for place, (name, options) in enumerate(zip(names, candidates, strict=True)):
        if often[name.short] > 1:  # add everything in which any candidates differ
            listed = ", ".join(f"{path}={_text(options[path])}" for path in differing if path in options)
            names[place] = CandidateName(f"{name.short} [{listed}]", f"{name.words} ({listed})")
    return names


def _given_names(candidates: Sequence[Options]) -> list[CandidateName]:
    """Name candidates of other training loops: by their names, with options where several have the same name."""
    names = []
    for options in candidates:
        name = str(options[_GIVEN])
        alike = [other for other in candidates if other[_GIVEN] == options[_GIVEN]]
        listed = {path: _text(options[path]) for path in _differing(alike) if options.get(path) is not None}
        short = f"{name}({', '.join(f'{path}={value}' for path, value in listed.items())})" if listed else name
        with_options = " and ".join(f"{path} {value}" for path, value in listed.items())
        names.append(CandidateName(short, f"{name} with {with_options}" if listed else name))
    return names


def _name(options: Options, candidates: Sequence[Options], others: list[str]) -> CandidateName:
    loss = str(options[_NAME])
    known: dict[str, type[Loss | MetaLoss]] = {**catalogue.losses.kinds, **catalogue.meta_losses.kinds}
    of_loss = [path for path in options if path.startswith(_LOSS) and path != _NAME]
    differing = set(_differing([other for other in candidates if other[_NAME] == loss]))
    usual = _defaults(options, known)
    known_paths = {*usual, *differing, *(path for path in of_loss if path.endswith(_UNLISTED))}
    unusual = [path for path in of_loss if path in known_paths and options[path] != usual.get(path)]
    paths = unusual or [path for path in of_loss if path in differing][:1]
    # A loss inside another goes by the option that it stands for.
    named = {path.removeprefix(_LOSS).removesuffix(".loss"): options[path] for path in paths}
    title = known[loss].title if loss in known else loss
    is_name = loss not in known or title.partition(" ")[0] in _PROPER_NOUNS or not title[1:2].islower()
    short, words = loss, title if is_name else title[0].lower() + title[1:]  # as it stands within a sentence
    if named:
        bare = paths == of_loss[:1]  # the first option of a loss goes without its name: focal(3)
        listed = ", ".join(_text(value) if bare else f"{name}={_text(value)}" for name, value in named.items())
        short, words = f"{short}({listed})", _with_options(words, named)
    given = {path: options[path] for path in others if options.get(path) is not None}
    is_off = {path for path, value in given.items() if value is False or (path == "recipe.mixup" and value == 0)}
    rest = {path.removeprefix("recipe."): value for path, value in given.items() if path not in is_off}
    model = rest.pop("model", None)
    short += "".join(f" {name}={_text(value)}" for name, value in rest.items())
    if rest:
        words += " with " + " and ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in rest.items())
    return CandidateName(*((short, words) if model is None else (f"{model} {short}", f"{words} on {model}")))


def _with_options(words: str, options: Options) -> str:
    """Return ``label smoothing 0.1``, where the title names the number; else ``focal loss (gamma 3)``."""
    (name, value), *more = options.items()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not more and is_number and name in words:
        return f"{words} {_text(value)}"
    listed = ", ".join(f"{name} {_text(value)}" for name, value in options.items())
    return f"{words[:-1]}, {listed})" if words.endswith(")") else f"{words} ({listed})"


def _defaults(options: Options, known: Mapping[str, type[Loss | MetaLoss]], above: str = _LOSS) -> dict[str, Option]:
    """Return the defaults of its loss by path, and those of losses inside it."""
    loss = options.get(f"{above}loss")
    if loss not in known:
        return {}
    usual = flattened(default_settings(known[str(loss)]), above)
    for path in options:
        inside = path.removesuffix("loss")
        if path.endswith(".loss") and path.startswith(above) and inside.count(".") == above.count(".") + 1:
            usual |= {name: value for name, value in _defaults(options, known, inside).items() if name != path}
    return usual


def _differing(candidates: Sequence[Options]) -> list[str]:
    """Return the paths whose values are not the same everywhere, in their order."""
    missing = object()
    paths = dict.fromkeys(path for options in candidates for path in options)
    return [path for path in paths if len({repr(options.get(path, missing)) for options in candidates}) > 1]


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to train, with one seed or several."""

    name: str  # in a table
    words: str  # in a sentence
    options: Options
    runs: tuple[DiagnosedRun, ...]  # by rising seed

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)


def grouped(runs: Sequence[DiagnosedRun]) -> tuple[Candidate, ...]:
    """Group runs of the same data, split, network, recipe and loss into candidates, in order of first appearance."""
    groups: dict[str, tuple[Options, list[DiagnosedRun]]] = {}
    if not isinstance(runs, Sequence) or not runs or not all(isinstance(run, DiagnosedRun) for run in runs):
        raise InputError("runs must be some that read_runs has read; got others, or none. Call read_runs(folders).")
    for run in runs:
        groups.setdefault(repr(sorted(run.options.items())), (run.options, []))[1].append(run)
    names = names_of([options for options, _ in groups.values()])
    return tuple(
        Candidate(name.short, name.words, options, tuple(sorted(members, key=lambda run: run.seed)))
        for name, (options, members) in zip(names, groups.values(), strict=True)
    )


def baseline_of(candidates: Sequence[Candidate], name: str | None = None) -> Candidate:
    """Return the candidate that the others are compared with: the named one; else plain cross-entropy; else the first.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name is not None:
        check_known(name, [candidate.name for candidate in candidates], "a candidate")
        return next(candidate for candidate in candidates if candidate.name == name)
    plain = (
        one
        for one in candidates
        if one.options.get(_GIVEN, one.options.get(_NAME)) == "ce" and not one.options.get("recipe.mixup")
    )
    return next(plain, candidates[0])


def candidate_notes(candidate: Candidate) -> Iterator[str]:
    """Note runs that lack records, which are left out of curves, and runs in which a learned γ ended at its limit."""
    for run in candidate.runs:
        if not run.is_recorded:
            recorded = f"{len(run.records)} of {run.settings.recipe.epochs} records"
            yield f"seed {run.seed}: epochs.jsonl has {recorded}, so the run is left out of the curves over epochs"
    lasts = [(run.seed, [record.learned for record in run.records if record.learned][-1:]) for run in candidate.runs]
    shares = [(seed, last[0].get("gamma_clipped")) for seed, last in lasts if last]
    clipped = [f"seed {seed}: {share:.1%} of samples" for seed, share in shares if share]
    if clipped:
        runs = "run" if len(candidate.runs) == 1 else "runs"
        yield f"γ at its limit in {len(clipped)} of {len(candidate.runs)} {runs} in the end ({', '.join(clipped)})"
