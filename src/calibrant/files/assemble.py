"""Build predictions of the columns that a source holds: its complete rows, and the meaning of scores and labels."""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from calibrant.checks import as_whole_numbers, text_outside
from calibrant.errors import Argument, InputError, Row, warn
from calibrant.files.choose import ColumnChoice, LoadOptions
from calibrant.files.source import OWN_CLASSES, PERCENT, Arrays, Column, Content, as_shares, text_error
from calibrant.labels import TRUTHS, Words, class_numbers, nearest, truths, whole_number, words_of
from calibrant.predictions import OF_CORRECTNESS, Predictions, TopLabel
from calibrant.text import listed


def complete(content: Content, choice: ColumnChoice, options: LoadOptions, others: Any = ()) -> Content:
    """Return a source without rows that lack a score, label, weight or cluster, unless refused, and without others."""
    if options.missing == "refuse":
        return content
    cached = holding(content)
    labels, weights = choice.labels, options.weights if options.missing == "drop" else None
    held = cached.read(list(dict.fromkeys([*choice.scores, *filter(None, (labels, weights))])), _text(choice))
    if options.clusters not in held and options.clusters is not None and options.missing == "drop":
        held |= cached.read([options.clusters], [options.clusters])
    lacking = lacking_rows(held, content, choice, options)
    if lacking is not None and len(others):
        lacking[others[others < len(lacking)]] = True
    if lacking is None or not lacking.any():
        return cached
    rows = (~lacking).nonzero()[:, 0]

    def read_rows(wanted: Sequence[str], text: Collection[str] | None) -> Arrays:
        return {name: rows_of(column, rows) for name, column in cached.read(wanted, text).items()}

    return replace(content, read=read_rows, kept=~lacking)


def holding(content: Content) -> Content:
    """Return a source that reads no column twice."""
    held: Arrays = {}

    def read(wanted: Sequence[str], text: Collection[str] | None) -> Arrays:
        words = [text] if isinstance(text, str) else text or ()
        if others := [name for name in wanted if name not in held]:
            held.update(content.read(others, [name for name in words if name in others]))
        return {name: held[name] for name in wanted}

    return replace(content, read=read)


def _text(choice: ColumnChoice) -> str | None:
    return None if choice.kind == "top-label" else choice.labels


def lacking_rows(columns: Arrays, content: Content, choice: ColumnChoice, options: LoadOptions) -> Tensor | None:
    """Return which rows lack a value in some column, bool (n,); None if the columns differ in length."""
    known = None if options.positive_class else {*(_class_names(content, choice, options) or ()), *choice.aliases}
    parts = [
        column.lacking(known if name == choice.labels else ()) if isinstance(column, Words) else _is_nan(column)
        for name, column in columns.items()
        if isinstance(column, Words) or column.ndim
    ]
    return torch.stack(parts).any(0) if len({len(part) for part in parts}) == 1 else None


def _is_nan(column: Tensor) -> Tensor:
    """Return which rows have a NaN, bool (n,)."""
    if not column.is_floating_point():
        return torch.zeros(len(column), dtype=torch.bool)
    lacks = (column.float() if column.dtype.itemsize == 1 else column).isnan()  # which float8 has no test for
    return lacks if lacks.ndim == 1 else lacks.flatten(1).any(1)


@contextmanager
def renumbered(content: Content) -> Iterator[None]:
    """Name in errors the rows of a source that has lost some by the numbers that they had."""
    try:
        yield
    except InputError as error:
        if content.kept is None:
            raise
        places = content.kept.nonzero()[:, 0].tolist()
        parts = [Row(places[part.number]) if isinstance(part, Row) else part for part in error.args]
        raise InputError(*parts, argument=error.argument) from error


def assemble(content: Content, choice: ColumnChoice, options: LoadOptions) -> Predictions | TopLabel:
    """Read the chosen names and build the record."""
    names = choice.scores if choice.labels is None else (*choice.scores, choice.labels)
    columns = content.read(names, _text(choice))
    try:
        return _record(columns, content, choice, options)
    except InputError as error:
        rows = [part.number for part in error.args if isinstance(part, Row)]
        lacking = lacking_rows(columns, content, choice, options)
        if lacking is None or not len(lacking) or not bool(lacking[rows].any() if rows else lacking.all()):
            raise
        row = int(lacking.nonzero()[0, 0])
        alone = {name: lacking_rows({name: columns[name]}, content, choice, options) for name in names}
        empty = [name for name, own in alone.items() if own is not None and own[row]]
        hint = f" {OWN_CLASSES}" if int(lacking.sum()) > 1 and set(empty) < {*choice.scores} else ""
        raise _missing_error(empty[0], content, row, int(lacking.sum()), options, hint) from error


