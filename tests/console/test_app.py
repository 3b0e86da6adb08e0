"""Pages without a browser: signing in, rights, what every response carries, actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import pytest

import tertulia
from tertulia.console import app
from tertulia.console.app import PAGES
from tertulia.console.asset_files import compact_script, compact_style
from tertulia.console.sections import SECTIONS
from tertulia.records.people import ROLES
from tests.console.served_console import ServedConsole, served_console
from tests.http.served_gateway import SECRETS
from tests.servers.browser import MISSING, browser_program


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    path = tmp_path_factory.mktemp("console") / "talk.db"
    with served_console(path, is_demo=True) as served:
        yield served


def addresses(path: Path | str) -> dict[str, str]:
    """Return the address of every page, by its name, with ids that exist."""
    with tertulia.open(path) as store:
        session = next(each for each in store.sessions.find().items if each.title)
        item = store.inbox.find().items[0]
        process = store.processes.find()[0]
    values = {"sessions": session.id, "messages": str(item.id), "processes": process.id}
    return {
        page.name: "/console" + page.path.replace("{id}", values.get(page.path.split("/")[1], "1"))
        for page in PAGES
    }


def test_the_navigation_leads_to_pages() -> None:
    assert {section.path for section in SECTIONS} <= {page.path for page in PAGES}


def test_a_browser_is_there_for_the_tests_of_make_check() -> None:
    if browser_program() is None:
        pytest.skip(MISSING)


def test_everybody_sees_their_pages_and_what_is_not_theirs_is_not_found(
    console: ServedConsole,
) -> None:
    pages = addresses(console.gateway.path)
    for name, role in (("root", "owner"), ("ana", "member"), ("eve", "guest")):
        with console.client(name) as client:
            for page in PAGES:
                response = client.get(pages[page.name])
                is_allowed = ROLES.index(role) <= ROLES.index(page.role)
                if role == "guest" and page.path == "/":
                    assert response.headers["location"] == "/console/chat"
                    continue
                # A session of somebody else is not found by its id, either.
                is_own = role == "owner" or "{id}" not in page.path
                expected = 200 if is_allowed and is_own else 404
                assert response.status_code == expected, (name, page.path, response.text[:500])
                assert "Train to Madrid" not in response.text or role == "owner"


def test_nobody_is_led_to_the_page_to_sign_in_and_back(console: ServedConsole) -> None:
    with console.client(None) as client:
        for page, address in addresses(console.gateway.path).items():
            response = client.get(address)
            assert response.status_code == 303, page
            assert response.headers["location"] == f"/console/enter?to={quote(address, safe='')}"
        live = client.get("/console/live", params={"at": "/console/"})
        assert live.status_code == 401
        form = {"token": SECRETS["root"], "to": "/console/sessions"}
        assert client.post("/console/enter", data=form).headers["location"] == "/console/sessions"
        for target in (
            "https://evil.example/",
            "//evil.example",
            "/console/\\evil",
            "/openapi.json",
        ):
            form["to"] = target
            assert client.post("/console/enter", data=form).headers["location"] == "/console/"


def test_settings_in_force_are_shown_to_the_owner_alone(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db") as console:
        api = console.gateway.app.state.api
        api.configuration = {"agent": {"kind": "parrot", "api_key": "(hidden)", "url": None}}
        with console.client() as root, console.client("ana") as ana:
            page = root.get("/console/browsers")
            assert page.status_code == 200
            for text in ("agent.kind", "parrot", "(hidden)", "not set", "tertulia config show"):
                assert text in page.text
            assert "agent.kind" not in ana.get("/console/browsers").text


def test_requests_of_other_sites_are_refused(console: ServedConsole) -> None:
    act = "/console/do/end"
    with console.client() as client:
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert client.post(act, headers=headers, data={"id": "1"}).status_code == 403
        assert client.get("/console/", headers={"Host": "evil.example"}).status_code == 403
        del client.headers["Origin"]
        assert client.post(act, data={"id": "1"}).status_code == 403


def test_no_page_may_be_framed_kept_or_run_foreign_script(console: ServedConsole) -> None:
    with console.client() as client:
        for address in ("/console/", "/console/enter", "/console/nowhere"):
            headers = client.get(address).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["referrer-policy"] == "no-referrer"


def test_a_first_page_with_fifty_rows_is_small(tmp_path: Path) -> None:
    raw, packed = 0, 0
    with (
        served_console(tmp_path / "talk.db", prepare=fill_list) as console,
        console.client() as client,
    ):
        page = client.get("/console/sessions")
        assert page.text.count('<li id="row-') == 50
        assert "There are three trains" in page.text  # the last words
        assert len(page.content) <= 30_000  # a later page: script and style are here already
        files = re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page.text)
        for address in ("/console/sessions", *files):
            with client.stream("GET", address) as response:
                assert response.headers["content-encoding"] == "gzip"
                packed += sum(map(len, response.iter_raw()))
            raw += len(client.get(address).content)
    assert len(files) == 2
    assert raw <= 100_000
    assert packed <= 35_000


def fill_list(path: Path | str) -> None:
    """Fill a store with more sessions than a list shows, with titles and words of usual length."""
    with tertulia.open(path) as store:
        for number in range(51):
            chat = f"{100_000_000 + number}"
            source = tertulia.Source("telegram", chat, user_id=chat, user_name=f"Person {number}")
            with store.turn(source, "Which trains go to Madrid tomorrow?", message_id="1") as turn:
                usage = tertulia.Usage(input=812, output=64, model="gpt-5-mini", cost_usd=0.01)
                turn.add_assistant(
                    "There are three trains: at 07:10, 08:30 and 10:05.", usage=usage
                )
            store.sessions.rename(turn.session.id, f"Trains to Madrid, plan {number}")


def test_style_and_script_mean_the_same_when_they_are_compact() -> None:
    style = '/* a */ .b  > c:hover ,\n d { margin: calc(1px + 2px); }\n.e::after { content: ": "; }'
    assert compact_style(style) == '.b>c:hover,d{margin:calc(1px + 2px)}.e::after{content:": "}'
    script = '/* a\n b */\n  // c\n  let d = "//";  // stays\n\n  e();\n'
    assert compact_script(script) == 'let d = "//";  // stays\ne();'


def test_script_and_style_may_be_kept_for_ever(console: ServedConsole) -> None:
    with console.client() as client:
        page = client.get("/console/").text
        for address in re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page):
            response = client.get(address)
            assert response.status_code == 200
            assert "immutable" in response.headers["cache-control"]
        assert client.get("/console/assets/console-0.js").status_code == 404


def test_a_code_signs_one_browser_in_and_five_wrong_ones_lock_out(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db") as console:
        with console.gateway.store() as store:
            code = store.browsers.request_code("root")
        with console.client(None) as client:
            first = client.post("/console/enter", data={"code": code})
            assert first.headers["location"] == "/console/"
            assert client.get("/console/").status_code == 200
        with console.client(None) as client:
            for _ in range(5):
                reply = client.post("/console/enter", data={"code": code})
                assert reply.status_code == 404
                assert "new one" in reply.text
            assert client.post("/console/enter", data={"code": code}).status_code == 403


def test_a_browser_that_is_signed_out_sees_nothing_more(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        assert client.get("/console/").status_code == 200
        assert client.post("/console/leave").headers["location"] == "/console/enter"
        assert client.get("/console/").status_code == 303
        with console.client() as other:
            with console.gateway.store() as store:
                for browser in store.browsers.find().items:
                    store.browsers.sign_out(browser.id)
            assert other.get("/console/").status_code == 303


def test_an_open_chat_ends_when_its_browser_is_signed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_CHECK_SECONDS", 0.0)
    with (
        served_console(tmp_path / "talk.db", ping_seconds=0.05) as console,
        console.client("ana") as client,
        client.stream("GET", "/console/chat/events") as stream,
    ):
        pings = (line for line in stream.iter_lines() if line.startswith(":"))
        assert [next(pings) for _ in range(3)]
        with console.gateway.store() as store:
            store.browsers.sign_out_all()
        assert len(list(islice(pings, 100))) < 100


def test_requests_of_browsers_are_limited(tmp_path: Path) -> None:
    """Those of a signed-in browser were not counted: a guest could flood the gateway through it."""
    addresses = ("/console/chat", "/console/live?at=/console/chat", "/console/chat/events")
    with (
        served_console(tmp_path / "talk.db", requests_per_minute=3) as console,
        console.client("eve") as client,
    ):
        assert [client.get("/console/chat").status_code for _ in range(3)] == [200] * 3
        for address in addresses:
            with client.stream("GET", address) as refused:
                assert refused.status_code == 429
        assert client.post("/console/do/say", data={"text": "hola"}).status_code == 429
        assert int(client.get("/console/chat").headers["retry-after"]) >= 1
        with console.client("ana") as other:
            assert other.get("/console/chat").status_code == 200
        with console.gateway.client("eve") as program:
            assert program.get("/browsers").status_code == 200


@pytest.mark.parametrize("number", ["9" * 5000, "²", "x"])
def test_a_number_that_is_none_shows_the_page(console: ServedConsole, number: str) -> None:
    address = addresses(console.gateway.path)["transcript"]
    with console.client() as client:
        assert client.get(address, params={"full": number}).status_code == 200


def test_buttons_work_without_a_script(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db", is_demo=True) as console, console.client() as client:
        with console.gateway.store() as store:
            session = store.sessions.open(tertulia.Source("web", "new", user_id="ana"))
        form = {"id": session.id, "back": f"/console/sessions/{session.id}"}
        reply = client.post("/console/do/end", data=form)
        assert reply.headers["location"] == f"/console/sessions/{session.id}?note=end"
        assert "The session has ended." in client.get(reply.headers["location"]).text
        lost = client.post("/console/do/end", data={"id": "nothing", "back": "/console/sessions"})
        assert lost.status_code == 404
        assert "There is no session" in lost.text
        assert client.post("/console/do/nothing", data={}).status_code == 404


def test_a_stream_sends_what_changed_and_ends_when_the_browser_is_signed_out(
    tmp_path: Path,
) -> None:
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        with console.gateway.store() as store:
            for chat in ("one", "two", "three"):
                store.sessions.open(tertulia.Source("web", chat, user_id="ana"))
        page = client.get("/console/sessions").text
        match = re.search(r'hx-sse:connect="([^"]+)"', page)
        assert match is not None
        received: list[str] = []
        with client.stream("GET", match[1].replace("&amp;", "&")) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: still"
            with console.gateway.store() as store:
                session = store.sessions.find().items[0]
                store.sessions.rename(session.id, "A <b>new</b> title")
            for line in lines:
                received.append(line)
                if "title" in line:
                    break
            text = "\n".join(received)
            assert f'hx-target="#row-{session.id}"' in text
            assert "A &lt;b&gt;new&lt;/b&gt; title" in text
            assert text.count('hx-target="#row-') == 1  # only what changed
            with console.gateway.store() as store:
                store.browsers.sign_out_all()
            assert any(line == "data: unauthorized" for line in lines)


def test_a_stream_is_told_what_the_page_has(tmp_path: Path) -> None:
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        with console.gateway.store() as store:
            session = store.sessions.open(tertulia.Source("web", "new", user_id="ana"))

        def stream_address() -> str:
            match = re.search(r'hx-sse:connect="([^"]+)"', client.get("/console/sessions").text)
            assert match is not None
            return match[1]

        before = stream_address()
        assert stream_address() == before
        with console.gateway.store() as store:
            store.sessions.rename(session.id, "Other")
        assert stream_address() != before


def test_guest_with_the_visitor_cookie_of_another_token_gets_a_new_one(
    console: ServedConsole,
) -> None:
    with console.client("eve") as client:
        client.cookies.set("tertulia_visitor", "0" * 48, domain="127.0.0.1", path="/console")
        client.get("/console/chat")
        message = {"chat": "console", "text": "hello", "back": "/console/chat"}
        assert client.post("/console/do/say", data=message).status_code == 303
        visitor = client.cookies["tertulia_visitor"]
        client.get("/console/chat")
        assert client.cookies["tertulia_visitor"] == visitor  # which is kept


def test_looking_at_the_sign_in_page_with_head_is_no_attempt_to_sign_in(
    console: ServedConsole,
) -> None:
    with console.gateway.store() as store:
        code = store.browsers.request_code("root")
    with console.client(None) as client:
        for _ in range(20):
            assert client.head("/console/enter").status_code == 200
        assert client.post("/console/enter", data={"code": code}).status_code == 303
