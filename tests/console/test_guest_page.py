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
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.served_console import ServedConsole, served_console
from tests.http.served_gateway import SECRETS
from tests.http.server_process import ROOT
from tests.servers.browser import hold_first

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


def guest_address(console: ServedConsole) -> str:
    return f"{console.url}/console/guest#{SECRETS['eve']}"


@pytest.mark.check
def test_message_written_before_the_page_is_connected_is_sent(where: str, browser: Browser) -> None:
    with served_console(where) as console:
        page = browser.new_context().new_page()
        page.route("**/web/visitors", lambda route: route.fulfill(status=503, json={}))
        page.goto(guest_address(console))
        expect(page.locator("#state")).to_have_text("Not connected; trying again.")
        field = page.get_by_label("Message")
        field.fill("Hello")
        field.press("Enter")
        expect(page.locator(".entry")).to_have_count(0)
        expect(field).to_have_value("Hello")
        page.unroute("**/web/visitors")
        expect(page.locator("#state")).to_have_text("")  # connected, without a reload
        field.press("Enter")
        expect(page.locator(".entry.agent")).to_have_count(1)
        page.context.close()


@pytest.mark.check
def test_what_is_typed_while_a_message_is_on_its_way_is_the_next_one(
    where: str, browser: Browser
) -> None:
    held: list[Route] = []
    with served_console(where) as console:
        page = browser.new_context().new_page()
        page.route("**/web/visitors", hold_first(held))  # it is not even connected
        page.goto(guest_address(console))
        field = page.get_by_label("Message")
        for text in ("one", "two"):
            field.press_sequentially(text)
            field.press("Enter")
        field.press_sequentially("three")
        expect(page.locator(".entry.person")).to_have_text(["one", "two"])
        held[0].continue_()
        expect(page.locator(".entry.agent")).to_have_count(2)
        expect(field).to_have_value("three")
        page.context.close()
        assert user_messages(console) == ["one", "two"]


def user_messages(console: ServedConsole) -> list[str]:
    with console.gateway.store() as store:
        (session,) = store.sessions.find().items
        messages = store.transcript(session.id).load()
    return [each["content"] for each in messages if each["role"] == "user"]


@pytest.mark.check
def test_two_tabs_are_one_visitor_and_show_the_same(where: str, browser: Browser) -> None:
    with served_console(where) as console:
        context = browser.new_context()
        tabs = [context.new_page() for _ in range(2)]
        for tab in tabs:
            tab.goto(guest_address(console))
        for number, tab in enumerate(tabs):
            say(tab, f"message {number}")
            for each in tabs:
                expect(each.locator(".entry.person")).to_have_count(number + 1)
                expect(each.locator(".entry.agent")).to_have_count(number + 1)
        for tab in tabs:
            tab.reload()
            expect(tab.locator(".entry")).to_have_count(4)
        context.close()
        assert user_messages(console) == ["message 0", "message 1"]


# What is stored, with a message more, as another tab of this visitor writes it.
WITH_ANOTHER = """(text) => {
    const stored = JSON.parse(localStorage.getItem("tertulia"));
    stored.lines.push(["person", text, text]);
    return JSON.stringify(stored);
}"""


@pytest.mark.check
def test_message_of_another_tab_is_shown_though_this_one_has_written_over_it(
    where: str, browser: Browser
) -> None:
    with served_console(where) as console:
        page = browser.new_context().new_page()
        page.goto(guest_address(console))
        say(page, "Hello")
        expect(page.locator(".entry.agent")).to_have_count(1)
        value = page.evaluate(WITH_ANOTHER, "from another tab")
        page.evaluate(
            "(newValue) => dispatchEvent(new StorageEvent('storage', {key: 'tertulia', newValue}))",
            value,
        )
        expect(page.locator(".entry.person")).to_have_text(["Hello", "from another tab"])
        page.reload()
        expect(page.locator(".entry.person")).to_have_text(["Hello", "from another tab"])
        page.context.close()


@pytest.mark.check
def test_a_tab_does_not_write_over_what_another_one_has_written(
    where: str, browser: Browser
) -> None:
    with served_console(where) as console:
        page = browser.new_context().new_page()
        page.goto(guest_address(console))
        say(page, "Hello")
        expect(page.locator(".entry.agent")).to_have_count(1)
        # A write of the page itself makes no event in it: this one has not arrived yet.
        write = f"(text) => localStorage.setItem('tertulia', ({WITH_ANOTHER})(text))"
        page.evaluate(write, "from another tab")
        say(page, "Bye")
        expect(page.locator(".entry.agent")).to_have_count(2)
        page.reload()
        expect(page.locator(".entry.person")).to_have_text(["Hello", "from another tab", "Bye"])
        page.context.close()


