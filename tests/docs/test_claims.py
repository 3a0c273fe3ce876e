"""What README and docs claim of all methods or all metrics, held against the catalogue."""

import ast
import re
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch

from calibrant import catalogue
from calibrant.calibrators import Chain, TemperatureScaling
from calibrant.errors import CalibrantWarning
from calibrant.evaluation import evaluate
from calibrant.predictions import Predictions

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def samples():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 3, generator=generator, dtype=torch.float64)
    labels = (logits / 2).softmax(1).multinomial(1, generator=generator)[:, 0]
    return Predictions.from_logits(logits, labels)


def test_the_methods_that_the_page_names_are_those_without_a_certificate(samples):
    text = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^\*\*Certificates\.\*\*(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([a-z_]+)`", paragraph)) & set(catalogue.calibrators)
    without = set()
    for name, calibrator in catalogue.calibrators.items():
        method = Chain((TemperatureScaling(), TemperatureScaling())) if name == "chain" else calibrator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            if method.fit(samples).summary.certificate is None:
                without.add(name)
    assert named == without


def test_every_metric_has_an_interval_and_every_calibration_error_a_noise_floor_and_p(samples):
    found = evaluate(samples, resamples=50).metrics
    families = {name: metric.family for name, metric in catalogue.metrics.items()}
    assert len(found) > 20
    for name, estimate in found.items():
        assert estimate.low <= estimate.high, name
        is_error = families[name] == "calibration"
        assert (estimate.floor is not None, estimate.p is not None) == (is_error, is_error), name


def test_the_readme_counts_metrics_methods_and_losses():
    methods = (set(catalogue.calibrators) | set(catalogue.feature_calibrators)) - {"uncalibrated", "auto", "chain"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"{len(methods)} calibration methods" in readme
    assert f"[{len(catalogue.metrics)} metrics]" in readme
    assert f"[{len(catalogue.losses) + len(catalogue.meta_losses)} losses]" in readme


def test_every_metric_method_and_loss_stands_on_the_pages_that_the_readme_links_to():
    named = {
        "metrics.md": catalogue.metrics,
        "losses.md": [*catalogue.losses, *catalogue.meta_losses],
        "calibrators/README.md": [*catalogue.calibrators, *catalogue.feature_calibrators],
    }
    for page, names in named.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert [name for name in names if f"`{name}`" not in text and f"({name}.md)" not in text] == [], page


def test_the_log_losses_by_number_of_samples_are_those_of_the_study():
    def rows_of(page, heading):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        (table,) = re.findall(rf"^\| {heading} \|\n(?:\|.*\n)+", text, re.MULTILINE)
        return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:2] != "|-"]

    study = rows_of("comparison.md", r"method \| 100 .*")
    sizes = study[0][1:]
    gains = {(row[0], size): gain for row in study[1:] for size, gain in zip(sizes, row[1:], strict=True)}
    headings, *told = rows_of("choosing.md", r"samples \| .*")
    assert len(told) >= 4
    names = {
        "platt (one-vs-rest)": "platt",
        "isotonic (top label)": "isotonic",
        "isotonic (one-vs-rest)": "isotonic_ovr",
    }
    for size, *numbers in told:
        for heading, number in zip(headings[1:], numbers, strict=True):
            recorded = gains[names.get(heading, heading), size]
            if recorded == "–":
                assert number == "cannot be fitted", (heading, size)
            else:
                assert float(number.replace("−", "-")) == float(recorded), (heading, size)


def test_every_test_that_the_page_on_robustness_names_exists_and_every_case_names_one():
    text = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    cases = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| case |")]
    assert len(cases) > 40
    for case in cases:
        named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", case)
        assert named, case
        for path, name in named:
            assert name in _tests_of(ROOT / path), f"{path}::{name}"


@cache
def _tests_of(path):
    """Return the tests of a file as pytest names them, without their parameters."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_"):
                names.add(f"{node.name}::{inner.name}" if inner is not node else inner.name)
    return names
