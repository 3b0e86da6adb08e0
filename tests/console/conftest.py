"""A served console with the store of the demonstration, and a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.console.served_console import ServedConsole, served_console
from tests.servers.browser import MISSING, WatchedContext, browser_program, running_browser
from tests.servers.empty_stores import NewPlace

expect.set_options(timeout=60_000)  # the machine may be busy


# For a module only: while it runs, an event loop runs in this thread, and tests of other modules
# that a worker may run next could not start theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser; the tests fail without one, and say how to get it."""
    if browser_program() is None:
        pytest.fail(MISSING)
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def demo(new_place: NewPlace) -> Iterator[ServedConsole]:
    """The console of the demonstration, for tests that only read."""
    with new_place() as place, served_console(place, is_demo=True) as console:
        yield console


@pytest.fixture
def profile(browser: Browser) -> Iterator[Callable[..., WatchedContext]]:
    """Make profiles of the browser; what their pages must not do fails the test."""
    profiles: list[WatchedContext] = []

    def make(url: str, **options: Any) -> WatchedContext:
        profiles.append(WatchedContext(browser, url, **options))
        return profiles[-1]

    yield make
    for each in profiles:
        each.close()
    assert [problem for each in profiles for problem in each.problems] == []
