"""The run: nodes, what is done to them, and what must hold in the end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import tertulia
from tertulia import Source
from tertulia.records.queues.inbox import INBOX_STATES
from tertulia.records.queues.outbox import DELIVERY_STATES
from tests.legality.validators import faults
from tests.torture.platform import Platform, Server

_PATIENCE = 180.0  # for the rest to be answered, however busy the machine is


class Plan(NamedTuple):
    """How long, how many, and what can be done to the database."""

    where: str
    seconds: float
    nodes: int
    chats: int = 300
    pause: float = 5.0  # a person writes again within so many seconds
    lease: float = 2.0
    seed: int = 1
    cut: Callable[[], int] | None = None  # cuts connections of nodes; how many
    restart: Callable[[], None] | None = None  # restarts the server
    node: str = "node"  # or "gateway"


class Report(NamedTuple):
    """What happened, and everything that is wrong."""

    messages: int
    answers: int
    repeated_by_platform: int
    repeated_deliveries: int
    kills: int
    stops: int
    cuts: int
    restarts: int
    taken_over: int
    longest_take_over: float
    lease: float
    faults: list[str]

    def __str__(self) -> str:
        in_leases = f"{self.longest_take_over / self.lease:.1f} leases of {self.lease:g} s"
        counts = {
            "messages said": self.messages,
            "answers heard": self.answers,
            "updates the platform repeated": self.repeated_by_platform,
            "deliveries it had had": self.repeated_deliveries,
            "nodes killed with -9": self.kills,
            "nodes stopped and continued": self.stops,
            "connections cut": self.cuts,
            "server restarts": self.restarts,
            "messages taken over": self.taken_over,
            "longest take-over": f"{self.longest_take_over:.2f} s ({in_leases})",
        }
        end = [f"WRONG: {fault}" for fault in self.faults] or [
            "Nothing lost, nothing twice, nothing interleaved; every history is legal."
        ]
        return "\n".join([*(f"{name:<30}{count}" for name, count in counts.items()), *end])


class Torture:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._platform = Platform(plan.chats, plan.seed, plan.pause)
        self._server = Server(self._platform)
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self._started = 0
        self._lost: list[tuple[str, str, float]] = []  # message, node, since when
        self._stopped: dict[str, float] = {}  # node, and when it goes on
        self.kills = self.stops = self.cuts = self.restarts = 0

    def run(self) -> Report:
        tertulia.open(self._plan.where).close()  # made before anybody is killed while making it
        try:
            for _ in range(self._plan.nodes):
                self._start()
            self._harm_until(time.monotonic() + self._plan.seconds)
            self._platform.stop_talking()
            self._settle()
            for node in self._nodes.values():
                node.send_signal(signal.SIGTERM)
            ends = [node.wait(60) for node in self._nodes.values()]
        finally:
            for node in self._nodes.values():
                node.kill()
            self._server.shutdown()
            self._server.server_close()
        found = [f"a node ended with {code}" for code in ends if code]
        return self._report(found + self._faults())

    # -- harm

    def _harm_until(self, end: float) -> None:
        restart_at = time.monotonic() + self._plan.seconds / 2
        harms = [self._kill, self._stop, self._cut]
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.2, 1.0))
            self._continue()
            self._random.choice(harms)()
            if self._plan.restart is not None and time.monotonic() > restart_at:
                restart_at = end + 1
                self._plan.restart()
                self.restarts += 1
        self._continue(everyone=True)

    def _kill(self) -> None:
        name = self._random.choice(list(self._nodes))
        self._note_lost(name)
        node = self._nodes.pop(name)
        self._stopped.pop(name, None)
        node.kill()
        node.wait()
        self.kills += 1
        self._start()

    def _stop(self) -> None:
        running = [name for name in self._nodes if name not in self._stopped]
        if len(running) < 2:
            return
        name = self._random.choice(running)
        self._nodes[name].send_signal(signal.SIGSTOP)
        self._note_lost(name)
        self._stopped[name] = time.monotonic() + self._random.uniform(0.2, 3 * self._plan.lease)
        self.stops += 1

    def _continue(self, *, everyone: bool = False) -> None:
        for name, at in list(self._stopped.items()):
            if everyone or at < time.monotonic():
                del self._stopped[name]
                self._nodes[name].send_signal(signal.SIGCONT)

    def _cut(self) -> None:
        if self._plan.cut is not None:
            self.cuts += self._plan.cut()

    def _note_lost(self, name: str) -> None:
        now = time.monotonic()
        self._lost += [(message, name, now) for message in self._platform.held_by(name)]

    def _start(self) -> None:
        self._started += 1
        name = f"node{self._started}"
        arguments = [self._plan.where, str(self._server.server_port), name, str(self._plan.lease)]
        self._nodes[name] = subprocess.Popen(
            [sys.executable, "-m", f"tests.torture.{self._plan.node}", *arguments],
            stdout=subprocess.DEVNULL,
            text=True,
        )

    # -- the end

    def _settle(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._platform.is_answered() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(0.5)  # an answer too many would come now

    def _report(self, found: list[str]) -> Report:
        waits = self._take_overs()
        platform = self._platform
        return Report(
            messages=platform.total(),
            answers=sum(map(len, platform.heard.values())),
            repeated_by_platform=platform.repeats,
            repeated_deliveries=platform.dropped,
            kills=self.kills,
            stops=self.stops,
            cuts=self.cuts,
            restarts=self.restarts,
            taken_over=len(waits),
            longest_take_over=max(waits, default=0.0),
            lease=self._plan.lease,
            faults=found,
        )

    def _take_overs(self) -> list[float]:
        """How long each message of a lost node waited for another one."""
        waits = []
        for message, node, since in self._lost:
            later = [
                claim.at - since
                for claim in self._platform.claims
                if claim.message == message and claim.node != node and claim.at > since
            ]
            waits += [min(later)] if later else []  # a stopped node may have gone on itself
        return waits

    def _faults(self) -> list[str]:
        found = []
        for chat, said in self._platform.said.items():
            expected = [f"answer {message}" for message in said]
            heard = self._platform.heard[chat]
            if heard != expected:
                found.append(f"{chat} heard {_difference(heard, expected)}")
        with tertulia.open(self._plan.where) as store:
            found += store.check()
            for chat, said in self._platform.said.items():
                found += _transcript_faults(store, chat, said)
            found += [
                f"the inbox has {arrival.message_id} {state}"
                for state in set(INBOX_STATES) - {"done"}
                for arrival in store.inbox.find(state=state, limit=3).items
            ]
            found += [
                f"the outbox has {parcel.body} {parcel.state}"
                for state in set(DELIVERY_STATES) - {"sent"}
                for parcel in store.outbox.find(state=state, limit=3).items
            ]
        return found


def _transcript_faults(store: tertulia.Store, chat: str, said: list[str]) -> list[str]:
    """Each question once, in order, and before the next one exactly one answer to it."""
    if not said:
        return []
    session = store.sessions.current(store.sessions.key(Source("telegram", chat, user_id=chat)))
    if session is None:
        return [f"{chat} has no session"]
    transcript = store.transcript(session.id)
    told = [
        message["content"]
        for message in transcript.load()
        if message["role"] == "user" or (message["role"] == "assistant" and message["content"])
    ]
    expected = [text for message in said for text in (f"question {message}", f"answer {message}")]
    found = [f"{chat} has {_difference(told, expected)}"] if told != expected else []
    for form in ("openai", "anthropic"):
        history = transcript.history(format=form)
        found += [f"{chat} in {form}: {fault}" for fault in faults(form, history)]
    return found


def _difference(found: list[str], expected: list[str]) -> str:
    missing = [text for text in expected if text not in found]
    extra = [text for text in found if found.count(text) > 1 or text not in expected]
    if missing or extra:
        return f"lacks {missing[:3]}, has too much {extra[:3]}"
    place = next(n for n, pair in enumerate(zip(found, expected, strict=True)) if len({*pair}) > 1)
    return f"another order, from {found[place]!r} instead of {expected[place]!r}"
