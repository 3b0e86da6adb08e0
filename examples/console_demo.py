"""A console to look around in: a store with some days of conversations, and the parrot.

    python examples/console_demo.py [--port N] [--store FILE]

`make console` runs it. It prints a link that signs a browser in, and serves until ctrl-C. Without
`--store` the store is in a temporary folder and is gone afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source, ToolCall, Usage, aio
from tertulia.agents import ParrotAgent
from tertulia.console.app import console_pages
from tertulia.gateway.app import Gateway
from tertulia.gateway.settings import GatewaySettings
from tertulia.http import HttpSettings, Token, serve
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter

ANA = Source("telegram", "42", user_id="42", user_name="Ana Ferrer")
JONAS = Source("telegram", "77", user_id="77", user_name="Jonas Weber")
LAYLA = Source("whatsapp", "201001234567", user_id="201001234567", user_name="ليلى حسن")
TEAM = Source(
    "slack", "C04TRAVEL", chat_type="channel", chat_name="#travel", user_id="U11", user_name="Priya"
)
GARDEN = Source(
    "discord", "9001", chat_type="group", chat_name="Garden club", user_id="31", user_name="Mika 🌱"
)
SETTINGS = Settings(policies=Policies(default=ResetPolicy("idle", idle_minutes=3 * 24 * 60)))
STRANGER = Source("telegram", "555", user_id="555", user_name="Marta")

Lines = list[tuple[str, str]]


class DemoClock:
    """A clock that is moved through the last days, and ends at the present."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return min(self.at, datetime.now(UTC))

    def move(self, **span: float) -> None:
        self.at += timedelta(**span)


# Conversations by name: what a person writes, and what the agent answers.
TEXTS: dict[str, Lines] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


def fill_store(path: Path | str, *, now: datetime | None = None) -> None:
    """Fill a new store with conversations of the last five days."""
    clock = DemoClock((now or datetime.now(UTC)) - timedelta(days=5))
    with tertulia.open(path, clock=clock, settings=SETTINGS) as store:
        for source, role in (
            (ANA, "owner"),
            (JONAS, "member"),
            (LAYLA, "member"),
            (TEAM, "member"),
        ):
            store.people.remember(source, role=role)  # type: ignore[arg-type]
        _talk(store, clock, GARDEN, TEXTS["plants"], "claude-sonnet-4-5", 0.011)
        clock.move(days=1, hours=2)
        _talk(store, clock, JONAS, TEXTS["rent"], "gpt-5-mini", 0.0031)
        clock.move(days=1)
        _talk(store, clock, TEAM, TEXTS["trip"], "gpt-5-mini", 0.0044)
        _look_up(store, clock)
        clock.move(hours=20)
        _talk(store, clock, LAYLA, TEXTS["recipe"], "llama-local", None)
        clock.move(hours=19)
        session = _talk(store, clock, ANA, TEXTS["madrid"], "claude-sonnet-4-5", 0.021)
        store.sessions.rename(session, "Train to Madrid")
        clock.move(minutes=3)
        store.sessions.end(session, "user")
        clock.move(hours=6)
        ana = _talk(store, clock, ANA, TEXTS["spanish"], "claude-sonnet-4-5", 0.017)
        _change(store, clock, ana)
        clock.at = datetime.now(UTC) - timedelta(minutes=40)
        store.people.set_role("telegram:77", "member", by="token:owner")
        _queues(store)
        clock.at = datetime.now(UTC)
        store.people.request_pairing(STRANGER)
        store.schedules.create(ANA, "cron 0 9 * * MON-FRI", "Tell me what is planned for today.")
        store.schedules.create(ANA, "every 2h", "Look whether the tickets became cheaper.")
        store.settle()


def _talk(
    store: tertulia.Store,
    clock: DemoClock,
    source: Source,
    lines: Lines,
    model: str,
    cost: float | None,
) -> str:
    session = ""
    for number, (question, reply) in enumerate(lines):
        with store.turn(source, question, message_id=f"{source.chat_id}-{clock.at:%s}") as turn:
            clock.move(seconds=4)
            if "tickets" in question or "tiempo" in question:
                _call_tool(turn, clock)
            turn.add_assistant(reply, usage=_usage(model, cost, number))
            session = turn.session.id
        clock.move(minutes=2 + number)
    return session


