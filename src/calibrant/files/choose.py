"""Decide by the names in a source what to read from it: the scores, their kind, their classes, and the labels.

Names and options decide; values never do.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import groupby
from os import PathLike
from os.path import commonprefix
from typing import Any, Literal, TypeAlias, final, get_args

from torch import Tensor

from calibrant.errors import MULTI_LABEL, Argument, InputError, UnknownNameError
from calibrant.files.source import CHAT_HINT, PREFIXES, Column, Content, Kind, as_shares
from calibrant.labels import TRUTHS, Words, whole_number

Missing: TypeAlias = Literal["refuse", "drop", "keep"]  # "keep" is for scores that are written again
_LABELS = ("labels", "label", "targets", "ground_truth")
_SCORES: dict[Kind, tuple[str, ...]] = {
    "logits": ("logits", "logit", "log_probs", "logprobs"),  # log-probabilities are logits whose softmax they are
    "probs": ("probs", "prob", "probabilities"),
    "top-label": (),
}
_PREFIXES: dict[Kind, tuple[str, ...]] = {
    "logits": (PREFIXES["logits"], "logits_", "logprob_", "log_prob_", *(f"{name}." for name in _SCORES["logits"])),
    "probs": (PREFIXES["probs"], "probs_", *(f"{name}." for name in _SCORES["probs"])),
}  # with a point: an object by class in a line of JSON
_SEPARATORS = "_. :-"  # between what the names of columns share and the name of their class


_TYPES: dict[str, tuple[Any, str]] = {
    "kind": (str | None, "'logits', 'probs' or 'top-label'"), "normalise": (bool, "True or False"),
    "percent": (bool, "True or False"),
    "separator": (str | None, "one character, such as ';'"), "class_names": (Iterable | None, "a list of names"),
    "where": (Mapping | None, "a mapping of columns to values, such as {'part': 'test'}"),
    "positive_class": (str | int | None, "the label of the positive class"),
    "missing": (str, "'refuse' or 'drop'"),
}  # fmt: skip


@final
@dataclass(frozen=True)
class LoadOptions:
    """Options of :func:`calibrant.files.load`; None where the names in the source decide."""

    kind: Kind | None = None
    scores: str | Sequence[str] | None = None
    labels: str | None = None
    confidence: str | None = None
    correct: str | None = None
    labels_needed: bool = True
    extra: tuple[str, ...] = ()  # other columns to read, such as weights and groups, one entry per sample
    positive: str | None = None
    positive_class: str | None = None
    negative_class: str | None = None  # the only other label, where it is known
    class_names: Sequence[str] | None = None
    normalise: bool = False
    percent: bool = False
    separator: str | None = None
    where: Mapping[str, str | float | Sequence[str | float]] | None = None
    weights: str | None = None
    clusters: str | None = None
    missing: Missing = "refuse"  # what to do with rows without a score, label, weight or cluster

    def __post_init__(self) -> None:
        for option in ("labels", "confidence", "correct", "positive", "weights", "clusters"):
            if not isinstance(name := getattr(self, option), int | str | PathLike | None):
                hint = "Arrays go into a mapping: load({'probs': p, 'labels': y, 'w': w}, weights='w')."
                raise InputError(f"{option} must be the name of a column; got {type(name).__name__}. {hint}")
            object.__setattr__(self, option, str(name) if isinstance(name, int) else name)  # as pandas calls columns
        for option, (kind, words) in _TYPES.items():
            if not isinstance(given := getattr(self, option), kind):
                raise InputError(Argument(option), f" must be {words}; got {type(given).__name__}.")
        if self.missing not in get_args(Missing):
            raise InputError(Argument("missing"), f" must be 'refuse' or 'drop'; got {self.missing!r}.")
        if isinstance(self.positive_class, int):  # as labels are
            object.__setattr__(self, "positive_class", str(self.positive_class))
        if not isinstance(scores := self.scores, str | None):
            object.__setattr__(self, "scores", tuple(map(str, scores if isinstance(scores, Iterable) else [scores])))
        object.__setattr__(self, "where", self.where and {str(name): value for name, value in self.where.items()})

    @property
    def of_samples(self) -> tuple[str, ...]:
        """The columns of the weights and the clusters of the samples, where they are named."""
        return tuple(filter(None, (self.weights, self.clusters)))


@final
@dataclass(frozen=True)
class ColumnChoice:
    """The names of the columns or arrays to read, and the kind of their scores."""

    kind: Kind
    scores: tuple[str, ...]  # one, or one per class in the order of the classes; for the top label, the confidence
    labels: str | None  # for the top label, whether it is correct; None if there are none and none are needed
    class_names: tuple[str, ...] | None = None  # what the names of the scores call the classes, unless 0, 1, ...
    aliases: tuple[str, ...] = ()  # other names of the classes that labels may use
    positive: bool = False  # the one column of scores is that of the positive class


def choose(content: Content, options: LoadOptions) -> ColumnChoice:
    """Decide what to read from a source; exactly one complete set of names must be there."""
    if content.path is not None and content.path.suffix.lower() == ".npy":
        options = _of_one_array(content, options)
    if content.path is not None and content.noun == "column" and _are_data(content.names):
        raise content.error(
            f"{content.title} must begin with the names of the columns; its first row looks like data: "
            f"{shown_names(content)}. Put a row of names above it, such as ",
            *_names_instead(len(content.names)),
        )
    if options.positive is not None:
        return _choose_positive(content, options)
    kinds = _kinds(options)
    incomplete: list[ColumnChoice] = []  # of which only one half is present
    for kind in kinds:
        choice = ColumnChoice(kind, (), None)
        if kind != "top-label":
            labels = _find_column(content, _LABELS, options.labels, "labels")
            taken = {labels, *options.of_samples, *options.extra, *(options.where or ())}
            choice = _score_names(content, kind, options.scores, taken) or choice
        else:
            confidence = _find_column(content, ("confidence",), options.confidence, "confidence")
            labels = _find_column(content, ("correct",), options.correct, "correct")
            choice = ColumnChoice(kind, (confidence,) if confidence else (), None)
        if choice.scores and (labels or not options.labels_needed):
            return replace(choice, labels=labels)
        if choice.scores or (labels and kind == "top-label"):
            incomplete.append(choice)
    if incomplete and incomplete[0].kind != "top-label":
        raise _missing_labels_error(content, incomplete[0])
    raise _suggested_columns_error(content, kinds, options) or _missing_columns_error(
        content,
        [one.kind for one in incomplete[:1]] or kinds,
        labels_needed=options.labels_needed and not options.labels,
    )


def _are_data(names: Sequence[str]) -> bool:
    """Return whether the names of columns are numbers, not all of them whole as the numbers of classes are."""
    try:
        return not all(float(name).is_integer() for name in names) if names else False
    except (ValueError, OverflowError):
        return False


def _names_instead(n: int) -> tuple[str | Argument, ...]:
    """Return a row of names for so many columns, of which the last has the labels, as far as they have to be shown."""
    if n == 2:
        return "score,label, and pass ", Argument("positive", "score"), "."
    names = [f"prob_{place}" for place in range(n - 1)]
    return (f"{','.join(names if n < 7 else [*names[:2], '…', names[-1]])},label.",)


def _of_one_array(content: Content, options: LoadOptions) -> LoadOptions:
    """Return the options for a ``.npy`` file, which holds the scores alone: another file must have the labels."""
    name = content.names[0]
    is_one_column = options.positive is not None
    unknown = not is_one_column and options.kind is None and options.scores in {None, name} and _kind_of(name) is None
    either = (Argument("kind", "probs"), " or ", Argument("kind", "logits"))
    if options.labels is None and options.labels_needed:
        also = (" and ", *either) if unknown else ()
        labels = Argument("labels", "labels.npy")
        lacks = f"{content.title} must come with its labels; it holds one array, {shown_names(content)}. Pass "
        raise content.error(lacks, labels, *also, ".")
    if unknown:
        raise content.error(f"{content.title} needs ", *either, ", because its name does not tell which.")
    return options if is_one_column else replace(options, scores=options.scores or name)


def _choose_positive(content: Content, options: LoadOptions) -> ColumnChoice:
    """Choose the one column of the positive class, and the labels."""
    for name, given in (
        ("scores", options.scores),
        ("confidence", options.confidence),
        ("correct", options.correct),
        ("kind", None if options.kind in {None, "logits", "probs"} else options.kind),
    ):
        if given is not None:
            shown = Argument(name, str(given))
            raise InputError(Argument("positive"), " names one column of scores; got ", shown, " too. Leave it out.")
    column = _find_column(content, (), options.positive, "positive")
    labels = _find_column(content, _LABELS, options.labels, "labels")
    choice = ColumnChoice(options.kind or "probs", tuple(filter(None, (column,))), labels, positive=True)
    if column is None or (labels is None and options.labels_needed):
        raise _missing_labels_error(content, choice)
    return choice


def is_reserved_name(name: str) -> bool:
    """Return whether a column name is reserved for scores or labels."""
    known = {*_LABELS, "predictions", "confidence", "correct"}.union(*_SCORES.values())
    return name in known or name.startswith(tuple(prefix for some in _PREFIXES.values() for prefix in some))


def _kinds(options: LoadOptions) -> tuple[Kind, ...]:
    """Return the kinds that the options allow, in order of preference."""
    kind = options.kind
    if kind is not None and kind not in get_args(Kind):
        raise UnknownNameError(f"kind must be 'logits', 'probs' or 'top-label'; got {kind!r}.")
    top = options.confidence is not None or options.correct is not None
    full = options.scores is not None or options.labels is not None
    if (top and full) or (top and kind not in {None, "top-label"}) or (full and kind == "top-label"):
        raise InputError(
            *(Argument("confidence"), " and ", Argument("correct"), " belong to ", Argument("kind", "top-label"), ", "),
            *(Argument("scores"), " and ", Argument("labels"), " to ", Argument("kind", "logits"), " or "),
            *(Argument("kind", "probs"), "; got both. Leave one pair out."),
        )
    if kind is not None:
        return (kind,)
    if top:
        return ("top-label",)
    if options.scores is not None:
        named = {_kind_of(name) for name in split_scores(options.scores)}
        if len(named) == 1 and (kind := named.pop()) is not None:
            return (kind,)
        raise InputError(
            Argument("scores", options.scores if isinstance(options.scores, str) else ",".join(options.scores)),
            *(" needs ", Argument("kind", "logits"), " or ", Argument("kind", "probs")),
            ", because the name does not tell which.",
        )
    return ("logits", "probs") if full or not options.labels_needed else ("logits", "probs", "top-label")


def split_scores(scores: str | Sequence[str]) -> list[str]:
    """Return the names in a list with commas between them, or of several names."""
    return [name.strip() for name in scores.split(",")] if isinstance(scores, str) else list(scores)


def _split_names(scores: str | Sequence[str], names: Collection[str]) -> list[str]:
    """Return the names in a list with commas between them; a column whose name has commas is one."""
    if not isinstance(scores, str) or not any("," in name for name in names):
        return split_scores(scores)
    parts, most, listed = scores.split(","), max(name.count(",") for name in names) + 1, []
    while parts:
        starts = [",".join(parts[:size]).strip() for size in range(min(most, len(parts)), 0, -1)]
        listed.append(next((start for start in starts if start in names), starts[-1]))
        parts = parts[listed[-1].count(",") + 1 :]
    return listed


def _kind_of(name: str) -> Kind | None:
    """Return the kind that a name tells: ``probs``, ``prob_3``, ``prob_*``, ``model1_prob_*``, ``val_logits``."""
    for kind, prefixes in _PREFIXES.items():
        known = _SCORES[kind]
        begins = any(f"_{prefix}" in f"_{name}" for prefix in prefixes)  # or the name of a model does
        if name in known or begins or name.endswith(tuple(f"_{word}" for word in known)):
            return kind
    return None


def _find_column(content: Content, known: tuple[str, ...], requested: str | None, option: str) -> str | None:
    """Return the name that was requested or is known, or None if it is not in the source."""
    if requested is not None and requested not in content.names:
        raise UnknownNameError(
            Argument(option, requested),
            f" must be among the {content.noun}s of {content.title}; found {shown_names(content)}.",
        )
    names = [name for name in content.names if (name in known if requested is None else name == requested)]
    if len(names) > 1:
        raise content.error(
            f"{content.title} must have one {content.noun} of {option}; found {', '.join(map(repr, names))}. ",
            *(("Pass ", Argument(option, names[0]), " or the other.") if len(set(names)) > 1 else ("Rename one.",)),
        )
    return names[0] if names else None


def _score_names(
    content: Content, kind: Kind, requested: str | Sequence[str] | None, taken: Collection[str | None]
) -> ColumnChoice | None:
    """Return the columns of the scores in the order of the classes, and what they call these; None without any."""
    if requested is not None:
        return _requested_scores(content, kind, requested, taken)
    known = _SCORES[kind]
    if kind == "probs" and "ground_truth" in content.names:
        known = (*known, "predictions")
    whole = _find_column(content, known, None, "scores")
    groups = [group for prefix in _PREFIXES[kind] if (group := _with_prefix(content, kind, prefix, taken)) is not None]
    sets = [*([] if whole is None else [(whole,)]), *(group.scores for group in groups)]
    if len(sets) > 1:
        first, second = (" and ".join(repr(name) for name in names[:2]) for names in sets[:2])
        options = [names[0] if len(names) == 1 else f"{_stem(names[0])}*" for names in sets[:2]]
        raise content.error(
            f"{content.title} must have one set of {kind}; found {first}, and {second}. Pass ",
            *(Argument("kind", kind), " with ", Argument("scores", options[0]), " or "),
            *(Argument("scores", options[1]), "."),
        )
    return groups[0] if groups else ColumnChoice(kind, (whole,), None) if whole else None


def _requested_scores(
    content: Content, kind: Kind, requested: str | Sequence[str], taken: Collection[str | None]
) -> ColumnChoice:
    """Return the columns that a name, a range, a list, a pattern or a prefix means; a name goes first."""
    if isinstance(requested, str) and requested in content.names:
        column = _find_column(content, (), requested, "scores")
        return ColumnChoice(kind, (column,) if column else (), None)
    listed = _between(content.names, requested, taken) or _split_names(requested, content.names)
    if len(listed) > 1 or not isinstance(requested, str):
        unknown = next((name for name in listed if name not in content.names), None)
        if unknown is not None:
            close = get_close_matches(unknown, content.names, n=1)
            raise UnknownNameError(
                Argument("scores", ",".join(listed)),
                f" must name {content.noun}s of {content.title}; there is no {unknown!r}"
                + "".join(f" (the nearest is {name!r})" for name in close)
                + f"; found {shown_names(content)}.",
            )
        return _listed(content, kind, listed)
    if any(mark in requested for mark in "*?["):
        start, end = re.split(r"[*?\[]", requested, maxsplit=1)[0], re.split(r"[*?\]]", requested)[-1]
        names = [name for name in content.names if name not in taken and fnmatchcase(name, requested)]
        group = _group(content, kind, names, [name[len(start) : len(name) - len(end)] for name in names], requested)
    else:
        group = _with_prefix(content, kind, requested, taken)
    if group is None:
        raise UnknownNameError(
            Argument("scores", requested),
            f" must be among the {content.noun}s of {content.title}, a list of them with commas between, a range "
            f"'first:last', or a pattern (such as 'prob_*') or prefix of at least two; found {shown_names(content)}.",
        )
    return group


def _between(names: Sequence[str], requested: str | Sequence[str], taken: Collection[str | None]) -> list[str]:
    """Return the names that a range ``first:last`` means, but those taken; none if it is no range."""
    if not isinstance(requested, str):
        return []
    for colon in re.finditer(":", requested):  # names may have colons, too
        first, last = requested[: colon.start()], requested[colon.end() :]
        if first in names and last in names:
            return [name for name in names[names.index(first) : names.index(last) + 1] if name not in taken]
    return []


def _listed(content: Content, kind: Kind, names: list[str]) -> ColumnChoice:
    """Return columns in the order of a list: classes by the numbers at their ends, or by their names."""
    twice, times = Counter(names).most_common(1)[0]
    if times > 1 or any(content.names.count(name) > 1 for name in names):
        raise content.error(f"{content.title} must have, and the list name, every {content.noun} once; got {twice!r}.")
    stem = _stem(names[0])
    ends = [name.removeprefix(stem) for name in names]
    if all(name.startswith(stem) and whole_number(end) is not None for name, end in zip(names, ends, strict=True)):
        numbers = [whole_number(end) for end in ends]
        class_names = None if numbers == list(range(len(names))) else tuple(map(str, numbers))
        return ColumnChoice(kind, tuple(names), None, class_names, tuple(names))
    shared = re.sub(rf"[^{_SEPARATORS}]*$", "", commonprefix(names))  # noqa: RUF071 - by character is meant
    return ColumnChoice(kind, tuple(names), None, tuple(names), tuple(name.removeprefix(shared) for name in names))


def _stem(name: str) -> str:
    """Return a name without the digits at its end."""
    return re.sub(r"\d+$", "", name)


def _with_prefix(content: Content, kind: Kind, prefix: str, taken: Collection[str | None]) -> ColumnChoice | None:
    names = [name for name in content.names if name not in taken and name.startswith(prefix)]
    return _group(content, kind, names, [name.removeprefix(prefix) for name in names], f"{prefix}*")


def _group(
    content: Content, kind: Kind, names: Sequence[str], ends: Sequence[str], pattern: str
) -> ColumnChoice | None:
    """Return columns in the order of the classes that their names' varying parts call; None if fewer than two.

    Numbers give the order, and must have no gap. Words keep that of the source.
    """
    if len(names) < 2:
        return None
    if ends[0][:1] in _SEPARATORS and len({end[:1] for end in ends}) == 1:
        ends = [end[1:] for end in ends]
    numbers = [whole_number(end) for end in ends]
    numbered = [number is not None for number in numbers]
    if any(numbered) and not all(numbered):
        raise content.error(
            f"the {content.noun}s {pattern} of {content.title} must end in numbers, or all in class names; found "
            f"{names[numbered.index(True)]!r} and {names[numbered.index(False)]!r}. Rename or remove the wrong one, or "
            "choose by a pattern, as ",
            *(Argument("scores", f"{_stem(names[numbered.index(True)])}[0-9]*"), "."),
        )
    by_class: dict[int | str, str] = dict(zip(numbers if all(numbered) else ends, names, strict=True))  # type: ignore[arg-type]
    if len(by_class) < len(names):
        twice, times = Counter(numbers if all(numbered) else ends).most_common(1)[0]
        wanted = str(twice).join(names[0].rsplit(ends[0], 1))
        raise content.error(f"{content.title} must have one {content.noun} {wanted}; found {times}. Rename one.")
    if not all(numbered):
        return ColumnChoice(kind, tuple(names), None, tuple(ends), tuple(names))
    lowest = min(number for number in numbers if number is not None)
    classes = range(lowest, lowest + len(names))
    gap = next((number for number in classes if number not in by_class), None)
    if gap is not None:
        wanted = str(gap).join(names[0].rsplit(ends[0], 1))
        raise content.error(
            f"the {content.noun}s {pattern} of {content.title} must be numbered without a gap; {wanted} is missing "
            f"(found {names[0]!r} to {names[-1]!r}). Add it, rename the others, or list all as ",
            *(Argument("scores", "a,b,..."), "."),
        )
    scores = tuple(by_class[number] for number in classes)
    class_names = None if lowest == 0 else tuple(map(str, classes))
    return ColumnChoice(kind, scores, None, class_names, aliases=scores)


_SHOWN, _ENDS = 8, 3  # names in a message; more numbered columns in a row than this are shown by their ends
_WIDEST, _LARGEST = 1000, 1 << 26  # columns and bytes of a table that is read for a suggestion
_LONGEST = 80  # letters of a list of columns in it; a longer one is a range
_NEEDED = {
    "logits": "'logits' (or 'logit_0', 'logit_1', ...)",
    "probs": "'probs' (or 'probabilities', or 'prob_0', 'prob_1', ...)",
    "top-label": "'confidence' with 'correct'",
}
_LIKE = {
    "labels": ("label", "labels", "target", "targets", "ground_truth", "y", "y_true", "true", "class", "gt", "gold"),
    "confidence": ("confidence", "confidences", "conf", "score"),
    "correct": ("correct", "is_correct", "right", "accuracy"),
}


def _missing_labels_error(content: Content, choice: ColumnChoice) -> InputError:
    likely = _like(content, "labels") or _labels_of(content, choice)
    of_classes = [name for name in content.names if name.startswith(tuple(f"{word}_" for word in _LIKE["labels"]))]
    multi_label = (" ", *MULTI_LABEL) if not likely and len(of_classes) > 1 else ()
    return content.error(
        f"{content.title} must have labels beside the scores, as {content.noun} {', '.join(map(repr, _LABELS))}; found "
        f"{shown_names(content)}. {content.hint}".rstrip()
        + " Pass ",
        *(_suggested("labels", likely), "." if likely else ", or add them: without labels only apply and shift work."),
        *multi_label,
    )


def _missing_columns_error(content: Content, kinds: Sequence[Kind], *, labels_needed: bool = True) -> InputError:
    """Return the error for a source without a complete set of names; it suggests likely ones."""
    parts = [
        f"{_NEEDED[kind]} with 'labels'" if labels_needed and kind != "top-label" else _NEEDED[kind] for kind in kinds
    ]
    needed = ", or ".join(parts)
    options: list[str | Argument] = []
    one_column: tuple[str | Argument, ...] = ()
    if (_is_top(content) and "top-label" in kinds) or list(kinds) == ["top-label"]:
        if len(kinds) > 1:
            options += [" and ", Argument("kind", "top-label")]
        for name in ("confidence", "correct"):
            if name not in content.names:
                options += [" and ", _suggested(name, _like(content, name))]
    else:
        likely, is_table = _like(content, "labels"), content.noun == "column"
        others = [name for name in content.names if name != likely and name.strip()]
        if is_table and len(others) <= _SHOWN:
            others = [name for name in others if name in _numbers(content)] or others
        named = likely is not None and is_table and 1 < len(others) <= _SHOWN
        models = _scores_of_models(content.names)
        scores = next(iter(models), None) or _scores_like(content) or (",".join(others) if named else None)
        unknown = ("FIRST:LAST" if len(others) > _SHOWN else "A,B,C") if is_table else "NAME"
        if len(kinds) > 1 and not models:
            options += [" and ", Argument("kind", "logits"), " (or ", Argument("kind", "probs"), ")"]
        options += [" and ", _suggested("scores", scores, unknown)]
        options += [" (or ", Argument("scores", models[1]), ")"] if len(models) > 1 else []
        if labels_needed and likely not in _LABELS:
            options += [" and ", _suggested("labels", likely)]
        if "probs" in kinds and is_table:
            column = _suggested("positive", others[0] if len(others) == 1 else None)
            one_column = (" If one column has the scores of two classes: ", column, ".")
    must = f"{content.title} must have {content.noun}s {needed}; found {shown_names(content)}. {content.hint}".rstrip()
    if any(re.fullmatch(r"(.*\.)?(choices|logprobs\.content|top_logprobs)", name) for name in content.names):
        return content.error(must + CHAT_HINT)
    return content.error(must, " Rename the intended one, or pass ", *options[1:], ".", *one_column)


def _labels_of(content: Content, choice: ColumnChoice) -> str | None:
    """Return the only column whose values could be the labels of these scores, for a hint."""
    classes = {*(choice.class_names or map(str, range(len(choice.scores)))), *choice.aliases}
    values = {name: _values_of(column) for name, column in _small_table(content).items() if name not in choice.scores}
    fits = [name for name, own in values.items() if (len(own) == 2 if choice.positive else own and own <= classes)]
    return fits[0] if len(fits) == 1 else None


def _small_table(content: Content) -> Mapping[str, Column]:
    """Return the columns of a table, for a suggestion: values suggest, and never decide. Nothing of a large one."""
    size = 0 if content.path is None else content.path.stat().st_size
    if content.noun != "column" or not len(set(content.names)) == len(content.names) <= _WIDEST or size > _LARGEST:
        return {}
    try:
        columns = content.read(content.names, content.names)
        return {name: as_shares(column, name, percent=False) for name, column in columns.items()}
    except InputError:  # of a file with another fault
        return {}


def _values_of(column: Column) -> set[str]:
    """Return the different words, or whole numbers, of a column; nothing of one with fractions."""
    if isinstance(column, Words):
        return {word for word in column.distinct if word.strip()}
    numbers = column.double().unique()
    is_whole = column.ndim == 1 and len(numbers) <= _WIDEST and bool((numbers % 1 == 0).all())
    return {str(int(number)) for number in numbers} if is_whole else set()


def suggested_columns(content: Content) -> ColumnChoice | None:
    """Return the columns of a table that the values of another one name, as scores of these classes; None without.

    It is for a person to confirm.
    """
    columns = _small_table(content) if len(content.names) > 2 else {}
    for labels, words in columns.items():
        if not isinstance(words, Words):
            continue
        places = [place for place, name in enumerate(content.names) if name in words.distinct]
        if 1 < len(places) == len(words.distinct):
            names = content.names[places[0] : places[-1] + 1]  # classes without a sample lie between the others
            scores = [column for name in names if isinstance(column := columns[name], Tensor)]
            if len(scores) == len(names):
                return ColumnChoice("probs" if all(map(_are_shares, scores)) else "logits", names, labels)
    return None


def _are_shares(column: Tensor) -> bool:
    return bool(((column >= 0) & (column <= 1)).all())


def _suggested_columns_error(content: Content, kinds: Sequence[Kind], options: LoadOptions) -> InputError | None:
    """Return the error for a table whose values show what is in its columns; None of others."""
    start = f"{content.title} must have scores and labels under known names; found {shown_names(content)}. "
    chosen = suggested_columns(content)
    if chosen is not None and chosen.kind in kinds:
        listed = ",".join(chosen.scores)
        return content.error(
            f"{start}The values of {chosen.labels!r} are names of other columns: pass ",
            *(Argument("kind", chosen.kind), " and "),
            Argument("scores", listed if len(listed) <= _LONGEST else f"{chosen.scores[0]}:{chosen.scores[-1]}"),
            *(" and ", Argument("labels", chosen.labels), "."),
        )
    columns = _small_table(content) if options.labels_needed and options.scores is None and not _is_top(content) else {}
    pairs = [name for name, own in columns.items() if len(_values_of(own)) == 2 and options.labels in {None, name}]
    numbers = {name: own for name, own in _numbers(content).items() if name not in pairs} if pairs else {}
    probs = [name for name, own in numbers.items() if _are_shares(own)]
    logits = [name for name, own in numbers.items() if bool((own < 0).any() and (own > 0).any())]
    kind: Kind = "probs" if probs else "logits"
    if kind not in kinds or len(pairs) != 1 or len(scores := probs or logits) != 1:
        return None
    is_named = {value.lower() for value in _values_of(columns[pairs[0]])}.isdisjoint(TRUTHS)
    range_, what = ("from 0 to 1", "the probability") if probs else ("of both signs", "the log-odds, or a score,")
    return content.error(
        f"{start}{scores[0]!r} has numbers {range_}, and {pairs[0]!r} has two values. If they are {what} of one of two "
        "classes and the labels, pass ",
        *(Argument("positive", scores[0]), ", ", Argument("kind", kind), " and ", Argument("labels", pairs[0])),
        *((", and the label whose scores they are: ", _suggested("positive_class", None)) if is_named else ()),
        ".",
    )


def _numbers(content: Content) -> dict[str, Tensor]:
    """Return the columns of numbers of a small table; where some have fractions, only those."""
    numbers = {name: own for name, own in _small_table(content).items() if isinstance(own, Tensor) and own.ndim == 1}
    return {name: own for name, own in numbers.items() if bool((own.double() % 1 != 0).any())} or numbers


def _is_top(content: Content) -> bool:
    """Return whether names are like those of a confidence and of whether the prediction is correct."""
    return all(_like(content, name) for name in ("confidence", "correct"))


def shown_names(content: Content) -> str:
    """Return the first names of a source, with their shapes where these are known; numbered columns by their ends."""
    is_table = content.noun == "column"
    runs = [[*run] for _, run in groupby(content.names, lambda name: re.sub(r"\d+$", "#", name) if is_table else name)]
    runs = [part for run in runs for part in ([run] if len(run) > _ENDS else ([name] for name in run))]
    listed = []
    for first, *others in runs[:_SHOWN]:
        shape = content.shape(first) if content.names.count(first) == 1 else (None,)  # a repeated name has no one shape
        sizes = "lists" if shape == (None, None) else " x ".join("?" if size is None else str(size) for size in shape)
        size = "" if shape == (None,) else f" ({sizes})"
        listed.append(f"{first!r} to {others[-1]!r}" if others else f"{first!r}{size}")
    rest = sum(map(len, runs[_SHOWN:]))
    return (", ".join(listed) or "nothing") + (f" and {rest} more" if rest > 0 else "")


def _suggested(option: str, value: str | None, unknown: str = "NAME") -> Argument:
    return Argument(option, unknown, is_literal=False) if value is None else Argument(option, value)


def _scores_like(content: Content) -> str | None:
    """Return the name of the only matrix, or what numbered names have in common, that could be the scores."""
    numbered: dict[str, list[float]] = {}
    for match in filter(None, (re.fullmatch(r"(.*[^\W\d]\D*)(\d+)", name) for name in content.names)):
        numbered.setdefault(match[1], []).append(float(match[2]))
    prefix, numbers = max(numbered.items(), key=lambda item: len(item[1]), default=("", []))
    if len(numbers) > 1:  # with a gap they are a part of the scores, or none
        return None if prefix in PREFIXES.values() or max(numbers) - min(numbers) >= len(numbers) else prefix
    if sum(name.isdecimal() for name in content.names) > 1:
        return "[0-9]*"
    wide = [name for name in content.names[:_SHOWN] if content.names.count(name) == 1 and len(content.shape(name)) == 2]
    return wide[0] if len(wide) == 1 and not is_reserved_name(wide[0]) else None


def _scores_of_models(names: Sequence[str]) -> list[str]:
    """Return patterns of the columns that begin alike, up to a known prefix of scores: ``model1_prob_*``."""
    known = "|".join(re.escape(prefix) for prefixes in _PREFIXES.values() for prefix in prefixes)
    starts = Counter(match[1] for match in (re.match(rf"(.+?_(?:{known})).", name) for name in names) if match)
    return [f"{start}*" for start, count in starts.items() if count > 1]


def _like(content: Content, option: str) -> str | None:
    """Return a name that differs from a usual one in case or by a letter."""
    lowered = {name.lower(): name for name in reversed(content.names)}
    for word in _LIKE[option]:
        if word in lowered:
            return lowered[word]
    close = get_close_matches(_LIKE[option][0], list(lowered), n=1, cutoff=0.8)
    return lowered[close[0]] if close else None
