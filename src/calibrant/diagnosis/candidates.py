"""Candidates: runs that differ in the seed alone, named by the options in which they differ from other candidates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

from calibrant import catalogue
from calibrant.checks import check_known
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.losses import Loss, MetaLoss, loss_settings
from calibrant.training.recipe import RunSettings

__all__ = [
    "Candidate",
    "CandidateName",
    "Option",
    "baseline_of",
    "candidate_notes",
    "flattened",
    "grouped",
    "names_of",
    "options_of",
]

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
    known = {**catalogue.losses, **catalogue.meta_losses}
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


def _usual(one: Mapping[str, Option], known: Mapping[str, Loss | MetaLoss], above: str = _LOSS) -> dict[str, Option]:
    """The defaults of its loss by path, and those of losses inside it."""
    loss = one.get(f"{above}loss")
    if loss not in known:
        return {}
    usual = flattened(loss_settings(known[str(loss)]), above)
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
        candidate: From :func:`~calibrant.diagnosis.candidates.grouped`.
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
