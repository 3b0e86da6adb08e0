"""On a phone every control can be hit with a finger: 44 px high, also where it is drawn smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.console.served_console import ServedConsole
from tests.console.test_app import addresses
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

PHONE: Final = {
    "viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True,
}  # fmt: skip
# Returns the controls that a finger misses 20 px above or below their middle. Links in a sentence
# are as high as its lines, and the skip link is for keyboards.
_MISSED: Final = """() => {
  const isInSentence = (element) => element.tagName === "A" &&
    element.parentElement.matches("p, span, dd") &&
    element.parentElement.textContent.trim() !== element.textContent.trim();
  const isHit = (element, x, y) => {
    const found = document.elementFromPoint(x, y);
    return !!found && (element.contains(found) || found.closest("label")?.control === element);
  };
  const side = document.querySelector(".side");
  const missed = [];
  const controls = document.querySelectorAll(
    "a[href]:not(.skip), button, summary, select, textarea, input:not([type=hidden])");
  for (const element of controls) {
    const isShown = element.checkVisibility({ contentVisibilityAuto: true });
    if (!isShown || element.closest("svg, dialog, thead") || isInSentence(element)) continue;
    if (!side?.contains(element)) element.scrollIntoView({ block: "center" });
    const box = element.getBoundingClientRect();
    const x = box.left + Math.min(box.width / 2, 20), y = box.top + box.height / 2;
    if (!isHit(element, x, y - 20) || !isHit(element, x, y + 20)) {
      const text = element.textContent.trim().slice(0, 40);
      missed.push(`${element.tagName} ${element.className} ${text} ${Math.round(box.height)}`);
    }
  }
  return missed;
}"""


# Some tables are loaded after their page.
_LOADED_LATER: Final = "main [hx-trigger=load]:not(#counts)"


def find_missed(page: Page) -> list[str]:
    missed: list[str] = page.evaluate(_MISSED)
    return missed


def test_every_control_is_large_enough_for_a_finger(
    demo: ServedConsole, profile: Callable[..., WatchedContext]
) -> None:
    page = demo.sign_in(profile(demo.url, **PHONE))
    missed = []
    for name, address in addresses(demo.gateway.path).items():
        page.goto(address)
        expect(page.locator(_LOADED_LATER)).to_have_count(0)
        missed += [f"{name}: {each}" for each in find_missed(page)]
    page.goto("/console/enter")
    missed += [f"enter: {each}" for each in find_missed(page)]
    assert "\n".join(missed) == ""
