"""A store in which every text that a stranger can write tries to be more than text."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import tertulia
from tertulia import Source, ToolCall, Usage
from tertulia.records.listeners import Connection
from tests.console.served_console import add_process

MARKUP: Final = (
    '"><script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>'
    '<a href="javascript:alert(4)" onclick=alert(5)>x</a>'
    '<div hx-get="https://evil.example/" hx-trigger="load" data-hx-get="/console/leave"></div>'
    '<hx-partial hx-target="#main">gone</hx-partial></title></textarea></template><style>*{}'
    "{{ 7 * 7 }} {% raw %} ${alert(6)} <iframe srcdoc='<script>alert(7)</script>'></iframe>"
)
MARKDOWN: Final = (
    "[a](javascript:alert(1)) ![b](https://evil.example/b.png) <img src=https://evil.example/c>"
    ' [d](data:text/html,<script>alert(1)</script>) [e](https://evil.example "t")'
    "\n\n<script>alert(2)</script>\n\n```html\n<script>alert(3)</script>\n```\n"
    "\n| a | b |\n|---|---|\n| <b onmouseover=alert(4)> | `</code><script>` |"
)
DIRECTIONS: Final = "abc\u202egnp.exe\u2066\u200f\x00\x07\x1b[31m\x9b\ud800 end"
TEXTS: Final = (
    MARKUP,
    MARKDOWN,
    DIRECTIONS,
    "W" * 1_000_000,
    "[" * 10_000,
    "*" * 5_000,
    "> " * 500 + "deep",
    "\n".join(["a"] * 3_000),
)


class HostileStore(NamedTuple):
    """The ids of what has pages of its own."""

    session: str
    process: str


def fill(path: Path | str) -> HostileStore:
    """Fill a new store: every field that a stranger can fill has such a text."""
    source = Source(
        "telegram", "13", chat_type="group", chat_name=MARKUP[:200], user_id=MARKUP[:60],
        user_name=MARKUP[:120], chat_topic=DIRECTIONS,
    )  # fmt: skip
    with tertulia.open(path) as store:
        store.people.remember(source, role="member")
        session = ""
        for number, text in enumerate(TEXTS):
            with store.turn(source, text, message_id=f"{number}") as turn:
                call = ToolCall("c", MARKUP[:60], {MARKUP[:40]: text[:2_000]})
                turn.add_assistant(None, tool_calls=[call])
                turn.add_tool_result("c", text)
                turn.add_assistant(text, usage=Usage(input=1, output=1, model=MARKUP[:60]))
                session = turn.session.id
        store.sessions.rename(session, MARKUP[:100])
        transcript = store.transcript(session)
        transcript.undo()
        transcript.redo()
        for text in TEXTS[:4]:
            store.outbox.put(text[:3_000], "origin", origin=source, session_id=session)
            for delivery in store.outbox.claim():
                store.outbox.failed(delivery, text[:2_000], outcome="unknown")
        item = store.inbox.put(source, MARKUP, message_id="late")
        for claimed in store.inbox.claim():
            store.inbox.failed(claimed, MARKUP if claimed.id == item.id else "no", for_good=True)
        store.people.request_pairing(Source("telegram", "9", user_id="9", user_name=MARKUP[:80]))
        person = store.people.find(role="member")[0].id
        store.people.set_role(person, "guest", by=MARKUP[:60])
        _plan(store, source)
        _send_file(store, source)
        process = add_process(store, source, MARKUP, node=MARKUP[:60], session=session)
        connection = Connection(
            node=MARKUP[:60], platform="telegram", account=MARKUP[:40], listening=True,
            since=store.now(), problem=MARKUP,
        )  # fmt: skip
        store.listeners.report(connection)
        store.nodes.report(MARKUP[:60], version="<b>", turns=1)
        store.sessions.end(session, MARKUP[:90])
        store.settle()
    return HostileStore(session, process)


def _plan(store: tertulia.Store, source: Source) -> None:
    """Leave a schedule whose run has failed."""
    schedule = store.schedules.create(source, "every 2h", MARKUP[:300])
    store.schedules.run_now(schedule.id)
    for run in store.schedules.claim():
        store.schedules.failed(run, MARKUP, for_good=True)


def _send_file(store: tertulia.Store, source: Source) -> None:
    """Leave a message with a file, in a session of its own."""
    media = store.media.put(b"hello", name=MARKUP[:100])
    with store.turn(source, MARKUP, message_id="file", media=[media.to_dict()]) as turn:
        turn.add_assistant(MARKDOWN)
