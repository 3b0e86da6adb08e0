"""Every address of the console for member, guest, nobody, other ports, other hosts, old cookies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

import tertulia
from tertulia.console.app import PAGES, Console
from tertulia.console.form_actions import ACTIONS
from tertulia.http.operations import BY_NAME
from tertulia.records.people import ROLES
from tertulia.testing import FakeClock
from tests.console.served_console import ServedConsole, served_console
from tests.console.test_app import addresses
from tests.servers.empty_stores import NewPlace

STREAMS = ("/console/live?at=/console/", "/console/chat/events")
POSTS = ("/console/leave", *(f"/console/do/{name}" for name in ACTIONS))
COUNTS = "/console/counts"
# Whoever asks may have these: they show nothing of the store.
PUBLIC = {"/enter", "/guest", "/assets/{name}"}
# Every other address of the console; each of them is walked below.
WALKED = {
    *(page.path for page in PAGES), "/live", "/chat/events", "/counts", "/leave", "/do/{action}",
    "/files/{id}/{seq}/{number}", "/export/{id}", "/{address:path}",
}  # fmt: skip


def test_no_address_is_left_out(console: ServedConsole) -> None:
    routes = Console(console.gateway.app.state.api).routes()
    assert {route.path for route in routes} == PUBLIC | WALKED


def file_address(path: Path | str) -> str:
    """Return the address of a file of somebody's message; there is none, or it is not theirs."""
    return addresses(path)["transcript"].replace("/sessions/", "/files/") + "/1/0"


@pytest.fixture(scope="module")
def console(new_place: NewPlace) -> Iterator[ServedConsole]:
    with new_place() as place, served_console(place, is_demo=True) as served:
        yield served


def export_address(path: Path | str) -> str:
    """Return the address of somebody's session as a file."""
    return addresses(path)["transcript"].replace("/sessions/", "/export/")


def expired_secret(path: Path | str) -> str:
    """Return the cookie of an owner's browser that was not used for eight days."""
    clock = FakeClock(datetime.now(UTC) - timedelta(days=8))
    with tertulia.open(path, clock=clock) as store:
        return store.browsers.sign_in_as("root").secret


def state_of(path: Path | str) -> list[object]:
    """Return what the actions of the console could have changed."""
    with tertulia.open(path) as store:
        sessions = store.sessions.find(limit=1000).items
        return [
            # The gateway itself may end a session by its policy meanwhile.
            [(each.id, each.title, each.end_reason == "ended over HTTP") for each in sessions],
            [len(store.transcript(each.id).revisions()) for each in sessions],
            [(each.id, each.state) for each in store.outbox.find(limit=1000).items],
            [(each.id, each.role) for each in store.people.find()],
            [(each.id, each.state) for each in store.schedules.find().items],
            store.people.pending_pairings(),
        ]


def forms(console: ServedConsole) -> dict[str, dict[str, str]]:
    """Return for each action a form that would change something for the owner."""
    with console.gateway.store() as store:
        session = next(each for each in store.sessions.find().items if each.title)
        delivery = store.outbox.find(state="unknown").items[0]
        pairing = store.people.pending_pairings()[0]
        schedule = store.schedules.find().items[0]
    of_queue = {"id": str(delivery.id), "outcome": "dead", "state": "unknown", "problem": ""}
    of_person = {"person": pairing.person, "role": "owner"}
    ids = {"schedule": {"id": str(schedule.id)}, "settle": of_queue, "answer": of_queue}
    result = {}
    for name in ACTIONS:
        fields = next((value for part, value in ids.items() if part in name), None)
        if fields is None:
            fields = {"id": session.id, "seq": "1", "number": "1", "title": session.title or ""}
        result[name] = {**fields, **of_person, "chat": "console", "text": "x"}
    return result


def test_nobody_and_an_expired_cookie_get_nowhere(console: ServedConsole) -> None:
    path = console.gateway.path
    before, port = state_of(path), console.url.rpartition(":")[2]
    expired = {"Cookie": f"tertulia_{port}={expired_secret(path)}"}
    for headers in ({}, expired, {"Cookie": f"tertulia_{port}=wrong"}):
        with console.client(None, headers=headers) as client:
            for address in (*addresses(path).values(), file_address(path), export_address(path)):
                assert client.get(address).headers["location"].startswith("/console/enter?to=")
                part = client.get(address, params={"part": "people"})
                assert part.headers["location"].startswith("/console/enter?to=")
            for address in (*STREAMS, COUNTS):
                assert client.get(address).status_code == 401
            lost = client.get("/console/nowhere")
            assert lost.status_code == 404
            assert "<nav" not in lost.text
            assert client.post("/console/leave").headers["location"] == "/console/enter"
            for name, form in forms(console).items():
                reply = client.post(f"/console/do/{name}", data=form)
                assert reply.headers["location"] == "/console/enter", name
                script = client.post(
                    f"/console/do/{name}", data=form, headers={"HX-Request": "true"}
                )
                assert script.status_code == 401
    assert state_of(path) == before


FOREIGN: tuple[dict[str, str], ...] = (
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none"},
    {"Host": "evil.example"},
    {"Host": "evil.example", "Origin": "http://evil.example"},
    {},
)


def test_the_cookie_of_the_owner_does_nothing_for_others(console: ServedConsole) -> None:
    before, fields = state_of(console.gateway.path), forms(console)
    for headers in FOREIGN:
        with console.client() as client:
            del client.headers["Origin"]
            client.headers.update(headers)
            for address in POSTS:
                form = fields.get(address.rpartition("/")[2], {})
                assert client.post(address, data=form).status_code == 403, (address, headers)
            path = console.gateway.path
            files = (file_address(path), export_address(path))
            others = (*STREAMS, *files, COUNTS, "/console/nowhere", "/console/enter")
            for address in (*addresses(path).values(), *others):
                if "Host" in headers:
                    assert client.get(address).status_code == 403, address
    assert state_of(console.gateway.path) == before


@pytest.mark.parametrize(("name", "role"), [("bob", "member"), ("eve", "guest")])
def test_what_is_not_theirs_cannot_be_changed(console: ServedConsole, name: str, role: str) -> None:
    before = state_of(console.gateway.path)
    with console.client(name) as client:
        for action, form in forms(console).items():
            operation = BY_NAME[ACTIONS[action].operation]
            if action in ("say", "sign_out_all", "plan"):
                continue  # they may do that, for themselves
            reply = client.post(f"/console/do/{action}", data=form)
            assert reply.status_code in (400, 403, 404), (action, reply.status_code)
            assert operation.role is not None
            if ROLES.index(role) > ROLES.index(operation.role):
                assert reply.status_code in (403, 404), action
        assert client.get(COUNTS).text == ""  # they are the owner's
        for address in (file_address, export_address):
            assert client.get(address(console.gateway.path)).status_code in (403, 404)
        assert client.get("/console/people", params={"part": "people"}).status_code == 404
        for page in PAGES:  # no page can be asked for by its stream either
            if ROLES.index(role) > ROLES.index(page.role):
                assert first_event(client, f"/console{page.path}") in ("failed", "")
    assert state_of(console.gateway.path) == before


def first_event(client: httpx2.Client, address: str) -> str:
    """Return the name of the first event of a page's stream besides its sign of life."""
    with client.stream("GET", "/console/live", params={"at": address.replace("{id}", "1")}) as got:
        for line in got.iter_lines():
            if line.startswith("event: ") and line != "event: still":
                return line.removeprefix("event: ")
            if line.startswith("data: <"):
                return line
    return ""
