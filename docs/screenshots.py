"""Draw docs/images/report.png and report-dark.png: reports on the bundled predictions, as Chromium shows them.

Run after ``make browser``: ``python docs/screenshots.py``.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

from calibrant import evaluate
from calibrant.comparison import compare
from calibrant.datasets import load_resnet110
from calibrant.report import Page, comparison_page, evaluation_page, write
from calibrant.report.interactive import comparison_charts, evaluation_charts

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1280, 740


def pages() -> dict[str, tuple[Page, str]]:
    """Return each report, and whether it is shown light or dark."""
    bundled = load_resnet110()
    evaluation = evaluate(bundled.test)
    comparison = compare(bundled.calibration, bundled.test)
    first = evaluation_page(evaluation, source="resnet110-test.npz")
    second = comparison_page(comparison, calibration=Path("calibration.npz"), test=Path("test.npz"))
    return {
        "report.png": (replace(first, charts=lambda: evaluation_charts(evaluation, bundled.test)), "light"),
        "report-dark.png": (replace(second, charts=lambda: comparison_charts(comparison, bundled.test)), "dark"),
    }


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (report, scheme) in pages().items():
            file = write(report, Path(folder) / "report.html")
            page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(file.as_uri())
            page.wait_for_selector("[data-chart]")
            page.screenshot(path=IMAGES / name)
        chromium.close()


if __name__ == "__main__":
    main()
