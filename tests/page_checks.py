"""What the tests in Chromium share. A page is drawn again some time after an action, so that every look at it waits."""

import json
import math
import re
from pathlib import Path

import pytest

from calibrant.report.page import number_text

expect = pytest.importorskip("playwright.sync_api", reason="needs Playwright (make browser)").expect
PATIENCE = 120_000  # milliseconds, after which what is waited for will never come
AXE = Path(__file__).parents[1] / "frontend/node_modules/axe-core/axe.min.js"

expect.set_options(timeout=PATIENCE)


def near(number):
    """Return a pattern of the two numbers of four decimals around this one."""
    low = math.floor(1e4 * number) / 1e4
    return re.compile("^({}|{})$".format(*(re.escape(number_text(one)) for one in (low, low + 1e-4))))


def shares(page, bars):
    """Return the numbers that the bars of a chart are drawn from."""
    return list(map(float, page.locator(bars).evaluate_all("all => all.map(one => one.dataset.share)")))


def wait_for_other_shares(page, bars, before):
    """Return the numbers of the bars as soon as they are others than before."""
    drawn = "[...document.querySelectorAll(bars)].map((bar) => Number(bar.dataset.share))"
    page.wait_for_function(f"([bars, before]) => {drawn}.some((share, i) => share !== before[i])", arg=[bars, before])
    return shares(page, bars)


def wait_until_it_fits(page, width):
    """Wait until nothing is wider than the window; charts follow its width when it has changed."""
    page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)


def check_accessibility(page):
    """Assert that axe-core finds nothing serious on the page, where it is installed."""
    if not AXE.exists():
        return
    page.evaluate(AXE.read_text())
    found = [
        (rule["id"], [node["html"][:200] for node in rule["nodes"]])
        for rule in page.evaluate("axe.run().then((result) => result.violations)")
        if rule["impact"] in {"serious", "critical"}
    ]
    assert found == [], json.dumps(found, indent=1)
