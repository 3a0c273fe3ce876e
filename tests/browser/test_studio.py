"""The studio in Chromium: open files, evaluate, calibrate, take the map home; errors, keyboard, history."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_records import small_clamping
from page_checks import (
    AXE,
    PATIENCE,
    check_accessibility,
    expect,
    near,
    shares,
    wait_for_other_shares,
    wait_until_it_fits,
)

from calibrant.clamping import load_clamped, save_clamped
from calibrant.evidence import difference
from calibrant.files import load, load_map, save
from calibrant.metrics import ECE, NLL, ece
from calibrant.models import DigitsCNN
from calibrant.predictions import Predictions, as_risk
from calibrant.report import clamping_page
from calibrant.report.network_charts import clamping_charts, clamping_record
from calibrant.training import train_on_digits

pytestmark = pytest.mark.usefixtures("chromium")
HOSTILE_NAME = "<script>alert(1)<⁄script>.npz".replace("⁄", "_")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A folder as calibrant clamp leaves it, of a small network on coloured images, and its record."""
    folder = tmp_path_factory.mktemp("clamped") / "my <clamped>"
    folder.mkdir()
    evaluation, clamped, test = small_clamping((3, 24, 24))
    found = clamping_record(clamping_page(evaluation), clamping_charts(evaluation, clamped, test))
    (folder / "charts.json").write_text(json.dumps(found, allow_nan=False))
    save_clamped(clamped, folder / "clamped.safetensors")
    for name, part in (("uncalibrated", "before"), ("clamped", "after")):
        save(evaluation.predictions[name], folder / f"{part}.npz")
    return folder, found


@pytest.fixture(scope="module")
def address(record):
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "serve", str(record[0]), "--port", "0", "--max-upload", "2"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    yield re.search(r"http://\S+", process.stdout.readline())[0]
    process.terminate()
    with process.stdout:
        process.wait(timeout=120)


@pytest.fixture
def studio(chromium, address):
    """A window on the studio; at the end every request went to it, none failed, and nothing was logged."""
    trouble = []
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on(
        "request",
        lambda request: trouble.append(request.url) if not request.url.startswith((address, "data:")) else None,
    )
    # A question about a job that is open when the reader leaves the screen is aborted, which is no failure.
    page.on("requestfailed", lambda request: trouble.append(request.url) if "ABORTED" not in request.failure else None)
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    page.wait_for_selector(".files button")
    yield page
    context.close()
    assert trouble == []


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(800, 4))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probs, labels


def saved(path, arrays):
    """Write the predictions in the format of the ending."""
    probs, labels = arrays
    columns = {f"prob_{number}": probs[:, number] for number in range(probs.shape[1])} | {"label": labels}
    if path.suffix == ".npz":
        np.savez(path, probs=probs, labels=labels)
    elif path.suffix == ".csv":
        table = np.column_stack(list(columns.values()))
        np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")
    else:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pa.table(columns), path)
    return path


def upload(page, path):
    page.set_input_files("input[type=file]", path)
    page.wait_for_selector("form table")


def evaluate(page):
    page.get_by_role("button", name="Evaluate").last.click()
    page.wait_for_selector("[data-value=ece]")
    page.get_by_text("Looking …").wait_for(state="detached")  # then nothing moves any more


def fit(page, method):
    # What is kept in the address is drawn when that has changed: until then the control may show what it was before.
    page.get_by_label(method, exact=True).click()
    page.get_by_role("button", name="choose none").wait_for()
    page.get_by_role("button", name="Fit and compare").click()


def reload_what_is_computed(page, task):
    """Load the page again; its task, done with equal arguments before, is answered without being run."""
    asked = f'"task":"{task}"'
    with page.expect_response(lambda answer: asked in (answer.request.post_data or "")) as waiting:
        page.reload()
    assert waiting.value.json()["status"] == "done"
    page.wait_for_selector("text=Take home")


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
def test_a_file_is_evaluated_with_the_numbers_of_python(studio, tmp_path, arrays, ending):
    path = saved(tmp_path / f"mine{ending}", arrays)
    upload(studio, path)
    expect(studio.locator("input[value=probs]")).to_be_checked()
    evaluate(studio)
    expect(studio.locator("[data-value=ece]")).to_have_text(near(ece(load(path))))
    slider = studio.get_by_role("slider", name="Bins")
    slider.focus()
    for _ in range(5):
        slider.press("ArrowRight")
    expect(studio.locator("[data-value=ece]")).to_have_text(near(ece(load(path), n_bins=20)))


