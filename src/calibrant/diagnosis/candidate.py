"""Candidates: networks that were trained alike but for the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from calibrant.checks import check_known
from calibrant.diagnosis.naming import names_of
from calibrant.diagnosis.options import Option, options_of
from calibrant.diagnosis.runs import DiagnosedRun

__all__ = ["Candidate", "grouped", "reference_of"]


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
        """Of its runs."""
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


def reference_of(candidates: Sequence[Candidate], name: str | None = None) -> Candidate:
    """The candidate that the others are held against: the named one; else plain cross-entropy; else the first.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name is not None:
        check_known(name, [each.name for each in candidates], "a candidate")
        return next(each for each in candidates if each.name == name)
    plain = [each for each in candidates if each.options["loss.loss"] == "ce" and not each.options.get("recipe.mixup")]
    return plain[0] if plain else candidates[0]
