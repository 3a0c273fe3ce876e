"""What decides a run, beside its seed, as one flat list of options: the same list is the same candidate."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from calibrant.training.recipe import RunSettings

__all__ = ["Option", "flattened", "options_of"]

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