def with_samples(
    predictions: Predictions | TopLabel, columns: Arrays, content: Content, options: LoadOptions
) -> Predictions | TopLabel:
    """Return predictions with the weights and clusters that the options name among other columns."""
    if options.weights is not None:
        predictions = predictions.with_weights(numbers_of(columns[options.weights], options.weights))
    if options.clusters is None:
        return predictions
    column = columns[options.clusters]
    rows = (column.lacking(()) if isinstance(column, Words) else _is_nan(column)).nonzero()[:, 0]
    if len(rows):
        raise _missing_error(options.clusters, content, int(rows[0]), len(rows), options)
    return predictions.with_clusters(column)


def _missing_error(
    name: str, content: Content, row: int, rows: int, options: LoadOptions, hint: str = ""
) -> InputError:
    others = f", one of {rows:,} such rows" if rows > 1 else ""
    advice = "drop them" if options.labels_needed else "keep them as they are"
    return InputError(
        f"{content.noun} {name!r} must have a value in every row; got none (null, NaN or an empty field) at ",
        *(Row(row), f"{others}. Fill it in, or {advice}: "),
        *(Argument("missing", "drop" if options.labels_needed else "keep"), f".{hint}"),
    )


def _record(columns: Arrays, content: Content, choice: ColumnChoice, options: LoadOptions) -> Predictions | TopLabel:
    """Build the record of what was read."""
    scores = _scores(columns, choice, options)
    if options.normalise and (choice.kind != "probs" or choice.positive):
        raise InputError(Argument("normalise"), " is for probabilities of all classes. Leave it out.")
    if choice.kind == "top-label":
        assert choice.labels is not None
        correct = columns[choice.labels]
        if options.positive_class is not None:
            correct = _two_classes(correct, choice.labels, options, None)[0].bool()
        correct = truths(correct, repr(choice.labels)) if isinstance(correct, Words) else correct
        with _refusing_percentages(columns, choice, options):
            return TopLabel(scores, correct)
    labels = None if choice.labels is None else columns[choice.labels]
    _check_labelled(labels)
    if isinstance(labels, Tensor) and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    class_names = _class_names(content, choice, options)
    is_single = scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1)
    is_positive = choice.positive or (is_single and choice.scores == ("predictions",))  # netcal's two-class records
    _check_not_swapped(scores, labels, choice)
    if is_single and not is_positive and choice.kind == "probs":
        raise InputError(
            f"{choice.scores[0]!r} must hold the probability of every class; it has one a row. If that is the positive "
            "class of two, pass ",
            *(Argument("positive", choice.scores[0]), "."),
        )
    if labels is None:
        is_ranked = scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype != torch.bool and not scores.is_complex()
        numbers = scores.argmax(dim=1) if is_ranked else torch.zeros(scores.shape[:1], dtype=torch.int64)
    elif is_positive:
        numbers, class_names = _two_classes(labels, str(choice.labels), options, class_names)
        class_names = OF_CORRECTNESS if class_names is None and choice.labels == "correct" else class_names
    else:
        numbers = _labels(labels, str(choice.labels), choice, class_names)
    if choice.kind == "logits":
        make = Predictions.from_binary_logits if is_single else Predictions.from_logits
        return make(scores, numbers, class_names=class_names)
    with _refusing_percentages(columns, choice, options):
        if is_positive:
            return Predictions.from_binary_probs(scores, numbers, class_names=class_names)
        return Predictions.from_probs(scores, numbers, class_names=class_names, normalise=options.normalise)