def _usage(model: str, cost: float | None, number: int) -> Usage:
    return Usage(
        input=820 + 340 * number, output=96 + 24 * number, cache_read=512 * number, model=model,
        cost_usd=cost, cost_status="unknown" if cost is None else "actual",
    )  # fmt: skip


def _call_tool(turn: tertulia.Turn, clock: DemoClock) -> None:
    turn.add_assistant(None, tool_calls=[ToolCall("call_1", "look_up", {"days": 3, "from": "SVQ"})])
    clock.move(seconds=2)
    turn.add_tool_result("call_1", '{"results": 3, "source": "timetable", "as_of": "today"}')


def _look_up(store: tertulia.Store, clock: DemoClock) -> None:
    """Leave a turn whose agent failed in a tool call."""
    try:
        with store.turn(TEAM, "And for Porto?", message_id=f"porto-{clock.at:%s}") as turn:
            call = ToolCall("call_2", "per_diem", {"city": "Porto"})
            turn.add_assistant(None, tool_calls=[call])
            raise ConnectionError
    except ConnectionError:
        clock.move(minutes=1)


def _change(store: tertulia.Store, clock: DemoClock, session: str) -> None:
    """Undo, redo and edit, so that there are revisions."""
    transcript = store.transcript(session)
    transcript.undo()
    clock.move(minutes=1)
    transcript.redo()
    clock.move(minutes=1)
    first = transcript.entries()[0]
    transcript.edit(first.seq, {**first.body, "content": str(first.body["content"]) + " Gracias."})


def _queues(store: tertulia.Store) -> None:
    """Leave deliveries and messages that need a person."""
    sessions = {session.origin.chat_id: session.id for session in store.sessions.find().items[::-1]}
    stuck = (
        (ANA, "Your tickets: coach 4, seats 12A and 12B.", "unknown",
         "the connection was lost while the message was sent"),
        (GARDEN, "The nettle tea is ready to be poured tomorrow.", "dead",
         "403: the bot was removed from the channel"),
        (JONAS, "Deine Erinnerung: Zählerstand ablesen.", "dead",
         "403: bot was blocked by the user"),
        (LAYLA, "تذكير: اشتري البيض والخبز.", "waiting", ""),
    )  # fmt: skip
    for source, text, outcome, problem in stuck:
        store.outbox.put(text, "origin", origin=source, session_id=sessions[source.chat_id])
        if outcome != "waiting":
            for delivery in store.outbox.claim(platforms=[source.platform]):
                store.outbox.failed(delivery, problem, outcome=outcome)  # type: ignore[arg-type]
    item = store.inbox.put(JONAS, "Bist du noch da?", message_id="late-1")
    for claimed in store.inbox.claim():
        if claimed.id == item.id:
            store.inbox.failed(claimed, "the model refused the request", for_good=True)


async def run(path: Path, port: int) -> None:
    """Serve the store with the parrot until ctrl-C, and print a link that signs a browser in."""
    rules = GatewaySettings(
        platforms={"web": PlatformSettings(admission="everyone")}, drain_seconds=1
    )
    token = Token(name="owner", secret=secrets.token_urlsafe(), role="owner")
    async with aio.open(path, settings=SETTINGS) as store:
        gateway = Gateway(store, ParrotAgent(), [WebAdapter()], settings=rules)
        running = asyncio.create_task(gateway.run())
        http = HttpSettings(port=port, tokens=(token,))
        async with serve(gateway, http, pages=console_pages) as address:
            code = await store.browsers.request_code("owner")
            link = f"http://tertulia.localhost:{address.port}/console/enter#{code}"
            print(f"{link}\n{address.url}/console/enter#{code}")
            print(
                "The link works once, for two minutes. ctrl-C ends the demonstration.", flush=True
            )
            try:
                await running
            finally:
                gateway.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8460)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "talk.db"
        if not path.exists():
            fill_store(path)
        try:
            asyncio.run(run(path, options.port))
        except KeyboardInterrupt:
            sys.exit(0)


if __name__ == "__main__":
    main()
