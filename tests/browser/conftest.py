"""A real browser for the pages: Chromium, driven by Playwright. Without one these tests are skipped and say so."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_factory import REPORT, Open, Visit

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_LOCAL = ("file:", "data:", "blob:", "about:")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser tests: pip install -e '.[browser]'")
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is installed")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def report() -> Path:
    """The quick report of this checkout."""
    if not (REPORT / "index.html").exists():
        pytest.skip("no report to look at: make report")
    return REPORT


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """``visit(path, width=1440, scheme="light", fragment="", scripts=True)`` opens a page until the test ends."""
    contexts = []

    def open_page(
        path: Path, width: int = 1440, scheme: str = "light", fragment: str = "", scripts: bool = True
    ) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
            has_touch=width < 500,
        )
        contexts.append(context)
        found = Visit(context.new_page())

        def gate(route: Any) -> None:
            if route.request.url.startswith(_LOCAL):
                route.continue_()
            else:
                found.left.append(route.request.url)
                route.abort()

        found.page.route("**/*", gate)
        found.page.on("console", lambda message: message.type == "error" and found.errors.append(message.text))
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("dialog", lambda dialog: (found.dialogs.append(dialog.message), dialog.dismiss()))
        found.page.goto(path.resolve().as_uri() + fragment)
        return found

    yield open_page
    for context in contexts:
        context.close()