def test_without_a_split_methods_are_cross_validated_and_all_samples_stay_evaluated(studio, tmp_path, arrays):
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    evaluate(studio)
    counted = studio.locator("article.calibrant header").first.inner_text()
    studio.get_by_role("button", name="Calibrate", exact=True).last.click()
    fit(studio, "Vector scaling")
    studio.wait_for_selector("text=Take home")
    assert "in 5 folds" in studio.locator("article.calibrant").first.inner_text()
    expect(studio.get_by_role("link", name="samples", exact=True)).to_have_count(1)
    expect(studio.get_by_role("link", name="calibration", exact=True)).to_have_count(0)
    studio.get_by_role("button", name="Evaluate", exact=True).first.click()
    expect(studio.locator("article.calibrant header").first).to_have_text(counted, use_inner_text=True)


def test_methods_are_compared_and_the_map_is_taken_home(studio, tmp_path, arrays):
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    studio.get_by_text("a random half").click()
    evaluate(studio)
    studio.get_by_role("button", name="Calibrate", exact=True).last.click()
    fit(studio, "Vector scaling")
    studio.wait_for_selector("text=Take home")
    drawn = studio.locator("[data-chart=overlay] g[data-method]")
    expect(drawn).to_have_count(3)
    methods = drawn.evaluate_all("all => all.map(one => one.dataset.method)")
    assert set(methods) == {"uncalibrated", "vector", "temperature"}
    curves = studio.get_by_role("group", name="Curves shown")
    curves.get_by_label("temperature").click()
    studio.wait_for_url(re.compile("curves=uncalibrated%2Cvector"))
    expect(drawn).to_have_count(2)
    shown = float(curves.locator("label", has_text="vector").locator("output").inner_text())
    with studio.expect_download() as waiting:
        studio.get_by_role("listitem").filter(has_text="before and after").get_by_role("link", name="SVG").click()
    assert Path(waiting.value.path()).read_text().startswith("<?xml")
    check_accessibility(studio)
    with studio.expect_download() as waiting:
        studio.get_by_role("link", name="vector").click()
    waiting.value.save_as(tmp_path / "map.safetensors")
    with studio.expect_download() as waiting:
        studio.get_by_role("link", name="test", exact=True).click()
    waiting.value.save_as(tmp_path / "test.npz")
    test = load(tmp_path / "test.npz")
    assert len(test) == 400
    assert ece(load_map(tmp_path / "map.safetensors").transform(test)) == pytest.approx(shown, abs=1e-4)
    assert shown < ece(test)
    reload_what_is_computed(studio, "compare")
    expect(drawn).to_have_count(2)
    command = [sys.executable, "-m", "calibrant", "apply", "map.safetensors", "test.npz", "-o", "calibrated.npz"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    assert (tmp_path / "calibrated.npz").exists()


def test_the_address_holds_the_screen_and_back_returns(studio, tmp_path, arrays):
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    evaluate(studio)
    studio.wait_for_url(re.compile("screen=evaluate"))
    shown = studio.url
    studio.go_back()
    studio.wait_for_selector(".drop")
    studio.go_forward()
    studio.wait_for_selector("[data-value=ece]")
    studio.reload()
    studio.wait_for_selector("[data-value=ece]")
    expect(studio).to_have_url(shown)


def test_errors_say_what_to_do(studio, tmp_path):
    (tmp_path / "words.csv").write_text("a,b\nx,y\n")
    upload(studio, tmp_path / "words.csv")
    expect(studio.get_by_role("button", name="Evaluate").last).to_be_disabled()
    studio.get_by_text("of every class").click()
    expect(studio.locator("form")).to_contain_text("words.csv")
    (tmp_path / "large.npz").write_bytes(b"0" * 2_100_000)
    studio.set_input_files("input[type=file]", tmp_path / "large.npz")
    expect(studio.get_by_role("alert").first).to_contain_text("--max-upload")  # above what is wrong with words.csv


@pytest.fixture(scope="module")
def animals(tmp_path_factory, arrays):
    """A table as people have them: scores by class name, labels in words, weights, regions and a column to split by."""
    probs, labels = arrays
    names, path = ["cat", "dog", "fox", "owl"], tmp_path_factory.mktemp("animals") / "animals.csv"
    rows = [
        [*(f"{p:.17g}" for p in row), names[label], str(1 + i % 3), "few" if i < 2 else ("north", "south")[i % 2],
         ("val", "test")[i % 4 > 0]]
        for i, (row, label) in enumerate(zip(probs, labels, strict=True))
    ]  # fmt: skip
    header = ";".join([*(f"score_{name}" for name in names), "animal", "weight", "region", "fold"])
    path.write_text("\n".join([header, *(";".join(row) for row in rows)]) + "\n")
    return path


def test_columns_weights_slices_and_onnx(studio, animals):
    studio.set_input_files("input[type=file]", animals)
    studio.locator(".field:has(input[aria-invalid=true]) .trouble", has_text="Separator: ;").wait_for()
    studio.get_by_label("Separator").fill(";")
    studio.wait_for_selector("form table")
    studio.locator("input[value=probs]").check()
    studio.get_by_label("Scores", exact=True).fill("score_")
    for column, role in (("animal", "labels"), ("weight", "weights"), ("region", "by"), ("fold", "split")):
        studio.get_by_label(f"Use of {column}").select_option(role)
        expect(studio.get_by_label(f"Use of {column}")).to_have_class("used")
    expect(studio.get_by_label("Use of score_cat")).to_have_class("used")  # as the file is read by now
    check_accessibility(studio)
    evaluate(studio)
    options = {"separator": ";", "kind": "probs", "scores": "score_", "labels": "animal", "weights": "weight"}
    test = load(animals, **options, where={"fold": "test"})
    expect(studio.locator(".number")).to_contain_text(f"{ece(test):.4f}")
    expect(studio.locator(".number")).not_to_contain_text(f"{ece(test.with_weights(None)):.4f}")
    values = studio.locator(".slice-table tbody tr")
    expect(values.last.locator("td").nth(1)).to_have_text("few")  # it is not tested
    expect(values.last.locator("td").nth(3)).to_have_text("–")
    samples = studio.locator(".slice-table th", has_text="samples")
    samples.get_by_role("button").click()  # sort by it
    expect(samples).to_have_attribute("aria-sort", "descending")
    expect(values.first.locator("td").nth(1)).not_to_have_text("few")
    studio.locator(".panels button", has_text="south").click()
    count = sum(line.endswith("south;test") for line in animals.read_text().splitlines())
    studio.wait_for_selector(f"text={count} samples of region = south with confidence above 0.0 %")
    check_accessibility(studio)
    studio.reload()  # the address has all of it
    studio.wait_for_selector(".slice-table")
    expect(studio.locator(".lines code").first).to_contain_text("--split fold=val,test --by region")
    studio.get_by_role("button", name="Calibrate", exact=True).first.click()
    fit(studio, "Temperature scaling")
    pytest.importorskip("onnx")
    button = studio.get_by_role("button", name="NumPy of temperature")
    wide = button.bounding_box()["height"]
    studio.set_viewport_size({"width": 375, "height": 700})
    assert button.bounding_box()["height"] == pytest.approx(wide, abs=1)  # no word is broken
    studio.set_viewport_size({"width": 1280, "height": 900})
    studio.get_by_role("button", name="ONNX of temperature").click()
    with studio.expect_download() as waiting:
        studio.get_by_role("link", name="temperature.onnx").click()
    assert b"calibrated_probabilities" in Path(waiting.value.path()).read_bytes()
    expect(studio.locator("details.lines", has_text="The same file")).to_contain_text("calibrant export map-")
    studio.get_by_role("button", name="NumPy of temperature").click()
    with studio.expect_download() as waiting:
        studio.get_by_role("link", name="temperature.py").click()
    assert "def calibrate(probabilities):" in Path(waiting.value.path()).read_text()


def test_columns_that_the_labels_name_are_used_with_one_click(studio, tmp_path, arrays):
    probs, labels = arrays
    names = ["Boots, ankle", "<b>Sandal</b>", "fox", "owl"]
    rows = [",".join([*map(str, row), f'"{names[label]}"', "7.5"]) for row, label in zip(probs, labels, strict=True)]
    header = ",".join([*(f'"{name}"' for name in names), "truth", "price"])
    path = tmp_path / "forest.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    upload(studio, path)
    studio.get_by_role("button", name="Use these columns").press("Enter")
    expect(studio.get_by_label("Scores", exact=True)).to_be_focused()
    expect(studio.locator("select.used")).to_have_count(5)
    expect(studio.get_by_label("Use of price")).to_have_value("")
    studio.get_by_label("Use of owl").select_option("")  # one less, then again: commas in names separate nothing
    expect(studio.locator("select.used")).to_have_count(4)
    studio.get_by_label("Use of owl").select_option("scores")
    expect(studio.locator("select.used")).to_have_count(5)
    evaluate(studio)
    test = load(path, kind="probs", scores=names, labels="truth")
    expect(studio.locator("[data-value=ece]")).to_have_text(near(ece(test)))


def test_bad_weights_are_refused_at_their_control_and_a_pair_of_arrays_is_read(studio, tmp_path, arrays):
    probs, labels = arrays
    np.savez(tmp_path / "mine.npz", probs=probs, labels=labels, w=np.zeros(len(labels)))
    upload(studio, tmp_path / "mine.npz")
    studio.get_by_label("Weights").select_option("w")
    studio.wait_for_selector("th select.used >> nth=2")
    studio.get_by_role("button", name="Evaluate").last.click()
    studio.locator(".field:has-text('Weights') .trouble", has_text="must not all be 0").wait_for()
    for name, array in (("scores", probs), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", array)
    studio.set_input_files("input[type=file]", [tmp_path / "labels.npy", tmp_path / "scores.npy"])
    studio.locator("h2", has_text="scores.npy").wait_for()
    studio.locator("input[value=probs]").check()
    evaluate(studio)
    expect(studio.locator(".number")).to_contain_text(f"{ece(load(tmp_path / 'mine.npz')):.4f}")


def test_percentages_are_read_when_the_reader_says_so(studio, tmp_path, arrays):
    probs, labels = arrays
    path, percent = tmp_path / "answers.csv", np.rint(100 * probs.max(1)).astype(int)
    correct = (probs.argmax(1) == labels).tolist()
    rows = [f"{one},{'yes' if right else 'no'}" for one, right in zip(percent, correct, strict=True)]
    path.write_text("\n".join(["confidence,correct", *rows]) + "\n")
    upload(studio, path)
    studio.get_by_role("button", name="Evaluate").last.click()
    studio.locator(".field:has-text('Percentages') .trouble", has_text="pass ‘Percentages’").wait_for()
    studio.get_by_label("Percentages").check()
    check_accessibility(studio)
    evaluate(studio)
    expect(studio.locator(".number")).to_contain_text(f"{ece(load(path, percent=True)):.4f}")
    expect(studio.locator(".lines code").first).to_contain_text("answers.csv --percent")


def test_two_models_are_compared_side_by_side(studio, tmp_path, arrays):
    probs, labels = arrays
    mine, other = (saved(tmp_path / f"{name}.csv", (scores, labels)) for name, scores in
                   (("mine", probs), ("other", np.sqrt(probs) / np.sqrt(probs).sum(1, keepdims=True))))  # fmt: skip
    short = saved(tmp_path / "short.csv", (probs[1:], labels[1:]))
    upload(studio, mine)
    evaluate(studio)
    studio.get_by_role("button", name="Compare with another model").click()
    studio.locator("h2", has_text="Baseline").wait_for()
    check_accessibility(studio)
    upload(studio, short)
    studio.get_by_role("button", name="Compare", exact=True).click()
    studio.get_by_role("alert").filter(has_text="got 799 and 800 samples").wait_for()
    upload(studio, other)
    studio.locator("form h2", has_text="other.csv").wait_for()
    expect(studio.get_by_label("Use of label")).to_have_class("used")
    studio.get_by_role("button", name="Compare", exact=True).press("Enter")
    rows = studio.locator(".differences tbody tr")
    expect(rows).to_have_count(7)
    expect(studio.locator("h1").first).to_be_focused()  # the button that was pressed is gone
    expected = difference(load(other), load(mine), [ECE(), NLL()], resamples=1000, seed=0)
    for name, change in expected.items():
        cells = rows.filter(has=studio.locator("code", has_text=re.compile(f"^{name}$"))).locator("td")
        expect(cells.nth(1)).to_have_text(near(change.baseline))
        expect(cells.nth(2)).to_have_text(near(change.candidate))
        expect(cells.nth(3)).to_have_class(change.side)
    expect(studio.locator(".differences .words")).to_contain_text("Compared with other.csv on the same samples")
    studio.get_by_role("button", name="Show all").click()
    assert rows.count() > 20
    for chart in ("reliability", "risk"):
        expect(studio.locator(f"[data-chart={chart}] path.other")).to_have_count(1)
    expect(studio.locator("[data-chart=overlay] g[data-method]")).to_have_count(2)
    expect(studio.locator(".brief section:visible")).to_have_count(1)  # the differences stand above, once
    expect(studio.locator(".lines code").first).to_contain_text("calibrant evaluate mine.csv --baseline other.csv")
    for theme in ("light", "dark"):
        studio.emulate_media(color_scheme=theme)
        check_accessibility(studio)
    studio.set_viewport_size({"width": 390, "height": 900})
    wait_until_it_fits(studio, 390)
    reload_what_is_computed(studio, "evaluate")  # the address has both
    expect(rows).to_have_count(7)
    studio.get_by_role("button", name="Choose another baseline").click()
    studio.locator("h2", has_text="Baseline").wait_for()


def test_rows_without_values_are_left_out_when_the_reader_says_so(studio, tmp_path, arrays):
    path = saved(tmp_path / "holes.csv", arrays)
    header, *lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([header, *(f",{one.partition(',')[2]}" if i in {2, 5} else one for i, one in enumerate(lines))])
    )
    upload(studio, path)
    studio.get_by_role("button", name="Evaluate").last.click()
    offer = studio.get_by_role("alert").get_by_role("button", name="Leave out 2 rows without values")
    offer.wait_for()
    check_accessibility(studio)
    expect(studio.get_by_label("Leave out rows without values")).not_to_be_checked()
    offer.press("Enter")
    studio.wait_for_selector("[data-value=ece]")
    expect(studio.locator(".facts")).to_contain_text("798 samples, 4 classes, 2 rows left out")
    expect(studio.locator(".findings")).to_contain_text("2 of 800 rows of holes.csv lack a score")
    expect(studio.locator(".lines code").first).to_contain_text("--missing drop")
    studio.reload()
    expect(studio.locator(".facts")).to_contain_text("2 rows left out")
    studio.get_by_role("button", name="Open").click()
    expect(studio.get_by_label("Leave out rows without values")).to_be_checked()


def test_long_names_of_classes_and_columns_widen_nothing(studio, tmp_path, arrays):
    studio.set_viewport_size({"width": 390, "height": 900})
    probs, labels = arrays
    names = [letter * 700 for letter in "abcd"]
    path = tmp_path / "long.csv"
    rows = [f"{','.join(f'{p:.17g}' for p in row)},{names[label]}" for row, label in zip(probs, labels, strict=True)]
    path.write_text("\n".join([",".join([*names, "label"]), *rows]) + "\n")
    upload(studio, path)
    studio.locator("input[value=probs]").check()
    studio.get_by_label("Scores", exact=True).fill(",".join(names))
    studio.get_by_label("True class", exact=True).fill("label")
    studio.wait_for_selector("th select.used >> nth=4")
    wait_until_it_fits(studio, 390)
    evaluate(studio)
    studio.locator(".classes td button").first.click()
    studio.locator(".samples .legend", has_text="predicted as").wait_for()
    wait_until_it_fits(studio, 390)
    studio.get_by_role("button", name="Compare models").click()
    studio.get_by_role("button", name="long.csv", exact=True).click()
    studio.wait_for_selector("form table")
    studio.get_by_role("button", name="Compare", exact=True).click()
    studio.wait_for_selector(".differences")
    wait_until_it_fits(studio, 390)


def test_a_hostile_name_is_shown_as_text(studio, tmp_path, arrays):
    upload(studio, saved(tmp_path / HOSTILE_NAME, arrays))
    evaluate(studio)
    expect(studio.locator("main").first).to_contain_text("<script>alert(1)", use_inner_text=True)
    expect(studio.locator("main script")).to_have_count(0)


def test_a_screen_has_no_serious_violation_of_accessibility(studio, tmp_path, arrays):
    if not AXE.exists():
        pytest.skip("needs axe-core (make frontend)")
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    check_accessibility(studio)
    evaluate(studio)
    studio.wait_for_selector(".samples table")
    for theme in ("light", "dark"):
        studio.emulate_media(color_scheme=theme)
        check_accessibility(studio)
    studio.get_by_role("button", name="What is calibration?").click()
    studio.wait_for_selector("text=Calibrated does not mean useful")
    check_accessibility(studio)


@pytest.mark.parametrize("width", [360, 2560])
def test_nothing_is_cut_off_at_any_width(studio, tmp_path, arrays, width):
    studio.set_viewport_size({"width": width, "height": 900})
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    evaluate(studio)
    wait_until_it_fits(studio, width)


def test_the_keyboard_reaches_everything(studio, tmp_path, arrays):
    upload(studio, saved(tmp_path / "mine.npz", arrays))
    studio.locator("h1").focus()
    reached = []
    for _ in range(80):  # also past the files of the other tests
        studio.keyboard.press("Tab")
        reached.append(studio.evaluate("document.activeElement.textContent || document.activeElement.name || ''"))
        if reached[-1] == "Evaluate" and len(reached) > 5:
            break
    assert reached[-1] == "Evaluate"
    studio.keyboard.press("Enter")
    studio.wait_for_selector("[data-value=ece]")


def test_picking_a_bar_or_a_class_shows_its_samples(studio, tmp_path, arrays):
    path = saved(tmp_path / "mine.npz", arrays)
    upload(studio, path)
    evaluate(studio)
    chart = studio.locator("[data-chart=reliability] .hit")
    box = chart.bounding_box()
    place = (box["x"] + box["width"] * 0.97, box["y"] + box["height"] / 2)  # in the last of fifteen bins
    studio.mouse.move(*place)
    expect(studio.locator("[data-chart=reliability] .reading")).to_contain_text("Confidence 93.3 % to 100.0 %")
    studio.mouse.click(*place)
    top = load(path).top
    count = int((top.confidence > 14 / 15).sum())
    studio.wait_for_selector(f"text={count} samples with confidence above 93.3 % and up to 100.0 %")
    expect(studio.locator("section.samples")).to_be_focused()  # Tab goes on there
    studio.locator(".classes td button").first.click()
    name = studio.locator(".classes td button").first.inner_text()
    predicted = int((load(path).predicted == int(name.removeprefix("class "))).sum())
    studio.wait_for_selector(f"text={predicted} samples predicted as {name}")


def test_picking_a_bar_of_two_classes_shows_the_samples_of_that_probability(studio, tmp_path, arrays):
    probs, labels = arrays
    two = np.stack([probs[:, :2].sum(1), probs[:, 2:].sum(1)], 1), (labels >= 2).astype(int)
    path = saved(tmp_path / "two.npz", two)
    upload(studio, path)
    evaluate(studio)
    chart = studio.locator("[data-chart=reliability] .hit")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    place = (box["x"] + box["width"] * 0.03, box["y"] + box["height"] / 2)  # in the first of fifteen bins
    studio.mouse.move(*place)
    expect(studio.locator("[data-chart=reliability] .reading")).to_contain_text("Probability 0.0 % to 6.7 %")
    studio.mouse.click(*place)
    count = int((as_risk(load(path)).confidence <= 1 / 15).sum())
    studio.wait_for_selector(f"text={count} samples with probability of class 1 above 0.0 % and up to 6.7 %")


def test_the_walk_explains_calibration_with_the_reader_s_own_numbers(studio, tmp_path, arrays):
    path = saved(tmp_path / "mine.npz", arrays)
    upload(studio, path)
    evaluate(studio)
    studio.get_by_role("button", name="What is calibration?").click()
    studio.wait_for_selector("text=Calibrated does not mean useful")
    expect(studio.locator(".learn")).to_contain_text(f"{ece(load(path)):.4f}")
    studio.get_by_role("button", name="Play").click()
    studio.locator("figcaption", has_text=re.compile(r"in ([7-9]|\d\d) bins")).wait_for()
    studio.get_by_role("button", name="Calibrate", exact=True).last.click()
    studio.wait_for_selector("text=Fit and compare")


def test_a_folder_of_the_command_is_shown_without_its_network(studio, record):
    _, found = record
    studio.get_by_role("button", name="Neural Clamping").click()  # no file is open
    studio.wait_for_selector("[data-value=both-ece]")
    expect(studio.locator("input[name=network]:checked + span")).to_have_text("my <clamped>")
    expect(studio.locator(".pictures canvas")).to_have_count(3)
    expect(studio.locator("[data-value=delta-nll] b")).to_have_text(near(found["parts"]["delta"]["nll"]["value"]))
    check_accessibility(studio)
    studio.get_by_role("button", name="Open").click()
    studio.get_by_role("button", name="my <clamped>/after.npz", exact=True).click()
    studio.wait_for_selector("form table")


def test_clamping_shows_what_delta_and_temperature_do(studio, tmp_path, monkeypatch):
    studio.get_by_role("button", name="Neural Clamping").click()
    studio.get_by_label("digits (example)").click()
    studio.wait_for_selector("text=Take home", timeout=600_000)  # a network is trained
    expect(studio.locator(".pictures .pixels")).to_have_count(3)
    expect(studio.locator(".pictures .pixels").first.locator("rect")).to_have_count(64)
    bars = {kind: f"[data-chart=probabilities] .{kind} rect" for kind in ("before", "after")}
    before, both = shares(studio, bars["before"]), shares(studio, bars["after"])
    assert sum(before) == pytest.approx(1, abs=1e-4)
    assert before != both
    studio.get_by_label("T only").click()
    studio.wait_for_selector("figure.seen:has-text('x, the image')")
    scaled = wait_for_other_shares(studio, bars["after"], both)
    assert np.argmax(scaled) == np.argmax(before)
    assert max(scaled) < max(before)  # an overconfident network
    expect(studio.locator("tr.chosen")).to_contain_text("shown")
    studio.wait_for_url(re.compile("part=temperature"))
    studio.locator("input[name=digit]").first.focus()
    studio.keyboard.press("ArrowRight")
    studio.wait_for_url(re.compile("sample=1"))
    wait_for_other_shares(studio, bars["before"], before)
    with studio.expect_download() as waiting:
        studio.get_by_role("link", name="The clamped network").click()
    waiting.value.save_as(tmp_path / "clamped.safetensors")
    monkeypatch.setattr("calibrant.training.run.DIGITS_EPOCHS", 1)  # its test samples are the same
    clamped, test = load_clamped(tmp_path / "clamped.safetensors", DigitsCNN()), train_on_digits(seed=0).test
    after = Predictions.from_logits(clamped(test.images).detach(), test.labels)
    expect(studio.locator("[data-value=both-ece] b")).to_have_text(near(ece(after)))
    studio.set_viewport_size({"width": 360, "height": 900})
    wait_until_it_fits(studio, 360)
    check_accessibility(studio)
    reload_what_is_computed(studio, "clamp")
