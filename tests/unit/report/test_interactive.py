"""Numbers behind the interactive charts: exact where they must be, small, and safe inside an HTML file."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_records import HOSTILE

from calibrant import Predictions, TopLabel, evaluate, evaluate_slices
from calibrant.comparison import compare
from calibrant.evidence import corp
from calibrant.metrics import ACE, ECE, NLL
from calibrant.metrics.states import Binned
from calibrant.plots.layout import THEMES
from calibrant.report import comparison_page, evaluation_page, to_html, to_html_of_several
from calibrant.report.interactive import comparison_charts, evaluation_charts, fractions, view_of

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "src/calibrant/studio/static"
BINS = range(2, 101)


def made(n=2000, k=5, *, scale=3.0, seed=0, names=None):
    """Overconfident predictions."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(scale * logits, labels, class_names=names)


def charts_of(predictions, **options):
    return evaluation_charts(evaluate(predictions, resamples=100, **options), predictions)


def bins_of(cells, n_bins):
    """Equal-width bins from cells, as frontend/src/bins.ts makes them: count, correct, confidence."""
    edges = fractions().numpy()
    place = np.cumsum(cells["step"]) - 1
    count = np.array(cells["count"])
    confidence = count * edges[place] + np.array(cells["offset"]) * cells["unit"]
    columns = (count, count - np.array(cells["wrong"]), confidence)
    index = np.searchsorted(np.arange(1, n_bins) / n_bins, edges[place + 1])  # the bin whose upper end is not below
    return [np.bincount(index, weights=column, minlength=n_bins) for column in columns]


def error_of(count, correct, confidence):
    return np.abs(correct - confidence).sum() / count.sum()


@pytest.fixture(scope="module")
def predictions():
    return made()


@pytest.fixture(scope="module")
def charts(predictions):
    return charts_of(predictions)


def test_every_number_of_bins_is_exact(predictions, charts):
    cells = charts["views"][0]["cells"]
    for n_bins in BINS:
        count, correct, confidence = bins_of(cells, n_bins)
        state = Binned(n_bins)(predictions)
        assert (count == state.count.numpy()).all()
        assert (correct == state.correct.numpy()).all()
        assert error_of(count, correct, confidence) == pytest.approx(ECE(n_bins)(predictions), abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100), st.booleans()), min_size=1, max_size=60))
def test_confidences_on_the_edge_of_a_bin_fall_on_the_same_side(rows):
    confidence = [min(i, b) / b for i, b, _ in rows]
    top = TopLabel(confidence, [right for _, _, right in rows])
    cells = charts_of(top)["views"][0]["cells"]
    for n_bins in BINS:
        count, correct, _ = bins_of(cells, n_bins)
        state = Binned(n_bins)(top)
        assert (count == state.count.numpy()).all()
        assert (correct == state.correct.numpy()).all()


def mass_error(ranks, n, n_bins):
    """Calibration error in bins of equal mass, as frontend/src/bins.ts computes it."""
    ends = np.append(0, np.cumsum(ranks["step"]))
    gap = np.append(0, np.cumsum(np.array(ranks["correct"]) - np.array(ranks["confidence"])))
    at = np.searchsorted(ends, np.floor(n * np.arange(n_bins + 1) / n_bins))
    return np.abs(np.diff(gap[at])).sum() / n


def test_bins_of_equal_mass_give_the_adaptive_calibration_error(predictions, charts):
    for n_bins in BINS:
        error = mass_error(charts["views"][0]["ranks"], len(predictions), n_bins)
        assert error == pytest.approx(ACE(n_bins)(predictions), abs=1e-9)


def test_ties_are_exchangeable_in_bins_of_equal_mass():
    top = TopLabel([0.5] * 7 + [0.75] * 6 + [0.9] * 4, [True, False, True, True, False] * 3 + [True, False])
    ranks = charts_of(top)["views"][0]["ranks"]
    for n_bins in (2, 3, 5, 10, 17, 40):
        assert mass_error(ranks, 17, n_bins) == pytest.approx(ACE(n_bins)(top), abs=1e-9)


def test_scores_at_a_temperature_are_those_of_divided_logits(predictions, charts):
    grid = charts["views"][0]["temperatures"]
    assert 1.0 in grid["temperature"]
    assert grid["fitted"] == pytest.approx(3.0, rel=0.1)  # of the logits, which were multiplied by 3
    assert grid["nll"][grid["temperature"].index(grid["fitted"])] == min(grid["nll"])
    for place in (0, grid["temperature"].index(1.0), len(grid["nll"]) // 2, -1):
        divided = predictions.with_logits(predictions.logits.double() / grid["temperature"][place])
        assert grid["nll"][place] == pytest.approx(NLL()(divided), abs=2e-5)
        for n_bins in (10, 15, 37):
            assert error_of(*bins_of(grid["cells"][place], n_bins)) == pytest.approx(ECE(n_bins)(divided), abs=2e-5)


def test_a_model_that_is_always_right_has_no_fitted_temperature():
    top = made(300)
    right = Predictions.from_logits(top.logits, top.predicted)
    view = charts_of(right)["views"][0]
    assert view["temperatures"]["fitted"] is None
    assert view["density"]["auroc"] is None


def test_given_probabilities_with_zeros_have_finite_losses():
    probs = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]] * 40)
    view = charts_of(Predictions.from_probs(probs, torch.tensor([0, 1, 2] * 40)))["views"][0]
    assert np.isfinite(view["temperatures"]["nll"]).all()


