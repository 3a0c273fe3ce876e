"""The page of a trend: what changed and when, and every metric of every period."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from calibrant.evidence import Side
from calibrant.metrics.states import TopStatistic
from calibrant.report import page
from calibrant.report.risk import class_name
from calibrant.scale.trend import Period, Trend
from calibrant.text import counted, terminal_text, without_middle

_LEGEND = (
    "Each period is compared with those before it since the last change; ▲ better, ▼ worse. All looks together show a "
    "change where there is none with probability .05."
)


def trend_page(trend: Trend, *, source: str | None = None) -> page.Page:
    """Return a trend as a page."""
    changed = {metric: trend.changed(metric) for metric in trend.metrics}
    samples = sum(period.n for period in trend.periods)
    number = sum(map(len, changed.values()))
    headline = f"{counted(number, 'change')} beyond chance." if number else "No change beyond chance."
    next_steps = (
        ["Evaluate the periods before and after a change apart, and look at the data that came in then."]
        if number
        else ["Go on adding periods: the test allows for any number of looks."]
    )
    headings = [page.arrow(name, metric.lower_is_better) for name, metric in trend.metrics.items()]
    rows = [
        [page.name_cell(p.name), f"{p.n:,}", *(_cell(trend, p, metric) for metric in trend.metrics)]
        for p in trend.periods
    ]
    section = page.Section(
        "Over time", (page.table(["period", "samples", *headings], rows),), legend=_LEGEND + _subjects(trend)
    )
    return page.Page(
        "Trend",
        f"{counted(len(trend.periods), 'period')}, {counted(samples, 'sample')}",
        page.Verdict(headline, list(_findings(trend)), next_steps),
        source=source,
        tone="bad" if any(map(trend.worse, trend.periods)) else "open" if number else "good",
        brief=(section,),
        sections=(section, page.Section("Tests", (_tests(trend),))),
        full_hint="The tests",
        settings=f"{trend.resamples:,} resamples, seed {trend.seed}",
        charts=lambda: _charts(trend),
        data=lambda: _document(trend),
    )


def _document(trend: Trend) -> dict[str, Any]:
    periods = [
        {"name": period.name, "n": period.n, "metrics": period.metrics, "changes": {
            name: {**asdict(change), "is_shown": change.is_shown} for name, change in period.changes.items()
        }}
        for period in trend.periods
    ]  # fmt: skip
    of_two = {"positive": trend.positive, "of_risk": sorted(trend.of_risk)} if trend.of_risk else {}
    return page.document("calibrant.trend/1", {"metrics": list(trend.metrics), **of_two, "periods": periods})


def _charts(trend: Trend) -> dict[str, Any]:
    """Return the numbers behind the charts: a line over the periods for every metric."""
    from calibrant.report.interactive import charts_of  # loads the calibrators

    lines = []
    for metric, kind in trend.metrics.items():
        changed = trend.changed(metric)
        values = [
            {**asdict(p.metrics[metric]), "change": {**asdict(p.changes[metric]), "side": _side(trend, p, metric)}
             if p in changed else None} for p in trend.periods
        ]  # fmt: skip
        title = f"AUROC of {class_name(1, trend.positive)}" if metric == "risk_auroc" else kind.title
        line = {"name": metric, "title": title, "lower_is_better": kind.lower_is_better}
        lines.append({**line, "values": values, "levels": trend.levels(metric)})
    periods = [{"name": terminal_text(period.name), "n": period.n} for period in trend.periods]
    return charts_of(0, []) | {"trend": page.to_plain({"periods": periods, "metrics": lines})}


def _findings(trend: Trend) -> Iterator[str]:
    for metric in trend.metrics:
        for period in trend.changed(metric):
            change, value = period.changes[metric], period.metrics[metric].value
            before = page.number_text(value - change.difference)
            word = "became worse" if metric in trend.worse(period) else "changed"
            numbers = f"{before} in the periods before together, {page.number_text(value)} then"
            yield f"{metric} {word} in {without_middle(period.name)}: {numbers}."


def _subjects(trend: Trend) -> str:
    """Return a sentence on what metrics of two classes are of, if there are two."""
    if not trend.of_risk:
        return ""
    of_top = [name for name, metric in trend.metrics.items() if isinstance(metric.statistic, TopStatistic)]
    rest = [name for name in of_top if name not in trend.of_risk]
    of_risk = ", ".join(name for name in of_top if name in trend.of_risk)
    words = f" Of the probability of {class_name(1, trend.positive)}: {of_risk}"
    return words + (f"; of the predicted class: {', '.join(rest)}." if rest else ".")


def _cell(trend: Trend, period: Period, metric: str) -> page.Cell:
    text, is_shown = page.estimate_text(period.metrics[metric]), period in trend.changed(metric)
    return page.comparison_cell(text, _side(trend, period, metric), bold=True) if is_shown else page.Cell(text)


def _side(trend: Trend, period: Period, metric: str) -> Side:
    """Return whether a metric that changed became better or worse; one without a direction did neither."""
    if trend.metrics[metric].lower_is_better is None:
        return "alike"
    return "worse" if metric in trend.worse(period) else "better"


def _tests(trend: Trend) -> page.Table:
    rows = [
        [page.name_cell(period.name), metric, f"{change.difference:+z.4f}", f"{change.z:+z.1f}",
         page.p_text(change.p, resampled=False), f"{change.level:.1g}", "changed" if change.is_shown else ""]
        for period in trend.periods
        for metric, change in period.changes.items()
    ]  # fmt: skip
    return page.table(["period", "metric", "difference", "z", "p", "needed", "outcome"], rows, text=(0, 1, 6))
