"""``calibrant evaluate``: measure how far the confidence in a file of predictions can be trusted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from calibrant.cli import options
from calibrant.cli.inputs import Files, Slicing, Source, threads_for
from calibrant.cli.options import check_output, flag, option
from calibrant.cli.scale import ScaleOptions
from calibrant.errors import CalibrantWarning, InputError
from calibrant.gates import Gate, Outcome, quantities_of, reported_names
from calibrant.text import terminal_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

    from calibrant.evaluation import Evaluation
    from calibrant.plots import ThemeName
    from calibrant.report import Page

EXAMPLES = """\
calibrant evaluate test.csv
calibrant evaluate test.csv --probs --scores 'p_*' --labels y
calibrant evaluate test.csv --positive p_fraud --positive-class fraud
calibrant evaluate test.csv --figures figures --json report.json
calibrant evaluate 'preds/*.parquet' --workers 4 --checkpoint job
calibrant evaluate test.csv --error-rate 0.05 --error-rate 0.01
calibrant evaluate test.csv --positive p_fraud --threshold 0.05
calibrant evaluate test.csv --by region --by device --classes
calibrant evaluate new.csv --baseline old.csv
calibrant evaluate test.csv --fail-if 'ece>0.05' --fail-unless 'auroc>0.8'
calibrant evaluate new.csv --baseline old.csv --fail-if 'nll_difference>0.01'"""
GATES = "Gates"
_FAIL_IF = "Exit with 1 if this is shown: the whole interval of a metric is beyond a bound, as in 'ece>0.05'."
_FAIL_UNLESS = "Exit with 1 unless this is shown, as in 'ece<0.05'. Both may be repeated."


@final
@dataclass(frozen=True)
class Gates:
    """Conditions that decide the exit code."""

    fail_if: Annotated[list[str] | None, option("CONDITION", _FAIL_IF, GATES)] = None
    fail_unless: Annotated[list[str] | None, option("CONDITION", _FAIL_UNLESS, GATES)] = None
    point: Annotated[bool, flag("--point", "Let values decide, whatever their intervals are.", GATES)] = False
    junit: Annotated[Path | None, option("FILE", "Write the outcome of every condition as JUnit XML.", GATES)] = None

    def parse(self, inputs: Sequence[Path]) -> list[Gate]:
        """Read the conditions, and check that their outcome can be written and overwrites no input file."""
        if self.junit is not None:
            check_output(self.junit, inputs)
        gates = [Gate.parse(text, "fail_if", of_point=self.point) for text in self.fail_if or ()]
        gates += [Gate.parse(text, "fail_unless", of_point=self.point) for text in self.fail_unless or ()]
        for name, is_given in (("--point", self.point), ("--junit", self.junit is not None)):
            if is_given and not gates:
                raise InputError(f"{name} must come with --fail-if or --fail-unless; got neither.")
        return gates

    def finish(self, outcomes: Sequence[Outcome], out: "Console", *, source: str) -> None:
        """Print the outcome of every condition, write it if asked to, and exit with 1 if one fails."""
        for outcome in outcomes:
            mark, style = ("✗", "bold red") if outcome.failed else ("✓", "green")
            out.print(f"{mark} {_OPTION[outcome.gate.option]} {outcome}", style=style)
        if self.junit is not None:
            _write_junit(self.junit, outcomes, source=source)
            out.print(f"Wrote {self.junit}", style="dim")
        if any(outcome.failed for outcome in outcomes):
            raise typer.Exit(1)


_ERROR_RATE = "Find the confidence above which at most this share, such as 0.05, is wrong. May be repeated."


def evaluate(  # noqa: PLR0913, PLR0917  # a command line has many options
    files: Files,
    baseline: Annotated[Path | None, option("FILE", "Predictions of another model for the same samples.")] = None,
    slicing: Slicing = Slicing(),
    error_rate: Annotated[list[float] | None, option("SHARE", _ERROR_RATE)] = None,
    threshold: options.Thresholds = None,
    gates: Gates = Gates(),
    full: options.Full = False,
    bins: options.Bins = 15,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
    given: options.ScoreOptions = options.ScoreOptions(),
    confidences: options.ConfidenceOptions = options.ConfidenceOptions(),
    split: options.SplitColumn = None,
    scale: ScaleOptions = ScaleOptions(),
    reports: options.ReportOptions = options.ReportOptions(),
) -> "Page":
    """Measure how far the confidence of a classifier can be trusted.

    Reads logits or probabilities with labels, and prints a verdict, every metric with its 95 % interval, and what to do
    next. Exit codes: 0, 1 if a --fail-if condition holds or one of --fail-unless is not shown, 2 for bad input.
    """
    from calibrant.cli.output import print_warnings, spinner, standard_error
    from calibrant.evaluation import metrics_for
    from calibrant.report import evaluation_page
    from calibrant.slices import worst_slices

    rates = options.check_shares(error_rate, "--error-rate", "0.05")
    reading = confidences.as_options(given)
    parts = options.SplitOption.parse(split)
    reports.check(files)  # before files are searched for in folders, and again with those that were found
    source, other = Source.find(files), None if baseline is None else Source.find([baseline])
    thresholds = options.check_thresholds(threshold)
    name, inputs = source.name, [*source.paths, *([] if other is None else other.paths)]
    conditions = gates.parse(inputs)
    reports.check(inputs)
    out, err = reports.console(), standard_error()
    dropped: list[CalibrantWarning] = []
    with print_warnings(err, dropped), spinner(err) as stage:
        stage(f"reading {name}")
        opened = scale.read(
            source, reading, parts, slicing=slicing, baseline=other, n_bins=bins, seed=seed, progress=stage
        )
        predictions, columns = opened.predictions, opened.columns
        metrics = metrics_for(predictions, n_bins=bins)
        for gate in conditions:
            known = reported_names(metrics, predictions)
            gate.check_is_reported(known, has_baseline=baseline is not None, columns=columns)
        differences, baseline_name = None, None if baseline is None else baseline.name
        if baseline is not None:
            stage(f"comparing with {baseline}")
            differences = opened.differences(resamples=resamples)
        with threads_for(predictions):
            evidence: dict[str, Any] = {"resamples": resamples, "error_rates": rates}
            evaluation = opened.evaluate(**evidence, thresholds=thresholds, progress=stage)
            slices = opened.slices(**evidence, progress=stage)

        def draw(theme: "ThemeName") -> "dict[str, Figure]":
            from calibrant.plots import figures as draw_figures  # loads matplotlib
            from calibrant.plots import slice_figures

            stage("drawing")
            numbers: dict[str, Any] = {"ece": evaluation.metrics["ece"], "risk": evaluation.risk}
            numbers["error_rate"] = rates[0] if rates else None
            drawn = draw_figures(predictions, n_bins=bins, theme=theme, seed=seed, name=name, **numbers)
            return {**drawn, **slice_figures(predictions, slices, columns, n_bins=bins, theme=theme, name=name)}

        def charts() -> dict[str, Any]:
            from calibrant.report.interactive import evaluation_charts

            compared: dict[str, Any] = {"comparison": differences, "baseline": baseline_name, "other": opened.other}
            return evaluation_charts(evaluation, predictions, name=name, slices=slices, by=columns, **compared)

        drawn = reports.draw(draw, in_html=False)
    page = evaluation_page(
        evaluation, source=name, comparison=differences, baseline=baseline_name, slices=slices,
        file=files[0] if len(files) == 1 and not source.are_states and (split or not scale.streams(source)) else None,
        reading=(given if evaluation.classes else confidences.as_scores(given)).as_arguments(split=split),
    )  # fmt: skip
    quantities = quantities_of(evaluation.estimates, differences, worst_slices(slices)) if conditions else {}
    outcomes = [gate.decide(quantities) for gate in _with_subjects(conditions, evaluation)]
    page = _with_gates(replace(page, charts=charts), outcomes).with_dropped(dropped, twice=opened.twice)
    reports.show_and_write(page, drawn, out, full=full, inputs=inputs)
    gates.finish(outcomes, out, source=name)
    return page


def _with_subjects(gates: Sequence[Gate], evaluation: "Evaluation") -> list[Gate]:
    """Return gates with words on what they are about, where that differs between metrics: with two classes."""
    from calibrant.predictions import OF_CORRECTNESS
    from calibrant.report.verdict import positive_words

    if evaluation.risk is None:
        return [*gates]
    of_answers = evaluation.positive == OF_CORRECTNESS[1]
    return [gate.of_two_classes(positive_words(evaluation), of_answers=of_answers) for gate in gates]


_OPTION = {"fail_if": "--fail-if", "fail_unless": "--fail-unless"}


def _as_given(gate: Gate) -> str:
    return f"{_OPTION[gate.option]} {gate.condition}"


def _with_gates(page: "Page", outcomes: Sequence[Outcome]) -> "Page":
    """Return the page with a section about the gates, and their outcomes in its JSON."""
    if not outcomes:
        return page
    from calibrant.report.page import Cell, Section, table, to_plain

    rows, plain = [], []
    for one in outcomes:
        outcome = Cell("failed", "worse", bold=True) if one.failed else Cell("passed", "better")
        rows.append([Cell(_as_given(one.gate), code=True), outcome, one.verdict, one.evidence])
        facts = {"option": _OPTION[one.gate.option], "condition": one.gate.condition, "failed": one.failed}
        bounds = to_plain(one.number)
        plain.append(facts | {name: bounds[name] for name in ("value", "low", "high")})
    section = Section("Gates", (table(("condition", "gate", "the condition", "evidence"), rows, text=(0, 1, 2, 3)),))
    return replace(page, sections=(*page.sections, section), data=lambda: {**page.data(), "gates": plain})


def _write_junit(path: Path, outcomes: Sequence[Outcome], *, source: str) -> None:
    """Write the gates as JUnit XML: one test case for each, in the suite of this file of predictions."""
    from xml.etree import ElementTree as ET

    from calibrant.atomic import atomic_binary

    name, failures = terminal_text(source), sum(outcome.failed for outcome in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(failures), "errors": "0"}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "calibrant evaluate", **counts})
    for outcome in outcomes:
        case = ET.SubElement(suite, "testcase", {"classname": name, "name": _as_given(outcome.gate)})
        described = f"{_OPTION[outcome.gate.option]} {outcome}"
        if outcome.failed:
            ET.SubElement(case, "failure", {"message": described}).text = described
        else:
            ET.SubElement(case, "system-out").text = described
    ET.indent(root)
    with atomic_binary(path) as file:
        ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
