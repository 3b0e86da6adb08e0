"""The chat for guests, in a frame of another site."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.served_console import served_console
from tests.http.served_gateway import SECRETS


@contextmanager
def site(frame: list[str]) -> Iterator[str]:
    """Serve a page of another site with a frame of the address in `frame`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'<!doctype html><title>Shop</title><iframe src="{frame[0]}"></iframe>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
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


@pytest.mark.check
def test_a_guest_chats_in_the_page_of_another_site(tmp_path: Path, browser: Browser) -> None:
    frame = [""]
    with site(frame) as shop, served_console(tmp_path / "talk.db", frames=(shop,)) as console:
        frame[0] = f"{console.url}/console/guest#{SECRETS['eve']}"
        context = browser.new_context()
        page = context.new_page()
        page.goto(shop)
        chat = page.frame_locator("iframe")
        chat.get_by_label("Message").fill("Hello <b>shop</b>")
        chat.get_by_label("Message").press("Enter")
        expect(chat.locator(".entry.agent")).to_contain_text("Hello <b>shop</b>")
        page.reload()  # the visitor is the same, and what was said is still there
        expect(chat.locator(".entry")).to_have_count(2)
        context.close()
        with console.gateway.store() as store:
            assert len(store.sessions.find().items) == 1
