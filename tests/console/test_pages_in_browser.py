"""Every page in a real browser: no violation, no barrier, nothing sideways; keys; no script."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console.page_checks import check_page, find_barriers
from tests.console.served_console import ServedConsole
from tests.console.test_app import addresses
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

Profile = Callable[..., WatchedContext]


def test_every_page_is_sound(demo: ServedConsole, profile: Profile) -> None:
    owner = profile(demo.url, viewport={"width": 1280, "height": 800})
    page = demo.sign_in(owner)
    problems = []
    for name, address in addresses(demo.gateway.path).items():
        response = page.goto(address)
        assert response is not None
        assert response.status == 200, name
        expect(page.locator("h1")).to_have_count(1)
        check_page(owner, page)
        problems += [f"{name}: {each}" for each in find_barriers(page)]
    assert problems == []


def test_the_page_to_sign_in_is_sound(demo: ServedConsole, profile: Profile) -> None:
    stranger = profile(demo.url)
    page = stranger.page()
    page.goto("/console/sessions")
    expect(page).to_have_url(f"{demo.url}/console/enter?to=%2Fconsole%2Fsessions")
    check_page(stranger, page)
    assert find_barriers(page) == []


def test_keys_lead_everywhere_and_are_silent_in_fields(
    demo: ServedConsole, profile: Profile
) -> None:
    page = demo.sign_in(profile(demo.url))
    page.goto("/console/")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/console/sessions")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".rows > li").nth(1).locator("a.open")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/sessions/*")
    page.go_back()
    page.get_by_label("Title").focus()
    page.keyboard.type("gj/?")
    expect(page.get_by_label("Title")).to_have_value("gj/?")
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_pages_can_be_read_without_a_script(demo: ServedConsole, profile: Profile) -> None:
    quiet = profile(demo.url, java_script_enabled=False)
    page = demo.sign_in(quiet)
    page.goto("/console/sessions")
    page.get_by_text("Train to Madrid").click()
    expect(page.get_by_text("window seats", exact=False).first).to_be_visible()
    page.get_by_text("Calls look_up").first.click()
    expect(page.locator(".raw").first).to_be_visible()


def test_the_browser_refuses_what_the_policy_forbids(demo: ServedConsole, profile: Profile) -> None:
    """As if a text had become markup after all: nothing of it runs, and nothing leaves."""
    owner = profile(demo.url)
    page = demo.sign_in(owner)
    page.goto("/console/")
    page.evaluate(_ATTACK)
    refused = " ".join(page.evaluate("window.__refused"))
    for directive in ("require-trusted-types-for", "script-src", "connect-src", "img-src"):
        assert directive in refused, refused
    assert page.evaluate("window.wasRun") is None
    owner.problems.clear()  # the browser tells what it has refused


_ATTACK = """async () => {
  try { document.body.insertAdjacentHTML("beforeend", "<b>markup</b>"); } catch { }
  const image = new Image();
  document.body.append(image);
  const policy = { createHTML: (text) => text };
  try { trustedTypes.createPolicy("other", policy); } catch { }
  const link = document.createElement("a");
  link.href = "javascript:window.wasRun = true";
  document.body.append(link);
  link.click();
  image.src = "http://127.0.0.1:1/x.png";
  try { await fetch("http://127.0.0.1:1/"); } catch { }
  await new Promise((resolve) => setTimeout(resolve, 0));
}"""