def _scores(columns: Arrays, choice: ColumnChoice, options: LoadOptions) -> Tensor:
    """Return the scores, of which probabilities are shares of one: (n,), or with more than one column (n, k)."""
    if choice.kind == "logits":
        if options.percent:
            raise InputError(Argument("percent"), " is for probabilities and confidences. Leave it out.")
        return _as_matrix([numbers_of(columns[name], name) for name in choice.scores])
    shares = [numbers_of(as_shares(columns[name], name, percent=options.percent), name) for name in choice.scores]
    if options.percent and all(share.numel() and bool((share <= 0.01).all()) for share in shares):
        names = listed(map(repr, choice.scores), 2)
        warn(f"No percentage in {names} is above 1. If these are shares of one, leave out the option percent.")
    return _as_matrix(shares).contiguous()


@contextmanager
def _refusing_percentages(columns: Arrays, choice: ColumnChoice, options: LoadOptions) -> Iterator[None]:
    """Raise another error if what was read as shares of one looks like percentages."""
    try:
        yield
    except InputError as error:
        if options.percent or options.normalise:
            raise
        for name in choice.scores:
            numbers = numbers_of(as_shares(columns[name], name, percent=False), name)
            if numbers.is_complex():
                raise
            numbers = numbers.double()
            above = (numbers > 1).nonzero().tolist()
            if above and bool(((numbers >= 0) & (numbers <= 100)).all()):
                is_whole = choice.kind == "probs" and not choice.positive
                counts = ("; if counts, pass ", Argument("normalise", "True", is_literal=False)) if is_whole else ()
                raise InputError(
                    f"{name!r} must lie in 0..1; got {text_outside(numbers[tuple(above[0])].item(), 1)} at ",
                    *(Row(above[0][0]), ". If these are percentages, pass ", PERCENT, *counts),
                    "." if choice.kind == "top-label" else "; if logits, pass them as logits.",
                ) from error
        raise


def _check_labelled(labels: Column | None) -> None:
    """Raise if a row has no label; it would otherwise count as a class of its own."""
    if labels is not None:
        lacking = (labels.lacking() if isinstance(labels, Words) else _is_nan(labels)).nonzero()
        if len(lacking):
            raise InputError("labels must have a value in every row; got none at ", Row(int(lacking[0, 0])), ".")


def _class_names(content: Content, choice: ColumnChoice, options: LoadOptions) -> tuple[str, ...] | None:
    """Return the class names that the options, the source, or the names of the columns give."""
    if options.class_names is not None:
        return tuple(options.class_names)
    if choice.class_names and content.class_names and choice.class_names != content.class_names:
        raise InputError(
            f"the names of the scores and class_names must agree; got {choice.class_names[0]!r}, "
            f"{choice.class_names[1]!r}, ... and {', '.join(map(repr, content.class_names[:2]))}, ..."
        )
    return content.class_names or content.label_names.get(choice.labels or "") or choice.class_names


def _as_matrix(columns: Sequence[Tensor]) -> Tensor:
    """Return several columns as a matrix, stored by columns, in float64 if their types differ; one unchanged."""
    if len(columns) == 1:
        return columns[0]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = sorted({tuple(column.shape) for column in columns})
        raise InputError(f"scores of one class each must have one number a row, shape (n,); got shapes {shapes}.")
    is_one_type = len({column.dtype for column in columns}) == 1
    return torch.stack([column if is_one_type else column.double() for column in columns]).T


def numbers_of(column: Column, name: str) -> Tensor:
    """Return a column of numbers, or raise if it holds text."""
    if isinstance(column, Tensor):
        return column

    def is_not_numeric(word: str) -> bool:
        try:
            return not math.isfinite(float(word))  # a CSV file with "nan" in it holds text
        except ValueError:
            return True

    text = column.first(lambda word: bool(word.strip()) and is_not_numeric(word))
    row, word = text or column.first(is_not_numeric) or (0, column.distinct[0])
    raise text_error(name, word, row)


