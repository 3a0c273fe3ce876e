"""Interactive reports in Chromium: what a reader moves shows the numbers that Python computes."""

import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_records import HOSTILE, made_large_diagnosis, small_clamping

from calibrant import Predictions, evaluate
from calibrant.comparison import compare
from calibrant.evidence import corp
from calibrant.metrics import ACE, ECE, NLL
from calibrant.metrics.states import Binned
from calibrant.report import clamping_page, comparison_page, diagnosis_page, evaluation_page, to_html_of_several, write
from calibrant.report.interactive import comparison_charts, evaluation_charts
from calibrant.report.network_charts import clamping_charts, diagnosis_charts
from calibrant.report.page import number_text

pytestmark = pytest.mark.usefixtures("chromium")
AXE = Path(__file__).parents[2] / "frontend/node_modules/axe-core/axe.min.js"


def made(n, k, *, names=None, seed=0):
    """Predictions that are too sure by a factor of three in their logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(3 * logits, labels, class_names=names)


def write_report(predictions, path, source="test.npz"):
    evaluation = evaluate(predictions, resamples=100)
    page = replace(
        evaluation_page(evaluation, source=source), charts=lambda: evaluation_charts(evaluation, predictions)
    )
    return write(page, path)


@pytest.fixture(scope="module")
def predictions():
    return made(3000, 20)


@pytest.fixture(scope="module")
def report(predictions, tmp_path_factory):
    return write_report(predictions, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    samples = made(1500, 3)
    calibration, test = samples[:500], samples[500:]
    compared = compare(calibration, test, resamples=100)
    page = replace(comparison_page(compared), charts=lambda: comparison_charts(compared, test))
    return compared, write(page, tmp_path_factory.mktemp("comparison") / "comparison.html")


def value(page, name):
    return page.text_content(f"[data-value={name}]")


def test_the_first_screen_has_verdict_number_next_step_and_three_pictures(open_report, report):
    page = open_report(report)
    pictures = [f"[data-chart={name}] svg" for name in ("reliability", "density", "risk")]
    for selector in (".headline", ".number b", ".next", *pictures):
        box = page.locator(selector).first.bounding_box()
        assert box["y"] < 800, selector
        assert box["x"] >= 0
    assert "overconfident" in page.text_content(".headline")
    paint = page.evaluate("performance.getEntriesByType('paint').map((entry) => entry.startTime)")
    assert max(paint) < 1000


@pytest.mark.parametrize("n_bins", [2, 7, 15, 61, 100])
def test_the_bins_slider_shows_the_bins_of_python(open_report, report, predictions, n_bins):
    page = open_report(report)
    page.get_by_label("Bins", exact=True).fill(str(n_bins))
    assert value(page, "ece") == number_text(ECE(n_bins)(predictions))
    state = Binned(n_bins)(predictions)
    occupied = state.count > 0
    shares = (state.correct / state.count)[occupied].tolist()
    drawn = page.get_attribute("[data-chart=reliability] path.bar", "d")
    heights = [float(foot) - float(top) for foot, top in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", drawn)]
    scale = 100 / page.locator("[data-chart=reliability] .diagonal").evaluate(
        "(line) => line.getAttribute('y1') - line.getAttribute('y2')"
    )
    assert [scale * height for height in heights] == pytest.approx([100 * share for share in shares], abs=0.1)
    frame, reading = (page.locator(f"[data-chart=reliability] {part}") for part in (".frame", ".reading"))
    frame.focus()
    for count, share in zip(state.count[occupied].tolist(), shares, strict=True):
        page.keyboard.press("ArrowRight")
        assert f"{count:,.0f} samples claim" in reading.text_content()
        assert f"are right {100 * share:.1f} % of the time" in reading.text_content()


def test_bins_of_equal_mass_and_no_bins_show_the_numbers_of_python(open_report, report, predictions):
    page = open_report(report)
    page.get_by_role("radio", name="equal mass").check()
    page.get_by_label("Bins", exact=True).fill("23")
    assert value(page, "ece") == number_text(ACE(23)(predictions))
    page.get_by_role("radio", name="bin-free").check()
    assert value(page, "miscalibration") == number_text(corp(predictions).brier.miscalibration)
    assert page.locator("[data-chart=reliability] .consistency").count() == 1


def test_the_temperature_slider_shows_the_scores_of_divided_logits(open_report, report, predictions):
    page = open_report(report)
    slider = page.get_by_label("Temperature", exact=True)
    charts = evaluation_charts(evaluate(predictions, resamples=100), predictions)
    grid = charts["views"][0]["temperatures"]["temperature"]
    for place in (0, 12, len(grid) - 1):
        slider.fill(str(place))
        divided = predictions.with_logits(predictions.logits.double() / grid[place])
        assert float(value(page, "nll-at")) == pytest.approx(NLL()(divided), abs=1e-4)
        assert float(value(page, "ece-at")) == pytest.approx(ECE(15)(divided), abs=1e-4)
    page.get_by_role("button", name="1 (uncalibrated)").click()
    assert value(page, "ece-at") == number_text(ECE(15)(predictions))


def test_the_threshold_says_how_many_samples_are_answered_and_how_many_are_wrong(open_report, report, predictions):
    page = open_report(report)
    for least in (0, 50, 90, 99):
        page.get_by_label("Answer above").fill(str(least))
        answered = predictions.confidence > least / 100 + 2.0**-22
        wrong = 1 - float(predictions.correct[answered].double().mean())
        assert value(page, "coverage") == f"{100 * float(answered.double().mean()):.1f} %"
        assert value(page, "risk") == f"{100 * wrong:.1f} %"


def test_classes_are_searched_and_sorted(open_report, report):
    page = open_report(report)
    rows = page.locator(".classes tbody tr")
    assert rows.count() == 10
    page.get_by_role("button", name="Show all 20").click()
    assert rows.count() == 20
    page.get_by_role("button", name="class", exact=True).click()
    assert rows.first.locator("td").first.text_content() == "class 0"
    assert page.locator(".classes th").first.get_attribute("aria-sort") == "ascending"
    page.get_by_label("Search").fill("class 7")
    assert rows.count() == 1
    page.get_by_label("Search").fill("nothing")
    assert "No class has such a name" in page.text_content(".classes")


def test_methods_stand_side_by_side(open_report, comparison):
    compared, path = comparison
    page = open_report(path)
    names = page.locator(".methods tbody tr td:first-child code").all_text_contents()
    assert names == [method.name for method in compared.fitted]
    assert page.locator(".methods .badge").count() == 1
    shown = value(page, "ece")
    page.get_by_role("radio", name="uncalibrated").check()
    assert value(page, "ece") == number_text(compared.uncalibrated.metrics["ece"].value)
    assert value(page, "ece") != shown
    page.set_viewport_size({"width": 1000, "height": 800})
    assert page.locator(".methods .scroll").evaluate("one => one.scrollWidth <= one.clientWidth")
    page.set_viewport_size({"width": 390, "height": 800})
    first = page.locator(".methods tbody td:first-child code").first
    first.evaluate("one => { one.textContent = 'order_preserving' }")
    assert len(first.evaluate("one => [...one.getClientRects()]")) == 1  # in one piece, as a line


def test_a_method_that_lowers_the_accuracy_has_a_warning(open_report, comparison, tmp_path):
    compared, test = comparison[0], made(1500, 3)[500:]
    charts = comparison_charts(compared, test)
    charts["methods"][1]["accuracy_change"] = {"value": -0.0234, "low": -0.03, "high": -0.01, "side": "worse"}
    page = open_report(write(replace(comparison_page(compared), charts=lambda: charts), tmp_path / "c.html"))
    assert "−2.34 ⚠ falls beyond noise" in page.locator(".methods tbody tr").nth(1).text_content()


def check_page(page):
    """What holds for every report: a first screen, words for every chart, room on a telephone, two printed pages."""
    for selector in (".headline", ".number b", ".next", "[data-chart] svg"):
        assert page.locator(selector).first.bounding_box()["y"] < 800, selector
    assert all(
        page.locator("svg[role=img], canvas[role=img]").evaluate_all(
            "(all) => all.map((one) => one.ariaLabel.length > 20)"
        )
    )
    if AXE.exists():
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run().then((result) => result.violations)")
        assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) <= 2
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_clamped_network_shows_delta_the_path_and_both_parts(open_report, tmp_path):
    evaluation, clamped, test = small_clamping((3, 24, 24))
    charts = clamping_charts(evaluation, clamped, test)
    page = open_report(write(replace(clamping_page(evaluation), charts=lambda: charts), tmp_path / "clamp.html"))
    assert page.locator(".pictures canvas").count() == 3
    page.get_by_label("Strength", exact=True).fill("1")
    assert value(page, "strength") == "1"
    assert value(page, "change") == "-0.0100"
    for part, title in (("none", "none"), ("delta", "δ only"), ("both", "both")):
        page.get_by_role("radio", name=title, exact=True).first.check()
        number = charts["clamping"]["parts"][part]["ece"]["value"]
        assert page.inner_text(f"[data-value={part}-ece] b") == number_text(number)
        assert title in page.locator(".clamp tr.chosen th").inner_text()
    page.get_by_role("radio", name="uncalibrated").check()
    assert value(page, "ece") == number_text(evaluation.find("uncalibrated").metrics["ece"].value)
    seen = page.locator("[data-chart=probabilities] .before rect").evaluate_all(
        "all => all.map(one => one.dataset.share)"
    )
    page.locator("input[name=digit]").nth(1).check(force=True)
    sample = charts["clamping"]["samples"][1]["probs"]["none"]
    now = page.locator("[data-chart=probabilities] .before rect").evaluate_all(
        "all => all.map(one => one.dataset.share)"
    )
    assert list(map(float, now)) == pytest.approx(sample, abs=1e-6)
    assert now != seen
    check_page(page)


def test_a_diagnosis_shows_both_sides_and_sorts_losses_and_runs(open_report, tmp_path):
    record = made_large_diagnosis()
    charts = diagnosis_charts(record)
    report = replace(diagnosis_page(record, source="runs"), charts=lambda: charts)
    page = open_report(write(report, tmp_path / "diagnosis.html"))
    mine = next(one for one in record.calibratability if one.candidate == record.baseline)
    assert value(page, "across").startswith(number_text(mine.ece["temperature"].mean))
    page.get_by_role("radio", name="uncalibrated").check()
    assert value(page, "across").startswith(number_text(mine.ece["uncalibrated"].mean))
    page.locator(".candidates").get_by_role("button", name="meta_focal").click()
    assert page.text_content("[data-chart=two-sided] .reading b") == "meta_focal"
    runs = page.locator(".runs tbody tr")
    page.locator(".runs").get_by_role("button", name="seed").click()
    seeds = [int(text) for text in page.locator(".runs tbody td:nth-child(2)").all_text_contents()]
    assert seeds == sorted(seeds, reverse=True)
    page.get_by_label("Search").nth(1).fill("meta_focal")
    assert 0 < runs.count() < len(seeds)
    shift = page.locator("figure", has_text="Under shift").first
    shift.get_by_role("combobox").select_option("Accuracy, uncalibrated")
    assert "Accuracy" in shift.locator("svg[role=img]").get_attribute("aria-label")
    check_page(page)


def test_several_reports_in_one_file_are_switched(open_report, comparison, predictions, tmp_path):
    compared, test = comparison[0], made(1500, 3)[500:]
    evaluation = evaluate(predictions, resamples=100)
    pages = {
        "evaluation": replace(evaluation_page(evaluation), charts=lambda: evaluation_charts(evaluation, predictions)),
        "methods": replace(comparison_page(compared), charts=lambda: comparison_charts(compared, test)),
    }
    (tmp_path / "both.html").write_text(to_html_of_several("Both", {"A network": pages}), encoding="utf-8")
    page = open_report(tmp_path / "both.html")
    assert page.locator("article:visible").count() == 1
    assert value(page, "ece") == number_text(ECE(15)(predictions))
    page.get_by_role("link", name="methods").click()
    page.wait_for_selector(".methods")
    assert page.locator("article:visible .methods").count() == page.locator("article:visible").count() == 1
    assert page.locator(".switch [aria-current]").inner_text() == "methods"
    page.get_by_role("radio", name="uncalibrated").check()
    assert value(page, "ece") == number_text(compared.uncalibrated.metrics["ece"].value)
    page.go_back()
    page.wait_for_selector("article:visible [data-chart=nll]")
    assert page.locator(".switch [aria-current]").inner_text() == "evaluation"


def test_a_keyboard_suffices(open_report, report):
    page = open_report(report)
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent"))
    assert any("arrow keys" in text for text in reached)
    assert any(text.startswith("Bins") for text in reached)
    page.get_by_label("Bins", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert "in 16 bins" in page.text_content("[data-chart=reliability]")
    page.locator("[data-chart=reliability] .frame").focus()
    page.keyboard.press("End")
    assert "samples claim" in page.text_content("[data-chart=reliability] .reading")
    outline = page.locator("[data-chart=reliability] .frame").evaluate(
        "(frame) => getComputedStyle(frame).outlineStyle"
    )
    assert outline == "solid"


def test_light_and_dark(open_report, report):
    colour = "getComputedStyle(document.body).backgroundColor"
    page = open_report(report, color_scheme="dark")
    assert page.evaluate(colour) == "rgb(21, 25, 30)"
    page.get_by_role("button", name="Use light colours").click()
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Use dark colours").click()
    assert page.evaluate(colour) == "rgb(21, 25, 30)"
    assert open_report(report, color_scheme="light").evaluate(colour) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_nothing_is_cut_off_at_any_width(open_report, report, width):
    page = open_report(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_prints_on_two_pages(open_report, report, comparison):
    for path in (report, comparison[1]):
        pdf = open_report(path).pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 2


def test_it_is_readable_without_javascript(open_report, report):
    page = open_report(report, java_script_enabled=False, ready=".headline")
    text = page.inner_text("body")
    assert "overconfident" in text
    assert "need JavaScript" in text
    assert "Brier score" in text


def test_hostile_names_are_text(open_report, tmp_path):
    names = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", HOSTILE]
    page = open_report(write_report(made(300, 3, names=names), tmp_path / "r.html", source=HOSTILE))
    shown = page.locator(".classes tbody td:first-child").all_text_contents()
    assert names[0] in shown
    assert names[1] in shown
    assert not any("\x1b" in text for text in shown)
    assert page.locator("img").count() == 0


def test_every_chart_and_control_has_words(open_report, report, comparison):
    if not AXE.exists():
        pytest.skip("needs axe-core (make frontend)")
    for path in (report, comparison[1]):
        for scheme in ("light", "dark"):
            page = open_report(path, color_scheme=scheme)
            assert all(
                page.locator("svg[role=img]").evaluate_all("(all) => all.map((svg) => svg.ariaLabel.length > 40)")
            )
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run().then((result) => result.violations)")
            serious = [one for one in found if one["impact"] in {"serious", "critical"}]
            assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in serious] == []


def test_sliders_redraw_within_a_frame(open_report, tmp_path):
    page = open_report(write_report(made(10_000, 100), tmp_path / "r.html"))
    script = """async ([label, settings]) => {
      const input = document.querySelector(`input[aria-label="${label}"]`), times = [];
      for (const at of settings) {
        const start = performance.now();
        input.value = at;
        input.dispatchEvent(new Event("input", { bubbles: true }));
        await Promise.resolve(); await Promise.resolve(); // drawn by now
        document.body.getBoundingClientRect();
        times.push(performance.now() - start);
        await new Promise(requestAnimationFrame);
      }
      return times;
    }"""
    sliders = {"Bins": range(2, 101, 7), "Temperature": range(0, 39, 3), "Answer above": range(0, 99, 7)}
    for label, settings in sliders.items():
        # Whatever else the machine does makes a redraw longer, never shorter.
        rounds = [page.evaluate(script, [label, list(settings)]) for _ in range(5)]
        assert statistics.median(map(min, zip(*rounds, strict=True))) < 16, label
