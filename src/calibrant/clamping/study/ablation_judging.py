"""The rows of an ablation judged on the test set, and compared."""

from typing import NamedTuple, final

from torch import Tensor

from calibrant.clamping.study.ablation_record import AblationComparison, AblationRow
from calibrant.evidence import Estimate, PairedBootstrap, estimate
from calibrant.maps import Identity, Map, Scale
from calibrant.metrics import Metric
from calibrant.predictions import Predictions

__all__ = ["Judging", "Part"]


class Part(NamedTuple):
    """A row that is to be judged."""

    name: str
    is_moved: bool  # by δ
    head: Map


class _Found(NamedTuple):
    estimates: dict[str, Estimate]
    drawn: dict[str, Tensor]


@final
class Judging:
    """Judges rows on the test set; two that are the same model once."""

    def __init__(
        self, metrics: tuple[Metric, ...], test: tuple[Predictions, Predictions], resamples: int, seed: int
    ) -> None:
        self._metrics, self._test, self._resamples, self._seed = metrics, test, resamples, seed
        self._contest = PairedBootstrap(test[0], metrics, resamples=resamples, seed=seed)
        self._known: dict[tuple[object, ...], _Found] = {}

    def judged(self, parts: list[Part]) -> tuple[tuple[AblationRow, ...], tuple[AblationComparison, ...]]:
        found = {part.name: self._found(part) for part in parts}
        rows = tuple(
            AblationRow(part.name, part.is_moved, _temperature(part.head), found[part.name].estimates, part.head)
            for part in parts
        )
        rival = parts[1].name
        alone = "T* only" if rival == "TS" else "head* only"
        planned = [("joint", rival), *([("TS on δ*", rival)] if rival == "TS" else []), ("joint", alone)]
        rest = [(name, rival) for name in found if name != rival and (name, rival) not in planned]
        comparisons = tuple(
            AblationComparison(
                row, other, self._contest.differences(found[other].drawn, found[row].drawn), (row, other) in planned
            )
            for row, other in (*planned, *rest)
        )
        return rows, comparisons

    def _found(self, part: Part) -> _Found:
        # Without δ the two sets are one. Temperatures that agree to six digits are one as well: the rest is where a
        # search stopped, and a paired test would find even that.
        is_moved = part.is_moved and self._test[1] is not self._test[0]
        temperature = _temperature(part.head)
        same = (is_moved, id(part.head) if temperature is None else f"{temperature:.6g}")
        if same not in self._known:
            rows = part.head.transform(self._test[is_moved])
            estimates = estimate(rows, self._metrics, resamples=self._resamples, seed=self._seed)
            self._known[same] = _Found(estimates, self._contest.values(rows))
        return self._known[same]


def _temperature(head: Map) -> float | None:
    if isinstance(head, Identity):
        return 1.0
    return float(head.temperature) if isinstance(head, Scale) else None
