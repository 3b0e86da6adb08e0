"""What holds for every page: nothing forbidden, nothing sideways, nothing that axe-core finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect

from tests.servers.browser import WatchedContext

MAX_NODES: Final = 6_000
_AXE: Final = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
_RUN: Final = """async (rules) => {
  const options = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const result = await axe.run(document, { resultTypes: ["violations"], ...options });
  return result.violations.map((each) =>
    `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}"""


def check_page(profile: WatchedContext, page: Page) -> None:
    """Assert that the open page did nothing forbidden, and fits a small phone."""
    profile.check(page)
    size = page.viewport_size
    page.set_viewport_size({"width": 360, "height": 700})
    wide = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] :
          [...document.querySelectorAll("main *")].filter((element) =>
            element.getBoundingClientRect().right > innerWidth + 1).slice(0, 5)
            .map((element) => element.outerHTML.slice(0, 160))"""
    )
    assert wide == [], page.url
    assert page.evaluate("document.querySelectorAll('*').length") <= MAX_NODES
    if size is not None:
        page.set_viewport_size(size)


def find_barriers(page: Page) -> list[str]:
    """Return what axe-core finds in the open page, in light colours and in dark ones."""
    page.evaluate(_AXE)
    expect(page.locator(".htmx-request")).to_have_count(0)  # its buttons are paler meanwhile
    set_theme(page, "light")
    problems: list[Any] = page.evaluate(_RUN, None)
    set_theme(page, "dark")
    problems += [f"dark: {each}" for each in page.evaluate(_RUN, ["color-contrast"])]
    return problems


def set_theme(page: Page, theme: str) -> None:
    """Choose the colours of the open page."""
    page.evaluate("(theme) => { document.documentElement.dataset.theme = theme }", theme)
