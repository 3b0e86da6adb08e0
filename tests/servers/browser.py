"""A real browser for tests: an installed Chromium without a screen, driven by playwright.

`TEST_BROWSER` names the program; otherwise one that is installed is used.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright

MISSING: Final = (
    "These tests need a Chromium browser, which is not installed. On Debian and Ubuntu:"
    " apt-get install -y chromium-headless-shell, or chromium. Elsewhere set TEST_BROWSER to the"
    " program of one."
)
# The first is the same engine without windows: it needs half of the processor time of the second.
_NAMES: Final = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome",
)  # fmt: skip
_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
# Counts what the content security policy refused, also before the page's own script runs.
_WATCH: Final = """
  window.__refused = [];
  addEventListener("securitypolicyviolation", (event) => window.__refused.push(
    `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def browser_program() -> str | None:
    """Return the path of a browser, or None if there is none."""
    named = os.environ.get("TEST_BROWSER")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a browser until the end of the block."""
    program = browser_program()
    assert program is not None, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class WatchedContext:
    """A profile of the browser that notes everything a page must never do."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.problems: list[str] = []
        self.context: BrowserContext = browser.new_context(base_url=url, **options)
        self.context.set_default_timeout(60_000)
        self.context.add_init_script(_WATCH)
        self.context.on("request", lambda request: self._check_address(request.url))

    def page(self) -> Page:
        """Open a page."""
        page = self.context.new_page()
        page.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}", dialog.dismiss))
        page.on("pageerror", lambda problem: self._note(f"error: {problem}"))
        page.on("console", lambda line: self._check_line(line.type, line.text))
        return page

    def check(self, page: Page) -> None:
        """Assert that nothing forbidden has happened in a page."""
        assert page.evaluate("window.__refused") == []
        assert self.problems == []

    def close(self) -> None:
        """Forget the profile."""
        self.context.close()

    def _note(self, text: str, then: Any = None) -> None:
        self.problems.append(text)
        if then is not None:
            then()

    def _check_address(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("data", "about", "blob") and not address.startswith(self.url):
            self.problems.append(f"request elsewhere: {address}")

    def _check_line(self, kind: str, text: str) -> None:
        # A response with an error status is a line of its own; a test that expects one checks it.
        # A lost connection is told in the page.
        is_expected = text.startswith(
            ("Failed to load resource", "htmx: htmx:sse:error", "htmx: htmx:error: Failed to fetch")
        )
        if kind in ("error", "warning") and not is_expected:
            self.problems.append(f"console: {text}")


def hold_first(held: list[Route]) -> Callable[[Route], None]:
    """Return a handler of requests that keeps the first one in `held`; the others are continued."""

    def handle(route: Route) -> None:
        if held:
            route.continue_()
        held.append(route)

    return handle
