"""The gateway is killed in a turn while a page is open: the page is right without a reload."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

import tertulia
from tests.console.console_process import console_process
from tests.http.served_gateway import SECRETS, eventually
from tests.servers.browser import WatchedContext
from tests.servers.ports import free_port

pytestmark = pytest.mark.check


def test_a_page_survives_the_kill_of_the_gateway_in_a_turn(
    where: str, profile: Callable[..., WatchedContext]
) -> None:
    port = free_port()
    with console_process(where, port, hangs=True) as first:
        page = profile(first.url).page()
        page.goto("/console/enter")
        page.get_by_text("I have a token").click()
        page.get_by_label("Token").fill(SECRETS["root"])
        page.get_by_role("button", name="Sign in with the token").click()
        page.goto("/console/chat")
        page.get_by_label("Message").fill("hang")
        page.keyboard.press("Enter")
        with tertulia.open(where) as store:
            session = eventually(lambda: store.sessions.find().items)[0].id
            eventually(lambda: store.transcript(session).count())
        page.goto(f"/console/sessions/{session}")
        expect(page.locator(".entry")).to_have_count(1)
        expect(page.locator("#liveness")).to_have_text("Live.")
        page.evaluate("window.isSame = true")
        first.kill()
        expect(page.locator("#liveness")).to_contain_text("Not live since")
        expect(page.locator(".entry")).to_have_count(1)  # the old content stays
    with console_process(where, port):
        expect(page.locator(".entry.agent")).to_have_count(1)
        expect(page.locator(".entry.person")).to_have_count(1)
        expect(page.locator("#liveness")).to_have_text("Live.")
        assert page.evaluate("window.isSame") is True
