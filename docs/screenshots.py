"""Draw docs/images/report.png and studio.png: a report and the studio on the bundled predictions, in Chromium.

Run after ``make browser``: ``python docs/screenshots.py``.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from calibrant import evaluate
from calibrant.datasets import load_resnet110
from calibrant.report import evaluation_page, write
from calibrant.report.interactive import evaluation_charts

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1280, 1120
METHODS = ("Temperature scaling", "Ensemble temperature scaling", "Vector scaling")


def main() -> None:
    """Write the pictures."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        draw_report(chromium)
        draw_studio(chromium)
        chromium.close()


def draw_report(chromium: Browser) -> None:
    """Draw the evaluation of the bundled ResNet-110, light."""
    test = load_resnet110().test
    evaluation = evaluate(test)
    page = evaluation_page(evaluation, source="resnet110-test.npz")
    with tempfile.TemporaryDirectory() as folder:
        file = write(replace(page, charts=lambda: evaluation_charts(evaluation, test)), Path(folder) / "report.html")
        window = opened(chromium, file.as_uri(), "light")
        window.wait_for_selector("[data-chart]")
        window.screenshot(path=IMAGES / "report.png")


def draw_studio(chromium: Browser) -> None:
    """Draw a comparison of methods in the studio, dark."""
    with studio() as address:
        window = opened(chromium, address, "dark")
        window.get_by_role("button", name="ResNet-110").click()
        window.locator(".primary").click()
        window.wait_for_selector("[data-chart]")
        window.get_by_role("button", name="Calibrate").first.click()
        for method in METHODS:
            window.get_by_role("checkbox", name=method, exact=True).check()
        window.get_by_role("button", name="Fit and compare").click()
        window.wait_for_selector("[data-chart]")
        window.evaluate("scrollTo(0, 0)")
        window.mouse.move(0, 0)
        window.screenshot(path=IMAGES / "studio.png")


def opened(chromium: Browser, address: str, scheme: str) -> Page:
    """Return a window on an address, light or dark."""
    window = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)  # type: ignore[arg-type]
    window.set_default_timeout(180_000)
    window.goto(address)
    return window


@contextmanager
def studio() -> Iterator[str]:
    """Start the studio, and return its address."""
    command = [sys.executable, "-m", "calibrant", "serve", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, "the studio prints its address"
            yield found[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
