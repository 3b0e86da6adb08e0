"""The main flows by keyboard alone: nothing is clicked, and nothing is focused by a script."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tertulia import Source
from tests.console.served_console import served_console
from tests.servers.browser import WatchedContext

pytestmark = pytest.mark.check

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
MARTA = Source("telegram", "5", user_id="5", user_name="Marta")
MOST_STEPS = 120
# What a screen reader would call the element that has the focus.
_FOCUSED = """() => {
  const element = document.activeElement;
  const label = element.labels?.[0]?.textContent;
  return (element.ariaLabel || label || element.textContent || "").trim().slice(0, 40);
}"""


def reach(page: Page, name: str) -> None:
    """Press Tab until the element of that name has the focus, which must be visible."""
    seen = []
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(_FOCUSED))
        if seen[-1].startswith(name):
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{name!r} was not reached on {page.url}: {seen}")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_main_flows_by_keyboard_alone(where: str, profile: Callable[..., WatchedContext]) -> None:
    with served_console(where) as console:
        with console.gateway.store() as store:
            for number in range(2):
                with store.turn(ANA, f"Question {number}", message_id=f"{number}") as turn:
                    turn.add_assistant(f"Answer {number}")
            session = turn.session.id
            store.outbox.put("Hello", "origin", origin=ANA, session_id=session)
            for delivery in store.outbox.claim(platforms=["telegram"]):
                store.outbox.failed(delivery, "the connection was lost", outcome="unknown")
            pairing = store.people.request_pairing(MARTA)
            code = store.browsers.request_code("root")
            store.settle()
        browser = profile(console.url)
        page = browser.page()
        notice = page.locator("#notice")

        page.goto("/console/enter")  # sign in
        expect(page.locator("#code")).to_be_focused()  # by the page itself, once shown
        page.keyboard.type(code)
        press(page, "Enter")
        page.wait_for_url("**/console/")

        reach(page, "It arrived")  # settle a delivery whose outcome is unknown
        press(page, "Enter")
        expect(notice).to_contain_text("Noted: it arrived.")

        press(page, "g", "p")  # let a stranger in
        page.wait_for_url("**/console/people")
        reach(page, "Their code")
        page.keyboard.type(str(pairing))
        press(page, "Enter")
        expect(notice).to_contain_text("They may write now.")

        press(page, "g", "s")  # open a session, take an exchange back, and bring it back
        page.wait_for_url("**/console/sessions")
        press(page, "j", "Enter")
        page.wait_for_url(f"**/console/sessions/{session}")
        reach(page, "Undo last exchange")
        press(page, "Enter")
        expect(notice).to_contain_text("taken back")
        expect(page.locator(".entry")).to_have_count(2)
        press(page, "u")
        expect(page.locator(".entry")).to_have_count(4)

        press(page, "r")  # restore a revision
        page.wait_for_url("**/revisions")
        reach(page, "Revision 2")
        press(page, "Enter")
        page.wait_for_url("**/revisions?n=2")
        reach(page, "Restore")
        press(page, "Enter")
        expect(notice).to_contain_text("restored")
        for key, address in (("w", "why"), ("p", "prompt"), ("t", session)):
            press(page, key)
            page.wait_for_url(f"**/{address}")
        expect(page.locator(".entry")).to_have_count(2)

        press(page, "/")  # search
        page.wait_for_url("**/console/search")
        expect(page.locator("main [type=search]")).to_be_focused()
        page.keyboard.type("Question")
        press(page, "Enter")
        page.wait_for_url("**/console/search?q=Question*")
        page.locator("h1").wait_for()
        reach(page, "DM with Ana")
        press(page, "Enter")
        page.wait_for_url(re.compile(f"/console/sessions/{session}.*#m"))

        reach(page, "Chat")  # chat
        press(page, "Enter")
        page.wait_for_url("**/console/chat")
        expect(page.locator("#liveness")).to_have_text("Live.")
        reach(page, "Message")
        page.keyboard.type("Hello parrot")
        press(page, "Enter")
        expect(page.locator("#live_chat .entry.agent")).to_contain_text("Hello parrot")

        reach(page, "Sign out")
        press(page, "Enter")
        page.wait_for_url("**/console/enter")
        with console.gateway.store() as store:
            assert store.outbox.find(state="unknown").items == ()
            assert store.people.role_of(MARTA) == "member"
