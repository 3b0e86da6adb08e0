"""The chat for guests, in a frame of another site."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.served_console import ServedConsole, served_console
from tests.http.served_gateway import SECRETS
from tests.http.server_process import ROOT

# The parts of the documentation that people copy into their own pages.
SNIPPETS: Final[list[str]] = re.findall(
    r"```html\n(.*?)```", (ROOT / "docs" / "console.md").read_text("utf-8"), re.DOTALL
)
DOCUMENTED: Final = "https://bot.example.com"


@contextmanager
def site(page: list[str], host: str = "localhost") -> Iterator[str]:
    """Serve a page: the text in `page`. The console is at 127.0.0.1, which is another site."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<!doctype html><title>Shop</title>{page[0]}".encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_only_the_configured_sites_may_show_it(tmp_path: Path) -> None:
    frames = ("https://shop.example.com",)
    with (
        served_console(tmp_path / "talk.db", frames=frames) as console,
        console.client(None) as client,
    ):
        policy = client.get("/console/guest").headers["content-security-policy"]
        assert "frame-ancestors 'self' https://shop.example.com;" in policy
        assert "unsafe" not in policy
        assert (
            "frame-ancestors 'none'"
            in client.get("/console/enter").headers["content-security-policy"]
        )


def own_page(number: int, console: ServedConsole) -> str:
    """Return a part of the documentation with the address and the token of a test."""
    snippet = SNIPPETS[number].replace(DOCUMENTED, console.url)
    return snippet.replace("THE-TOKEN", SECRETS["eve"])


@pytest.mark.check
def test_a_guest_chats_in_the_page_of_another_site(where: str, browser: Browser) -> None:
    body = [""]
    with site(body) as shop, served_console(where, frames=(shop,)) as console:
        body[0] = own_page(0, console)
        context = browser.new_context()
        page = context.new_page()
        page.goto(shop)
        chat = page.frame_locator("iframe")
        chat.get_by_label("Message").fill("Hello <b>shop</b>")
        chat.get_by_label("Message").press("Enter")
        expect(chat.locator(".entry.agent")).to_contain_text("Hello <b>shop</b>")
        context.close()
        with console.gateway.store() as store:
            assert len(store.sessions.find().items) == 1


@pytest.mark.check
def test_a_visitor_comes_back_where_the_browser_keeps_it(where: str, browser: Browser) -> None:
    body = [""]
    with (
        site(body, "127.0.0.1") as shop,
        served_console(where, frames=(shop,)) as console,
    ):
        body[0] = own_page(0, console)
        context = browser.new_context()
        page = context.new_page()
        page.goto(shop)
        chat = page.frame_locator("iframe")
        chat.get_by_label("Message").fill("Hello")
        chat.get_by_label("Message").press("Enter")
        expect(chat.locator(".entry")).to_have_count(2)
        page.reload()  # the visitor is the same, and what was said is still there
        expect(chat.locator(".entry")).to_have_count(2)
        context.close()
        with console.gateway.store() as store:
            assert len(store.sessions.find().items) == 1


@pytest.mark.check
def test_message_is_stored_once_if_its_response_was_lost(where: str, browser: Browser) -> None:
    body = [""]
    requests: list[str] = []

    def lose_first(route: Route) -> None:
        requests.append(route.request.post_data or "")
        if len(requests) == 1:
            route.fetch()  # the server has stored it
            route.abort()
        else:
            route.continue_()

    with site(body) as shop, served_console(where, frames=(shop,)) as console:
        body[0] = own_page(0, console)
        context = browser.new_context()
        page = context.new_page()
        page.route("**/messages", lose_first)
        page.goto(shop)
        chat = page.frame_locator("iframe")
        field = chat.get_by_label("Message")
        field.fill("Hello")
        field.press("Enter")
        expect(chat.locator(".entry.person")).to_have_count(0)
        expect(field).to_have_value("Hello")
        field.press("Enter")
        expect(chat.locator(".entry.person")).to_have_text("Hello")
        expect(field).to_have_value("")
        field.fill("Hello")  # the same text again is another message
        field.press("Enter")
        expect(chat.locator(".entry.agent")).to_have_count(2)
        context.close()
        with console.gateway.store() as store:
            (session,) = store.sessions.find().items
            transcript = store.transcript(session.id).load()
    assert [message["content"] for message in transcript if message["role"] == "user"] == [
        "Hello"
    ] * 2
    first, second, third = (json.loads(request)["message_id"] for request in requests)
    assert first == second != third


@pytest.mark.check
def test_another_site_cannot_show_the_chat(where: str, browser: Browser) -> None:
    body = [""]
    frames = ("https://shop.example.com",)
    with site(body) as shop, served_console(where, frames=frames) as console:
        body[0] = own_page(0, console) + own_page(1, console)
        context = browser.new_context()
        page = context.new_page()
        problems: list[str] = []
        page.on("console", lambda line: problems.append(line.text))
        page.goto(shop)
        expect(page.frame_locator("iframe").get_by_label("Message")).to_have_count(0)
        expect(page.locator("#chat")).to_have_text("")
        assert any("frame-ancestors" in problem for problem in problems)
        assert any("CORS" in problem for problem in problems)
        context.close()


@pytest.mark.check
def test_a_page_of_another_site_reads_events_with_event_source(
    where: str, browser: Browser
) -> None:
    body = [""]
    with site(body) as shop, served_console(where, frames=(shop,)) as console:
        body[0] = own_page(1, console)
        context = browser.new_context()
        page = context.new_page()
        page.goto(shop)
        for number in range(2):
            page.get_by_role("textbox").fill(f"Hello <b>{number}</b>")
            page.get_by_role("textbox").press("Enter")
            expect(page.locator("#chat p").nth(number)).to_contain_text(f"Hello <b>{number}</b>")
        context.close()
