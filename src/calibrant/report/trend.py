"""The page of a trend: what changed and when, and every metric of every period."""

from collections.abc import Iterator
from dataclasses import asdict

from calibrant.catalogue import metrics as known_metrics
from calibrant.report import page
from calibrant.scale.trend import Period, Trend

_SCHEMA = "calibrant.trend/1"
_LEGEND = (
    "Each period is compared with those before it since the last change; ▲ better, ▼ worse. All looks together show a "
    "change where there is none with probability .05."
)


def trend_page(trend: Trend, *, source: str | None = None) -> page.Page:
    """Return a trend as a page."""
    changed = {metric: trend.changed(metric) for metric in trend.metrics}
    samples = sum(period.n for period in trend.periods)
    number = sum(map(len, changed.values()))
    headline = f"{page.counted(number, 'change')} beyond chance." if number else "No change beyond chance."
    next_steps = (
        ["Evaluate the periods before and after a change apart, and look at the data that came in then."]
        if number
        else ["Go on adding periods: the test allows for any number of looks."]
    )
    headings = [page.arrow(name, known_metrics[name].lower_is_better) for name in trend.metrics]
    rows = [[p.name, f"{p.n:,}", *(_cell(p, metric) for metric in trend.metrics)] for p in trend.periods]
    section = page.Section("Over time", (page.table(["period", "samples", *headings], rows),), legend=_LEGEND)
    return page.Page(
        "Trend",
        f"{page.counted(len(trend.periods), 'period')}, {page.counted(samples, 'sample')}",
        page.Verdict(headline, list(_findings(trend)), next_steps),
        source=source,
        tone="bad" if any(map(trend.worse, trend.periods)) else "open" if number else "good",
        brief=(section,),
        sections=(section, page.Section("Tests", (_tests(trend),))),
        full_hint="The tests",
        settings=f"{trend.resamples:,} resamples, seed {trend.seed}",
        data=lambda: page.document(_SCHEMA, {"metrics": trend.metrics, "periods": [_data(p) for p in trend.periods]}),
    )


def _data(period: Period) -> dict[str, object]:
    changes = {name: {**asdict(change), "is_shown": change.is_shown} for name, change in period.changes.items()}
    return {"name": period.name, "n": period.n, "metrics": period.metrics, "changes": changes}


def _findings(trend: Trend) -> Iterator[str]:
    for metric in trend.metrics:
        for period in trend.changed(metric):
            change, value = period.changes[metric], period.metrics[metric].value
            before = page.number_text(value - change.difference)
            word = "became worse" if metric in trend.worse(period) else "changed"
            numbers = f"{before} in the periods before together, {page.number_text(value)} then"
            yield f"{metric} {word} in {period.name}: {numbers}."


def _cell(period: Period, metric: str) -> page.Cell:
    text, change = page.estimate_text(period.metrics[metric]), period.changes.get(metric)
    if change is None or not change.is_shown:
        return page.Cell(text)
    lower_is_better = known_metrics[metric].lower_is_better
    is_better = lower_is_better is not None and (change.difference < 0) == lower_is_better
    return page.comparison_cell(text, "better" if is_better else "worse", bold=True)


def _tests(trend: Trend) -> page.Table:
    rows = [
        [period.name, metric, f"{change.difference:+.4f}", f"{change.z:+.1f}", page.p_text(change.p, resampled=False),
         f"{change.level:.1g}", "changed" if change.is_shown else ""]
        for period in trend.periods
        for metric, change in period.changes.items()
    ]  # fmt: skip
    return page.table(["period", "metric", "difference", "z", "p", "needed", "outcome"], rows, text=(0, 1, 6))
