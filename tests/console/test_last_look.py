"""Since your last look: visits are told apart by their pauses, and a cookie can say anything."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tertulia import Source
from tertulia.console.last_look import COOKIE, LastLook
from tests.console.served_console import served_console
from tests.http.served_gateway import eventually

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def request(cookie: str) -> Request:
    headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
    return Request({"type": "http", "headers": headers, "scheme": "http", "path": "/"})


def load_at(now: datetime, cookie: str) -> tuple[datetime | None, str]:
    """Return the end of the visit before, and the new cookie."""
    look = LastLook.of(request(cookie), now)
    response = Response()
    look.keep(request(cookie), response)
    value = response.headers["set-cookie"].partition(";")[0].partition("=")[2]
    return look.before, value


def test_loads_close_together_are_one_visit() -> None:
    before, cookie = load_at(NOW, "")
    assert before is None
    before, cookie = load_at(NOW + timedelta(minutes=10), cookie)
    assert before is None
    last = NOW + timedelta(minutes=35)
    before, cookie = load_at(last, cookie)
    assert before is None
    morning = NOW + timedelta(hours=20)
    for minutes in (0, 20, 40):  # the visit goes on, and so does what it tells
        before, cookie = load_at(morning + timedelta(minutes=minutes), cookie)
        assert before == last


@pytest.mark.parametrize("cookie", ["", "1", "1.2.3", "a.b", "0.99999999999", "²." + "9" * 30])
def test_a_cookie_that_says_nothing_is_a_first_visit(cookie: str) -> None:
    assert load_at(NOW, cookie.encode("ascii", "ignore").decode())[0] is None


def test_now_tells_what_happened_since(tmp_path: Path) -> None:
    ana = Source("web", "c", account="ana", user_id="ana")
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        assert "Since you looked" not in client.get("/console/").text
        with console.gateway.store() as store:
            store.inbox.put(ana, "hello", message_id="1")
            look = store.now() - timedelta(hours=1)
            eventually(lambda: store.inbox.find(state="done").items)
        client.cookies.delete(COOKIE)
        client.cookies.set(COOKIE, f"0.{round(look.timestamp())}", path="/console/")
        page = client.get("/console/")
        assert re.search(r"Since you looked, .*: 1 answered, 0 failed", page.text)
        assert f"look%3D{look.year}" in page.text  # the stream asks for the same
        assert COOKIE in page.headers["set-cookie"]
