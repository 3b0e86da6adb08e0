"""Each button of the console does what it says, on both databases; what can be undone is undone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

import tertulia
from tertulia import Source
from tertulia.console.form_actions import ACTIONS
from tests.console.served_console import ServedConsole, served_console
from tests.servers.empty_stores import NewPlace

OWN = Source("web", "c", account="root", user_id="root")
ANA = Source("telegram", "42", user_id="42", user_name="Ana")
MARTA = Source("telegram", "5", user_id="5", user_name="Marta")


class Buttons(NamedTuple):
    """A browser that is signed in, and the store that its buttons change."""

    store: tertulia.Store
    client: httpx2.Client

    def press(self, action: str, **fields: object) -> str:
        """Press a button as the script does, and return what it puts into the page."""
        form = {name: str(value) for name, value in fields.items()}
        form.setdefault("back", "/console/sessions")
        reply = self.client.post(f"/console/do/{action}", data=form, headers={"HX-Request": "true"})
        assert reply.status_code == 200, reply.text
        return reply.text + reply.headers.get("hx-redirect", "")

    def undo(self, answer: str) -> str:
        """Press the button in the notice of an answer."""
        notice = re.search(r'hx-target="#notice".*?</hx-partial>', answer, re.DOTALL)
        assert notice is not None
        action = re.search(r"/console/do/(\w+)", notice[0])
        assert action is not None, notice[0]
        fields = re.findall(r'name="(\w+)" value="([^"]*)"', notice[0])
        return self.press(action[1], **{name: html.unescape(value) for name, value in fields})

    def talk(self, source: Source = ANA, count: int = 3) -> str:
        """Begin a session with some exchanges, and return its id."""
        session = self.store.sessions.open(source, force_new=True).id
        for number in range(count):
            with self.store.turn(source, f"Question {number}") as turn:
                turn.add_assistant(f"Answer {number}")
        return session


def put_failed(path: Path | str) -> None:
    """Store messages whose answers failed for good, before a gateway could answer them."""
    with tertulia.open(path) as store:
        for number in range(3):
            store.inbox.put(ANA, f"hello {number}", message_id=f"{number}")
            for claimed in store.inbox.claim():
                store.inbox.failed(claimed, "refused", for_good=True)


@pytest.fixture(scope="module")
def console(new_place: NewPlace) -> Iterator[ServedConsole]:
    with new_place() as place, served_console(place, prepare=put_failed) as served:
        yield served


@pytest.fixture
def buttons(console: ServedConsole) -> Iterator[Buttons]:
    with console.client() as client, console.gateway.store() as store:
        yield Buttons(store, client)


def test_sessions_are_renamed_ended_resumed_forked_and_erased(buttons: Buttons) -> None:
    store, session = buttons.store, buttons.talk()
    renamed = buttons.press("rename", id=session, title="Trains")
    assert store.sessions.require(session).title == "Trains"
    buttons.undo(renamed)
    assert store.sessions.require(session).title is None
    ended = buttons.press("end", id=session)
    assert store.sessions.require(session).ended_at is not None
    buttons.undo(ended)
    assert store.sessions.require(session).ended_at is None
    forked = buttons.press("fork", id=session)
    match = re.search(r"/console/sessions/(\w+)\?note=fork", forked)
    assert match is not None
    assert store.transcript(match[1]).count() == 6
    buttons.press("resume", id=session)
    assert store.sessions.require(match[1]).ended_at is not None
    refused = buttons.client.post("/console/do/erase", data={"id": session, "title": "Other"})
    assert refused.status_code == 400
    buttons.press("erase", id=session, title="DM with Ana")
    with pytest.raises(tertulia.NotFound):
        store.sessions.require(session)


def test_transcripts_are_changed_and_changed_back(buttons: Buttons) -> None:
    session = buttons.talk()
    transcript = buttons.store.transcript(session)
    whole = transcript.history()
    first = transcript.entries()[0]
    for action, fields in (
        ("undo", {}),
        ("edit", {"seq": first.seq, "text": "Something else"}),
        ("remove", {"seq": first.seq}),
        ("compress", {"keep_turns": 1}),
    ):
        answer = buttons.press(action, id=session, **fields)
        assert transcript.history() != whole, action
        buttons.undo(answer)
        assert transcript.history() == whole, action
    buttons.press("undo", id=session)
    buttons.press("redo", id=session)
    assert transcript.history() == whole
    buttons.press("restore", id=session, number=2)
    assert transcript.count() == 4


def test_deliveries_are_settled(buttons: Buttons) -> None:
    store, session = buttons.store, buttons.talk()
    for outcome, state in (("sent", "sent"), ("dead", "dead"), ("retry", "waiting")):
        delivery = store.outbox.put("Hello", "origin", origin=ANA, session_id=session)
        for claimed in store.outbox.claim(platforms=["telegram"]):
            store.outbox.failed(claimed, "lost", outcome="unknown")
        if outcome == "retry":
            buttons.press("settle_all", state="unknown", outcome=outcome)
        else:
            buttons.press("settle", id=delivery.id, outcome=outcome)
        assert store.queues.require_delivery(delivery.id).state == state


def test_messages_are_settled(buttons: Buttons) -> None:
    single, *others = (item.id for item in buttons.store.inbox.find(state="dead").items)
    buttons.press("answer", id=single, outcome="done")
    assert buttons.store.queues.require_message(single).state == "done"
    buttons.press("answer_all", problem="refused", outcome="done")
    assert [buttons.store.queues.require_message(each).state for each in others] == ["done"] * 2


def test_people_are_let_in_refused_and_given_roles_and_zones(buttons: Buttons) -> None:
    store = buttons.store
    code = store.people.request_pairing(MARTA)
    let_in = buttons.press("approve", code=code, role="member")
    assert store.people.role_of(MARTA) == "member"
    buttons.undo(let_in)
    assert store.people.role_of(MARTA) == "guest"
    buttons.press("role", person="telegram:5", role="member")
    changed = buttons.press("role", person="telegram:5", role="owner")
    assert store.people.role_of(MARTA) == "owner"
    buttons.undo(changed)
    assert store.people.role_of(MARTA) == "member"
    moved = buttons.press("zone", person="telegram:5", zone="Asia/Tokyo")
    buttons.undo(moved)
    person = store.people.get("telegram:5")
    assert person is not None
    assert person.zone is None
    jan = Source("telegram", "6", user_id="6", user_name="Jan")
    store.people.request_pairing(jan)
    buttons.press("refuse", person="telegram:6")
    assert store.people.pending_pairings() == []
    assert store.people.role_of(jan) == "guest"


def test_schedules_are_planned_paused_run_and_removed(buttons: Buttons) -> None:
    schedules = buttons.store.schedules
    buttons.press("plan", when="every 2h", task="Look.", back="/console/schedules")
    (planned,) = schedules.find().items
    paused = buttons.press("pause_schedule", id=planned.id, back="/console/schedules")
    assert schedules.find().items[0].state == "paused"
    buttons.undo(paused)
    assert schedules.find().items[0].state == "active"
    buttons.press("run_schedule", id=planned.id, back="/console/schedules")
    assert len(schedules.history(planned.id).items) == 1
    buttons.press("remove_schedule", id=planned.id, back="/console/schedules")
    assert schedules.find().items == ()


def test_browsers_are_signed_out(console: ServedConsole, buttons: Buttons) -> None:
    with console.client("ana") as other:
        newest = buttons.store.browsers.find().items[0]
        buttons.press("sign_out", id=newest.id, back="/console/browsers")
        assert other.get("/console/").status_code == 303
    assert "/console/enter" in buttons.press("sign_out_all", back="/console/browsers")
    assert buttons.client.get("/console/").status_code == 303


def test_every_button_is_pressed_here() -> None:
    """But stop, retry and say, which are pressed in a browser, and killing, which has its own."""
    elsewhere = {"stop", "retry", "say", "kill", "resume_schedule"}
    text = Path(__file__).read_text("utf-8")
    assert [name for name in ACTIONS if name not in elsewhere and f'"{name}"' not in text] == []