@pytest.mark.check
def test_tabs_that_were_opened_at_once_become_one_visitor(where: str, browser: Browser) -> None:
    with served_console(where) as console, console.client(None) as client:
        context = browser.new_context()
        page, other = context.new_page(), context.new_page()
        with page.expect_response("**/events"):
            page.goto(guest_address(console))
        token = {"Authorization": f"Bearer {SECRETS['eve']}"}
        visitor = client.post("/web/visitors", headers=token).json()["visitor"]
        other.goto(f"{console.url}/console/enter")
        with page.expect_request("**/events") as reading:
            other.evaluate(
                "(value) => localStorage.setItem('tertulia', value)",
                json.dumps({"visitor": visitor}),
            )
        assert reading.value.headers["x-visitor-id"] == visitor
        say(page, "Hello")
        expect(page.locator(".entry.agent")).to_have_count(1)
        other.goto(guest_address(console))
        expect(other.locator(".entry")).to_have_count(2)
        context.close()


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


@pytest.mark.check
def test_visitor_id_of_another_installation_is_replaced(where: str, browser: Browser) -> None:
    with served_console(where) as console:
        page = page_of_another_installation(browser)
        page.goto(guest_address(console))
        page.get_by_label("Message").fill("Hello")
        page.get_by_label("Message").press("Enter")
        expect(page.locator(".entry.person")).to_have_text("Hello")
        expect(page.locator(".entry.agent")).to_have_count(2)
        page.context.close()


@pytest.mark.check
def test_late_refusal_of_a_replaced_visitor_id_keeps_the_new_one(
    where: str, browser: Browser
) -> None:
    held: list[Route] = []
    with served_console(where) as console:
        page = page_of_another_installation(browser)
        page.route("**/events", hold_first(held))
        with page.expect_request("**/events"):
            page.goto(guest_address(console))
        with page.expect_response(lambda reply: reply.url.endswith("/messages") and reply.ok):
            say(page, "Hello")
        held[0].continue_()
        expect(page.locator(".entry.agent")).to_have_count(2)
        page.context.close()


def page_of_another_installation(browser: Browser) -> Page:
    """Return a page that has kept a visitor id which this server did not make."""
    page = browser.new_context().new_page()
    memory = {"visitor": "0" * 48, "last": "reply:1", "lines": [["agent", "Earlier"]]}
    text = json.dumps(json.dumps(memory))
    page.add_init_script(
        f"localStorage.getItem('tertulia') ?? localStorage.setItem('tertulia', {text})"
    )
    return page


@pytest.mark.check
def test_another_site_cannot_show_the_chat(where: str, browser: Browser) -> None:
    body = [""]
    frames = ("https://shop.example.com",)
    with site(body) as shop, served_console(where, frames=frames) as console:
        body[0] = own_page(0, console) + own_page(1, console)
        context = browser.new_context()
        page = context.new_page()
        with (
            page.expect_console_message(lambda line: "frame-ancestors" in line.text),
            page.expect_console_message(lambda line: "CORS" in line.text),
        ):
            page.goto(shop)
        expect(page.frame_locator("iframe").get_by_label("Message")).to_have_count(0)
        expect(page.locator("#chat")).to_have_text("")
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


@pytest.mark.check
def test_page_of_another_site_listens_again_when_it_gets_no_ticket(
    where: str, browser: Browser
) -> None:
    body = [""]
    tickets: list[str] = []

    def lose_second(route: Route) -> None:
        tickets.append(route.request.url)
        if len(tickets) == 2:
            route.abort()
        else:
            route.continue_()

    with site(body) as shop, served_console(where, frames=(shop,), stream_seconds=1) as console:
        body[0] = own_page(1, console)
        context = browser.new_context()
        page = context.new_page()
        page.route("**/tickets", lose_second)
        page.goto(shop)
        with page.expect_response(lambda _: len(tickets) > 2):  # its stream ends, and one is lost
            pass
        page.route("**/messages", lambda route: route.abort())
        field = page.get_by_role("textbox")
        field.fill("Hello")
        field.press("Enter")
        expect(field).to_have_value("Hello")
        page.unroute("**/messages")
        field.press("Enter")
        expect(page.locator("#chat p")).to_contain_text("Hello")
        context.close()
