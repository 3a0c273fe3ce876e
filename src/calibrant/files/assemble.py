"""From chosen columns to predictions: scores side by side, and words looked up among the class names."""

from collections.abc import Sequence

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.files.columns import Choice
from calibrant.files.content import Column, Content
from calibrant.predictions import Predictions, TopLabel

__all__ = ["assemble"]


def assemble(content: Content, choice: Choice) -> Predictions | TopLabel:
    """Read what was chosen and build the record it is for.

    Raises:
        InputError: If the values are not what their names promise.
    """
    names = choice.scores if choice.labels is None else (*choice.scores, choice.labels)
    columns = content.read(names, choice.labels if choice.kind != "top-label" else None)
    scores = _side_by_side([_numbers(columns[name], name) for name in choice.scores])
    if choice.kind == "top-label":
        assert choice.labels is not None
        return TopLabel(scores, _numbers(columns[choice.labels], choice.labels))
    class_names = _class_names(content, choice)
    if choice.labels is None:
        labels = _stand_ins(scores)
    else:
        labels = _labels(columns[choice.labels], choice.labels, class_names)
    if choice.kind == "probs":
        return Predictions.from_probs(scores, labels, class_names=class_names)
    if scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1):
        return Predictions.from_binary_logits(scores, labels, class_names=class_names)
    return Predictions.from_logits(scores, labels, class_names=class_names)


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    """One column as it is; several as the columns of a matrix, in float64 if their types differ."""
    if len(columns) == 1:
        return columns[0]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = sorted({tuple(column.shape) for column in columns})
        raise InputError(f"scores of one class each must have one number a row, shape (n,); got shapes {shapes}.")
    if len({column.dtype for column in columns}) > 1:
        columns = [column.double() for column in columns]
    return torch.stack(list(columns)).T.contiguous()


def _numbers(column: Column, name: str) -> Tensor:
    if isinstance(column, Tensor):
        return column
    row, word = column.first(_is_no_number) or (0, column.distinct[0])
    raise InputError(f"{name!r} must hold numbers; got the text {word!r} at row {row}.")


def _is_no_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return True
    return False


def _class_names(content: Content, choice: Choice) -> tuple[str, ...] | None:
    if choice.class_names and content.class_names and choice.class_names != content.class_names:
        raise InputError(
            f"the names of the scores and class_names must agree; got {choice.class_names[0]!r}, "
            f"{choice.class_names[1]!r}, ... and {', '.join(map(repr, content.class_names[:2]))}, ..."
        )
    return content.class_names or choice.class_names


def _stand_ins(scores: Tensor) -> Tensor:
    """Labels that no check objects to, for scores that have none: the predicted classes, or 0 of a single score."""
    comparable = scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype != torch.bool and not scores.is_complex()
    return scores.argmax(dim=1) if comparable else torch.zeros(scores.shape[:1], dtype=torch.int64)


def _labels(column: Column, name: str, class_names: tuple[str, ...] | None) -> Tensor:
    """Class numbers as they are; words as the places of their classes."""
    if isinstance(column, Tensor):
        return column
    if class_names is None:
        row, word = column.first(lambda word: not word.strip().isdecimal()) or (0, column.distinct[0])
        raise InputError(
            f"{name!r} must hold class numbers 0, 1, ..., because there are no class names to look words up in; "
            f"got {word!r} at row {row}. Write class numbers, or give the class names: name the score columns "
            "prob_cat, prob_dog, ..., or add class_names."
        )
    places = {class_name: place for place, class_name in enumerate(class_names)}
    if len(places) < len(class_names):
        raise InputError(f"{name!r} must hold class numbers, because two classes have the same name; got words.")
    unknown = column.first(lambda word: word not in places)
    if unknown is not None:
        raise InputError(
            f"{name!r} must hold class names ({', '.join(map(repr, class_names[:5]))}{', ...' * (len(places) > 5)}) "
            f"or class numbers; got {unknown[1]!r} at row {unknown[0]}."
        )
    return torch.tensor([places[word] for word in column.distinct])[column.codes]
