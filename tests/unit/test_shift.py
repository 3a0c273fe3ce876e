"""Class proportions, expected accuracy and adjusted maps of samples without labels."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.numerics.test_mixture import em
from typer.testing import CliRunner

from calibrant import Predictions, TemperatureScaling, load, load_map, measure_shift, save, save_map
from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.cli.main import app
from calibrant.diagrams import shift_diagram
from calibrant.errors import FitError, InputError, SeparableError
from calibrant.evidence.label_shift import LabelShift, Scores
from calibrant.maps import ChainMap
from calibrant.plots import plot_distribution, plot_proportions
from calibrant.report import to_html, to_latex, to_markdown
from calibrant.report.shift import shift_page

OLD, NEW = (0.4, 0.4, 0.2), (0.15, 0.25, 0.6)
FEW = {"resamples": 100}


def made(n: int, shares: tuple[float, ...], seed: int, *, noise: float = 1.0) -> Predictions:
    """Samples of a model that is twice as sure as it should be, and overrates its first class."""
    rng, k = np.random.default_rng(seed), len(shares)
    labels = rng.choice(k, size=n, p=shares)
    logits = 2 * (2 * np.eye(k)[labels] + noise * rng.normal(size=(n, k))) + np.eye(k)[0]
    return Predictions.from_logits(2 * logits, labels)


@pytest.fixture(scope="module")
def reference() -> Predictions:
    return made(1500, OLD, 0)


@pytest.fixture(scope="module")
def new() -> Predictions:
    return made(1200, NEW, 1)


def test_known_proportions_and_accuracy_are_within_their_intervals(reference, new):
    shift = measure_shift(reference, new, labelled=True)
    assert shift.is_changed
    assert shift.is_label_shift
    assert all(one.is_changed for one in shift.classes)
    assert all(one.new.low <= share <= one.new.high for one, share in zip(shift.classes, NEW, strict=True))
    assert shift.covered == 3
    for one in shift.expected.values():
        assert one.accuracy.low <= one.actual["accuracy"] <= one.accuracy.high
        assert one.nll.low <= one.actual["nll"] <= one.nll.high
    assert shift.expected["given"].actual["accuracy"] == pytest.approx(new.top.accuracy)
    assert shift.gain["nll"].high < 0
    assert shift.labels_needed == {0.1: 97, 0.05: 385}  # 0.25 (1.96 / half)², rounded up


def test_proportions_are_those_of_em_on_calibrated_probabilities(reference, new):
    shift = measure_shift(reference, logits=new.logits, **FEW)
    posteriors = BiasCorrectedTemperature().fit(reference).predict_proba(logits=new.logits).double().numpy()
    prior = np.bincount(reference.labels, minlength=3) / len(reference)
    assert [one.new.value for one in shift.classes] == pytest.approx(em(posteriors, prior).tolist(), abs=1e-6)
    assert [one.reference.value for one in shift.classes] == pytest.approx(prior.tolist())
    assert shift.certificate.gradient <= 1e-9


def test_the_reference_itself_did_not_change(reference):
    """The bias-corrected temperature makes its class proportions the most likely ones, whatever the model says."""
    shift = measure_shift(reference, logits=reference.logits, **FEW)
    assert [one.new.value for one in shift.classes] == pytest.approx(
        [one.reference.value for one in shift.classes], abs=1e-6
    )
    assert not shift.is_changed
    assert shift.p_unchanged == pytest.approx(1)
    assert shift.is_label_shift


def test_a_change_within_the_classes_is_seen(reference):
    shift = measure_shift(reference, made(1200, NEW, 1, noise=1.6), **FEW)
    assert not shift.is_label_shift
    assert shift_page(shift, reference="old", new="new").tone == "bad"


def test_the_map_multiplies_calibrated_probabilities_by_ratios_of_proportions(reference, new, tmp_path):
    shift = measure_shift(reference, new, **FEW)
    calibrated = BiasCorrectedTemperature().fit(reference).predict_proba(logits=new.logits).double()
    ratio = torch.tensor([one.new.value / one.reference.value for one in shift.classes], dtype=torch.float64)
    expected = calibrated * ratio
    expected /= expected.sum(1, keepdim=True)
    assert shift.map.predict_proba(logits=new.logits).numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    save_map(shift.map, tmp_path / "adjusted.safetensors")
    network = torch.nn.Sequential(torch.nn.Identity(), load_map(tmp_path / "adjusted.safetensors"))
    assert network(new.logits).softmax(1).numpy() == pytest.approx(expected.numpy(), abs=1e-6)


def test_a_map_in_use_comes_first(reference, new):
    fitted = TemperatureScaling().fit(reference)
    shift = measure_shift(reference, new, fitted=fitted, **FEW)
    assert isinstance(shift.map, ChainMap)
    assert shift.map.maps[0] is fitted
    alone = measure_shift(reference, new, **FEW)
    assert shift.map(new.logits).softmax(1).numpy() == pytest.approx(alone.map(new.logits).softmax(1).numpy(), abs=1e-5)
    given = fitted.transform(reference)
    assert shift.expected["given"].on_reference.value == pytest.approx(given.top.accuracy)


def test_a_class_of_which_nothing_is_seen_stays_possible(reference):
    shift = measure_shift(reference, made(400, (0.6, 0.4, 0.0), 2), **FEW)
    assert shift.classes[2].new.value < 0.02
    assert shift.classes[2].new.low == 0
    assert shift.classes[2].new.high > 0.005  # by Wilson's score: none of 400 samples
    assert bool(shift.map(torch.zeros(1, 3)).isfinite().all())


def test_resamples_move_as_much_as_all_estimates_made_again(reference, new):
    """The derivative by the weight of some samples, which calibration, proportions of the reference and EM follow."""
    few, others = reference[:400], new[:300]

    def estimated(old: torch.Tensor, now: torch.Tensor) -> LabelShift:
        pair = [few.with_weights(old), others.with_weights(now)]
        fitted = BiasCorrectedTemperature().fit_without_scores(pair[0])
        rng = np.random.default_rng(0)
        scores = [Scores.of(one, fitted.weight, fitted.bias, 100, rng) for one in pair]
        return LabelShift.of(*scores, few.labels)

    step, ones = 1e-3, (torch.ones(400, dtype=torch.float64), torch.ones(300, dtype=torch.float64))
    base = estimated(*ones)
    # In place of drawn resamples: a single one, in which the first group counts a little more.
    heavy_old, heavy_new = (one.clone() for one in ones)
    heavy_old[base.old.group < 40] += step
    heavy_new[base.new.group < 40] += step
    weights = torch.ones(100, base.old.groups, dtype=torch.float64)
    weights[:, :40] += step
    pair = [one._replace(weights=weights[:, : one.groups]) for one in (base.old, base.new)]
    linear = LabelShift.of(*pair, few.labels).drawn[0] - base.fit.shares
    moved = estimated(heavy_old, heavy_new).fit.shares - base.fit.shares
    assert float(moved.abs().max()) > 1e-6
    assert linear.tolist() == pytest.approx(moved.tolist(), rel=0.02, abs=2e-8)


def test_weights_count_as_repetitions(reference, new):
    times = torch.arange(len(new)) % 2 + 1
    weighted = measure_shift(reference, new.with_weights(times), **FEW)
    repeated = measure_shift(reference, logits=new.logits.repeat_interleave(times, 0), **FEW)
    assert [one.new.value for one in weighted.classes] == pytest.approx(
        [one.new.value for one in repeated.classes], abs=1e-6
    )
    assert weighted.effective[1] < len(new)


def test_copies_in_clusters_know_no_more_than_the_samples(reference, new):
    rows = torch.arange(300).repeat(4)
    copied = new[:300][rows].with_clusters(rows)
    width = [
        one.classes[2].new.high - one.classes[2].new.low
        for one in (
            measure_shift(reference, new[:300]),
            measure_shift(reference, copied),
            measure_shift(reference, new[:300][rows]),
        )
    ]
    assert width[1] == pytest.approx(width[0], rel=0.15)
    assert width[2] < 0.8 * width[0]


def test_zeros_among_probabilities_are_no_obstacle():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=900)
    votes = rng.multinomial(5, 0.7 * np.eye(3)[labels] + 0.1)  # as of five neighbours
    reference = Predictions.from_probs(votes[:600] / 5, labels[:600])
    shift = measure_shift(reference, probs=votes[600:] / 5, **FEW)
    assert not shift.is_changed
    assert shift.map.uniform_share is not None
    assert np.isfinite(shift.map.predict_proba(probs=votes / 5)).all()


def test_two_classes_compare_the_probability_of_the_second():
    old, now = made(600, (0.8, 0.2), 0), made(500, (0.3, 0.7), 1)
    shift = measure_shift(old, now)
    assert set(shift.parts) == {"confidence"}
    assert shift.classes[1].new.low <= 0.7 <= shift.classes[1].new.high
    assert float(shift.distributions["confidence"].edges[0]) == 0


def test_what_cannot_be_estimated_is_refused(reference, new):
    with pytest.raises(InputError, match="given once"):
        measure_shift(reference)
    with pytest.raises(InputError, match="10 new samples"):
        measure_shift(reference, new[:9])
    with pytest.raises(InputError, match="10 reference samples"):
        measure_shift(reference[:9], new)
    with pytest.raises(InputError, match="same classes"):
        measure_shift(reference, logits=new.logits[:, :2])
    with pytest.raises(FitError, match="none of class 1"):
        measure_shift(reference[reference.labels != 1], new)
    with pytest.raises(SeparableError, match="wrong predictions"):
        measure_shift(reference[reference.correct], new)
    names = [replace(one, class_names=order) for one, order in ((reference, ("a", "b", "c")), (new, ("b", "a", "c")))]
    with pytest.raises(InputError, match="in one order"):
        measure_shift(*names)


def test_a_page_says_what_happened_and_what_to_do(reference, new):
    changed, alike = measure_shift(reference, new, **FEW), measure_shift(reference, made(1000, OLD, 3), **FEW)
    page = shift_page(changed, reference="old.csv", new="new.csv", command="calibrant shift old.csv new.csv -o map")
    assert page.verdict.headline.startswith("The class proportions changed")
    assert page.verdict.next_steps[0] == "Save the adjusted map."
    assert page.commands == ("calibrant shift old.csv new.csv -o map",)
    assert "label new samples" in page.verdict.next_steps[1]
    document = page.data()
    assert document["schema"] == "calibrant.shift/1"
    assert json.loads(json.dumps(document, allow_nan=False))["classes"][2]["is_changed"]
    for render in (to_html, to_markdown, to_latex):
        assert "proportions" in render(page)
    page = shift_page(alike, reference="old.csv", new="new.csv", command="calibrant shift")
    assert (page.tone, page.commands) == ("good", ())
    assert page.verdict.headline.startswith("No change of the class proportions")


def test_figures_show_every_class_or_those_that_changed_most(reference, new):
    shift = measure_shift(reference, new, labelled=True, **FEW)
    ax = plot_proportions(shift, name="new.csv")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "2"]
    assert {"reference", "actual", "new samples, changed beyond chance"} == {
        t.get_text() for t in ax.get_legend().get_texts()
    }
    for of, parts in shift.distributions.items():
        assert plot_distribution(shift, of=of).get_title(loc="left") == f"{of.capitalize()} now and before"
        for one in (parts.new, parts.reweighted, parts.reference):
            assert float(one.sum()) == pytest.approx(1)
    many = shift_diagram(replace(shift, classes=shift.classes * 10))
    assert (len(many.classes), many.left_out) == (20, 10)
    changes = [abs(one.new.value - one.reference.value) for one in many.classes]
    assert changes == sorted(changes, reverse=True)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def files(reference, new, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save(reference, "reference.csv")
    save(new, "labelled.csv")
    np.savez("new.npz", logits=new.logits.numpy())
    return tmp_path


def test_the_command_needs_no_labels_and_saves_a_map_for_apply_and_export(files, reference, new):
    shown = run("shift", "reference.csv", "new.npz", "-o", "adjusted.safetensors", "--json", "shift.json", "--markdown",
                "shift.md", "--html", "shift.html", "--figures", "figures", "--resamples", 100)  # fmt: skip
    assert "The class proportions changed" in shown
    assert "calibrant apply adjusted.safetensors new.npz" in shown
    assert {path.name for path in (files / "figures").iterdir()} == {"proportions.png", "confidence.png", "spread.png"}
    assert "data:image/png" in (files / "shift.html").read_text(encoding="utf-8")
    document = json.loads((files / "shift.json").read_text(encoding="utf-8"))
    assert document["covered"] is None
    run("apply", "adjusted.safetensors", "labelled.csv", "-o", "adjusted.csv")
    run("export", "adjusted.safetensors", "-o", "adjusted.py")
    adjusted = measure_shift(reference, new, **FEW).map.transform(new)
    assert load("adjusted.csv").logits.numpy() == pytest.approx(adjusted.logits.numpy(), abs=1e-4)


@pytest.mark.usefixtures("files")
def test_the_advised_command_applies_the_map_to_new_samples_without_the_column_of_labels():
    for file, share, columns in (("old.csv", 0.5, "risk,sick"), ("now's.csv", 0.2, "risk")):
        samples = made(400, (share, 1 - share), 0)
        table = torch.stack([samples.probs[:, 1], samples.labels.double()], dim=1)[:, : 1 + columns.count(",")]
        np.savetxt(file, table.numpy(), fmt="%.5g", delimiter=",", header=columns, comments="")
    reading = ("--positive", "risk", "--labels", "sick")
    shown = run("shift", "old.csv", "now's.csv", *reading, "-o", "map.safetensors", "--resamples", 100)
    command = next(line for line in map(str.strip, shown.splitlines()) if line.startswith("calibrant apply"))
    run(*shlex.split(command)[1:])
    assert Path("adjusted.csv").read_text(encoding="utf-8").startswith("risk")


@pytest.mark.usefixtures("files")
def test_the_command_uses_labels_to_check_only_and_adjusts_a_map_in_use():
    plain = run("shift", "reference.csv", "labelled.csv", "--resamples", 100, "--json", "labelled.json")
    assert "3 of 3 intervals hold" in plain
    run("shift", "reference.csv", "new.npz", "--resamples", 100, "--json", "unlabelled.json")
    both = [json.loads(Path(f"{name}.json").read_text(encoding="utf-8")) for name in ("labelled", "unlabelled")]
    shares = [[one["new"]["value"] for one in document["classes"]] for document in both]
    assert shares[0] == pytest.approx(shares[1], abs=1e-9)
    run("fit", "temperature", "reference.csv", "-o", "map.safetensors")
    run("shift", "reference.csv", "new.npz", "--map", "map.safetensors", "-o", "chain.safetensors", "--resamples", 100)
    assert isinstance(load_map("chain.safetensors"), ChainMap)


def test_the_command_refuses_files_of_the_top_label_alone(files):
    (files / "top.csv").write_text("confidence,correct\n0.9,1\n0.8,0\n", encoding="utf-8")
    with pytest.raises(InputError, match="every class"):
        run("shift", "top.csv", "new.npz")