def _labels(column: Column, name: str, choice: ColumnChoice, class_names: tuple[str, ...] | None) -> Tensor:
    """Return labels as class numbers: names of classes, or the numbers in the names of the scores, or 0, 1, ..."""
    numbers = [whole_number(end) for end in choice.class_names or ()]
    is_numbered = bool(numbers) and None not in numbers
    if choice.class_names and not is_numbered and isinstance(column, Tensor) and column.dtype == torch.bool:
        column = words_of(column, name)  # the order of the columns does not say which class is true
    if isinstance(column, Words):
        ends = class_names or choice.class_names or [str(place) for place in range(len(choice.scores))]
        truth_of = [TRUTHS.get(end.lower()) for end in ends]
        are_truths = all(word.strip().lower() in ("true", "false") for word in column.distinct)
        if are_truths and truth_of in ([False, True], [True, False]):  # prob_no and prob_yes, prob_0 and prob_1
            return truths(column, repr(name)).eq(truth_of[1] is True).long()
        if not is_numbered or column.first(lambda word: whole_number(word) is None) is not None:
            return class_numbers(column, class_names, name=repr(name), others=choice.aliases)
        column = column.numbers({word: whole_number(word) or 0 for word in column.distinct})
    if not is_numbered:
        return column
    given = as_whole_numbers(column)
    ordered, order = torch.tensor(numbers).sort()
    places = torch.searchsorted(ordered, given).clamp(max=len(numbers) - 1)
    unknown = (ordered[places] != given).nonzero()
    if unknown.numel():
        row = int(unknown[0, 0])
        raise InputError(
            f"{name!r} must hold the numbers in the names of the scores, {choice.scores[0]!r} to "
            f"{choice.scores[-1]!r}; got {given[row].tolist()} at ",
            *(Row(row), "."),
        )
    return order[places]


def _check_not_swapped(scores: Tensor, labels: Column | None, choice: ColumnChoice) -> None:
    """Check that scores of one column are not the labels, and the labels the scores."""
    if labels is None or (scores.ndim == 2 and scores.shape[1] > 1):
        return
    first, second = choice.scores[0], str(choice.labels)
    if isinstance(labels, Tensor) and labels.ndim == 2:
        of_label = f"{second!r} must hold one label a row; it has {labels.shape[1]}"
        raise InputError(f"{of_label}, and {first!r} has one number a row. They look swapped.")
    try:
        given = labels if isinstance(labels, Tensor) else torch.tensor(list(map(float, labels.distinct)))
    except ValueError:
        return
    numbers, is_truth = given.double(), bool(((scores == 0) | (scores == 1)).all())
    inside = numbers[(numbers > 0) & (numbers < 1)]
    if choice.positive and is_truth and len(inside) and bool(((numbers >= 0) & (numbers <= 1)).all()):
        raise InputError(
            f"{second!r} must hold the labels; it has fractions, such as {float(inside[0]):.4g}, and {first!r} has "
            "0 and 1 alone. They look swapped: pass ",
            *(Argument("positive", second), " and ", Argument("labels", first), "."),
        )


def _two_classes(
    column: Column, name: str, options: LoadOptions, class_names: tuple[str, ...] | None
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Return labels as 1 for the positive class and 0 for the other, and the names of both."""
    words = column if isinstance(column, Words) else words_of(column, name)
    distinct = sorted({word.strip() for word in words.distinct})
    if options.positive_class is None:
        if isinstance(column, Words) and class_names is not None:
            return class_numbers(column, class_names, name=repr(name)), class_names
        if all(word.lower() in TRUTHS for word in distinct):
            return truths(words, repr(name)).long(), class_names
        raise InputError(
            f"{name!r} must be 0/1 or true/false, 1 for the positive class; got {', '.join(map(repr, distinct[:5]))}. "
            "Name the label of the class whose scores are given: ",
            *(Argument("positive_class", distinct[-1]), f" or {distinct[0]}." if len(distinct) > 1 else "."),
        )
    positive = options.positive_class.strip()
    others = [word for word in distinct if word != positive]
    if len(others) == len(distinct) and positive not in (class_names or ()):  # a batch may have the other class alone
        raise InputError(
            Argument("positive_class", positive),
            f" must be a label in {name!r}, which has {', '.join(map(repr, distinct[:5]))}",
            f"{nearest(positive, distinct)}.",
        )
    if len(others) > 1 or (others and options.negative_class not in (None, others[0])):
        seen = sorted({*distinct, positive, options.negative_class or positive})
        raise InputError(
            f"{name!r} must have two classes beside a single column of scores; got {len(seen)}: "
            f"{', '.join(map(repr, seen[:5]))}. Name the columns of all classes as ",
            *(Argument("scores", "a,b,..."), "."),
        )
    names = (others[0] if others else f"not {positive}", positive)
    return words.numbers({word: int(word.strip() == positive) for word in words.distinct}), class_names or names


def rows_of(column: Column, rows: Tensor) -> Column:
    """Return some rows of a column."""
    return column[rows].only_used() if isinstance(column, Words) else column[rows]
