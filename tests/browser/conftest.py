"""Chromium for the tests of reports; without it or Playwright they are skipped (``make browser`` gets both)."""

import shutil

import pytest


@pytest.fixture(scope="module")  # its event loop would be in the way of other tests
def chromium():
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (make browser)")
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs Chromium (make browser)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_report(chromium):
    """Open a file in a window of its own; at the end nothing may have been requested, logged or asked."""
    from page_checks import PATIENCE  # not above: without Playwright it skips, which a conftest cannot

    contexts, trouble = [], []

    def open_file(path, *, width=1280, height=800, ready="[data-chart]", **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
        page.on("requestfailed", lambda request: trouble.append(f"failed: {request.url}"))
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        page.wait_for_selector(ready)
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert trouble == []
