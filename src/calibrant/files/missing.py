"""What to say when a source lacks the names that are needed: what would work, what was found, which option helps."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from calibrant.errors import InputError
from calibrant.files.content import Content

__all__ = ["missing", "shown"]

_SHOWN = 8
_NEEDED = {
    "logits": "'logits' (or 'logit_0', 'logit_1', ...)",
    "probs": "'probs' (or 'probabilities', or 'prob_0', 'prob_1', ...)",
    "top-label": "'confidence' with 'correct'",
}
_LABEL_LIKE = ("label", "labels", "target", "targets", "ground_truth", "y", "y_true", "true", "class", "gt")
_OPTION_LIKE = {
    "confidence": ("confidence", "confidences", "conf", "score"),
    "correct": ("correct", "is_correct", "right", "accuracy"),
}


def missing(
    content: Content,
    kinds: Sequence[str],
    *,
    lacks_scores: bool = True,
    lacks_labels: bool = True,
    labels_needed: bool = True,
) -> InputError:
    """The error for a source without a complete set of names."""
    needed = ", or ".join(_NEEDED[kind] + " with 'labels'" * (labels_needed and kind != "top-label") for kind in kinds)
    if list(kinds) == ["top-label"]:
        options = [_top_option(content, name) for name in ("confidence", "correct") if name not in content.names]
    else:
        options = _options(content, kinds, lacks_scores=lacks_scores, lacks_labels=lacks_labels)
    advice = f"Rename what is meant, or pass {', '.join(options)}."
    parts = [f"{content.title} must have {content.noun}s {needed}; found {shown(content)}.", content.hint, advice]
    return content.error(" ".join(part for part in parts if part))


def shown(content: Content) -> str:
    """The first names of a source, with their shapes where these tell anything."""
    listed = [f"{name!r}{_size(content, name)}" for name in content.names[:_SHOWN]]
    rest = len(content.names) - _SHOWN
    return (", ".join(listed) or "nothing") + (f" and {rest} more" if rest > 0 else "")


def _size(content: Content, name: str) -> str:
    # A name that stands twice has no one shape.
    shape = content.shape(name) if content.names.count(name) == 1 else (None,)
    if shape == (None,):
        return ""
    return f" ({' x '.join('?' if size is None else str(size) for size in shape)})"


def _options(content: Content, kinds: Sequence[str], *, lacks_scores: bool, lacks_labels: bool) -> list[str]:
    """The options that would name what is lacking, with the likely name in them; nothing is taken without them."""
    options = []
    if lacks_scores:
        options = [] if len(kinds) == 1 else ["kind='logits' (or 'probs')"]
        options.append(_option("scores", _scores_like(content)))
    if lacks_labels:
        options.append(_option("labels", _like(content, _LABEL_LIKE)))
    return options


def _top_option(content: Content, option: str) -> str:
    return _option(option, _like(content, _OPTION_LIKE[option]))


def _option(option: str, name: str | None) -> str:
    return f"{option}=NAME" if name is None else f"{option}={name!r}"


def _scores_like(content: Content) -> str | None:
    """A lone matrix, or a run of numbered names, that could be the scores."""
    ends = Counter(match[1] for name in content.names if (match := re.fullmatch(r"(.*\D)\d+", name)))
    if ends and ends.most_common(1)[0][1] > 1:
        prefix = ends.most_common(1)[0][0]
        return None if prefix in {"logit_", "prob_"} else prefix
    wide = [name for name in content.names[:_SHOWN] if content.names.count(name) == 1 and len(content.shape(name)) == 2]
    return wide[0] if len(wide) == 1 and wide[0] not in {"logits", "logit", "probs", "prob", "probabilities"} else None


def _like(content: Content, words: Sequence[str]) -> str | None:
    """A name that differs from one of these in case or by a letter."""
    lowered = {name.lower(): name for name in reversed(content.names)}
    for word in words:
        if word in lowered:
            return lowered[word]
    close = get_close_matches(words[0], list(lowered), n=1, cutoff=0.8)
    return lowered[close[0]] if close else None