def test_the_isotonic_curve_and_its_band_are_those_of_corp():
    predictions = made(3000)
    shown, fitted = charts_of(predictions)["views"][0]["corp"], corp(predictions)
    wide = (fitted.high - fitted.low > 1e-3).numpy()
    middle = ((fitted.low + fitted.high) / 2).numpy()[wide]
    at_middle = np.interp(middle, shown["confidence"], shown["curve"])
    assert at_middle == pytest.approx(fitted.accuracy.numpy()[wide], abs=1e-4)
    assert wide.any()
    assert len(shown["lower"]) == len(shown["upper"]) == len(shown["curve"])
    assert shown["miscalibration"] == fitted.brier.miscalibration


class Parts(HTMLParser):
    """Tags, addresses, scripts and policy of a document."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.scripts, self.policy, self.inside = [], [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.addresses += [given[name] for name in ("src", "href") if name in given]
        self.inside = tag == "script"
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)


def charts_in(text):
    return json.loads(zlib.decompress(base64.b64decode(Parts(text).scripts[0])))


def report_on(predictions, **options):
    evaluation = evaluate(predictions, resamples=100)
    page = evaluation_page(evaluation, **options)
    return to_html(replace(page, charts=lambda: evaluation_charts(evaluation, predictions)))


def test_a_report_is_one_file_that_loads_nothing(predictions):
    parts = Parts(report_on(predictions, source="test.npz"))
    assert parts.addresses == []
    assert not set(parts.tags) & {"link", "iframe", "object", "form", "img"}
    assert parts.tags.count("script") == 2  # data and bundle
    assert "default-src 'none'" in parts.policy
    assert "unsafe" not in parts.policy
    digest = base64.b64encode(hashlib.sha256(parts.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in parts.policy


def test_verdict_and_tables_are_readable_without_the_script(predictions):
    text = report_on(predictions)
    before = text[: text.index('<script type="application/octet-stream"')]
    assert "overconfident" in before
    assert "Expected calibration error" in before
    assert "Brier score" in before
    assert "<noscript>" in before


def test_classes_of_weighted_samples_have_their_own_counts_and_shares_of_the_weights():
    samples = made(300, 3)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights[::7] = 0
    found = view_of(samples.with_weights(weights), "", "")["classes"]
    kept = weights > 0
    for label in range(3):
        own, mine = kept & (samples.labels == label), kept & (samples.predicted == label)
        assert (found["samples"][label], found["predicted"][label]) == (int(own.sum()), int(mine.sum()))
        assert found["weight"][label] == pytest.approx(float(weights[own].sum() / weights.sum()), abs=1e-6)
        effective = float(weights[mine].sum() ** 2 / weights[mine].square().sum())
        assert found["effective"][label] == pytest.approx(effective, abs=1e-3)
        accuracy = float(weights[mine & samples.correct].sum() / weights[mine].sum())
        assert found["correct"][label] / found["effective"][label] == pytest.approx(accuracy, abs=1e-4)
    plain = view_of(samples, "", "")["classes"]
    assert plain["weight"] is plain["effective"] is None


def test_hostile_names_of_classes_are_data():
    text = report_on(made(300, 3, names=["</script><script>alert(1)</script>", HOSTILE, "c"]), source=HOSTILE)
    parts = Parts(text)
    assert parts.tags.count("script") == 2
    assert "<script>alert" not in text
    assert "\x1b" not in text
    names = charts_in(text)["views"][0]["classes"]["name"]
    assert names[0] == "</script><script>alert(1)</script>"  # the browser shows it as text
    assert "\x1b" not in names[1]


def test_a_report_of_many_samples_and_classes_stays_small():
    text = report_on(made(10_000, 100, scale=2.0))
    assert len(text.encode()) < 400_000


def test_a_report_hardly_grows_once_every_cell_is_occupied():
    predictions = made(200_000, 2, scale=2.0)
    evaluation = evaluate(predictions[:2000], resamples=100)  # its tables do not grow with the samples
    page = replace(evaluation_page(evaluation), charts=lambda: evaluation_charts(evaluation, predictions))
    assert len(to_html(page).encode()) < 700_000


def test_a_comparison_has_the_models_before_and_after_and_every_method():
    samples = made(1200)
    comparison = compare(samples[:500], samples[500:], resamples=100)
    charts = comparison_charts(comparison, samples[500:])
    assert charts["views"][0]["name"] == "uncalibrated"
    assert charts["views"][1]["name"] == comparison.recommended.name
    assert [method["name"] for method in charts["methods"]] == [method.name for method in comparison.fitted]
    best = charts["methods"][0]
    assert best["ece"]["value"] == comparison.best.metrics["ece"].value
    page = replace(comparison_page(comparison), charts=lambda: charts)
    assert charts_in(to_html(page)) == json.loads(json.dumps(charts))


def test_the_style_sheet_has_the_colours_of_the_figures():
    style = (STATIC / "calibrant.css").read_text()
    colours = set(re.findall(r"#[0-9a-f]{3,6}", style))
    short = {re.sub(r"#(.)\1(.)\2(.)\3$", r"#\1\2\3", colour) for colour in colours}
    for theme in THEMES.values():
        for colour in vars(theme).values():
            assert re.sub(r"#(.)\1(.)\2(.)\3$", r"#\1\2\3", colour) in short


def test_the_bundle_is_what_its_source_builds(tmp_path):
    if shutil.which("node") is None or not (ROOT / "frontend/node_modules").is_dir():
        pytest.skip("needs Node and frontend/node_modules (make frontend)")
    subprocess.run(["node", "build.mjs", tmp_path], cwd=ROOT / "frontend", check=True, capture_output=True)  # noqa: S607
    for name in ("calibrant.js", "calibrant.css"):
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), f"{name} is old: run make frontend"


def test_several_reports_in_one_file_share_temperatures_and_escape_names(predictions):
    evaluation = evaluate(predictions, resamples=100)
    page = evaluation_page(evaluation, source=HOSTILE)
    drawn = replace(page, charts=lambda: evaluation_charts(evaluation, predictions))
    text = to_html_of_several(HOSTILE, {HOSTILE: {"first": drawn, "again": drawn}, "plain": {"without charts": page}})
    assert text.count("<article") == 3
    assert re.findall(r'<a href="#(report-\d)">([^<]*)</a>', text) == [
        ("report-0", "first"), ("report-1", "again"), ("report-2", "without charts"),
    ]  # fmt: skip
    assert "<script>alert" not in text
    packed = re.search(r'id="calibrant-data">([^<]*)<', text)[1]
    found = json.loads(zlib.decompress(base64.b64decode(packed)))
    alone = evaluation_charts(evaluation, predictions)
    assert found["shared"] == [alone["views"][0]["temperatures"]]
    assert list(found["reports"]) == ["report-0", "report-1"]
    assert found["reports"]["report-1"]["views"][0] == alone["views"][0] | {"temperatures": 0}
    assert len(text) < len(to_html(drawn)) + len(to_html(page)) + 60_000
    assert "<script" not in to_html_of_several("plain", {"plain": {"without charts": page}})


def test_slices_of_two_classes_are_drawn_by_the_probability_of_the_second():
    samples, by = made(600, 2, names=["fine", "fraud"]), {"region": ["north", "south"] * 300}
    slices = evaluate_slices(samples, by=by, resamples=100)
    drawn = evaluation_charts(evaluate(samples, resamples=100), samples, slices=slices, by=by)["slices"]
    for one, entry in zip(slices, drawn, strict=True):
        assert (entry["subject"], entry["of_class"]) == ("probability of “fraud”", True)
        assert (entry["confidence"], entry["accuracy"]) == (one.risk.predicted.value, one.risk.observed.value)
        assert error_of(*bins_of(entry["cells"], 15)) == pytest.approx(one.risk.ece.value, abs=1e-6)


def test_net_benefits_are_those_of_the_report_at_its_thresholds():
    samples, asked = made(600, 2, names=["fine", "fraud"]), (0.1, 0.125, 0.5)
    evaluation = evaluate(samples, resamples=100, thresholds=asked)
    compared = compare(samples[:300], samples[300:], [], resamples=100, thresholds=asked)
    after = comparison_charts(compared, samples[300:])["views"]
    pairs = [(evaluation_charts(evaluation, samples)["views"][0], evaluation.decisions)]
    pairs += [(view, compared.find(view["name"]).decisions) for view in after]
    assert len(pairs) == 3
    for view, decisions in pairs:
        drawn = view["positive"]["decisions"]
        assert drawn["threshold"] == [percent / 100 for percent in range(1, 100)]  # those of all views are alike
        for one in (decisions[0], decisions[2]):
            place, benefit = drawn["threshold"].index(one.threshold), one.net_benefit
            shown = [drawn[name][place] for name in ("benefit", "low", "high")]
            assert shown == pytest.approx([benefit.value, benefit.low, benefit.high], abs=1e-5)
