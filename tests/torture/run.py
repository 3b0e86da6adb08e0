"""The run: the nodes, the faults, and the checks at the end."""

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

_TIMEOUT = 180.0  # for the remaining answers, also on a busy machine


class Plan(NamedTuple):
    """The length of the run, the number of nodes, and the faults of the database."""

    where: str
    seconds: float
    nodes: int
    chats: int = 300
    pause: float = 5.0  # a user writes again within this many seconds
    lease: float = 2.0
    seed: int = 1
    cut: Callable[[], int] | None = None  # terminates connections of nodes and returns their number
    restart: Callable[[], None] | None = None  # restarts the server
    node: str = "node"  # or "gateway"


class Report(NamedTuple):
    """The counts of a run, and every fault that was found."""

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
            "questions sent": self.messages,
            "answers received": self.answers,
            "updates the platform repeated": self.repeated_by_platform,
            "repeated deliveries dropped": self.repeated_deliveries,
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
    """One run with faults."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._platform = Platform(plan.chats, plan.seed, plan.pause)
        self._server = Server(self._platform)
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self._started = 0
        self._lost: list[tuple[str, str, float]] = []  # message, node, time of loss
        self._stopped: dict[str, float] = {}  # node, and the time when it continues
        self.kills = self.stops = self.cuts = self.restarts = 0

    def run(self) -> Report:
        tertulia.open(
            self._plan.where
        ).close()  # create it before any node can be killed while creating it
        try:
            for _ in range(self._plan.nodes):
                self._start()
            self._inject_faults_until(time.monotonic() + self._plan.seconds)
            self._platform.stop_questions()
            self._settle()
            for node in self._nodes.values():
                assert node.stdout is not None
                node.stdout.readline()  # "ready": before that, SIGTERM would just end it
                node.send_signal(signal.SIGTERM)
            ends = [node.wait(60) for node in self._nodes.values()]
        finally:
            for node in self._nodes.values():
                node.kill()
                node.communicate()
            self._server.shutdown()
            self._server.server_close()
        exit_faults = [f"a node ended with {code}" for code in ends if code]
        return self._report(exit_faults + self._find_faults())

    # -- faults

    def _inject_faults_until(self, end: float) -> None:
        restart_at = time.monotonic() + self._plan.seconds / 2
        faults_to_inject = [self._kill, self._stop, self._cut]
        while time.monotonic() < end:
            time.sleep(self._random.uniform(0.2, 1.0))
            self._continue()
            self._random.choice(faults_to_inject)()
            if self._plan.restart is not None and time.monotonic() > restart_at:
                restart_at = end + 1
                self._plan.restart()
                self.restarts += 1
        self._continue(all_nodes=True)

    def _kill(self) -> None:
        name = self._random.choice(list(self._nodes))
        self._record_lost(name)
        node = self._nodes.pop(name)
        self._stopped.pop(name, None)
        node.kill()
        node.communicate()
        self.kills += 1
        self._start()

    def _stop(self) -> None:
        running = [name for name in self._nodes if name not in self._stopped]
        if len(running) < 2:
            return
        name = self._random.choice(running)
        self._nodes[name].send_signal(signal.SIGSTOP)
        self._record_lost(name)
        self._stopped[name] = time.monotonic() + self._random.uniform(0.2, 3 * self._plan.lease)
        self.stops += 1

    def _continue(self, *, all_nodes: bool = False) -> None:
        for name, at in list(self._stopped.items()):
            if all_nodes or at < time.monotonic():
                del self._stopped[name]
                self._nodes[name].send_signal(signal.SIGCONT)

    def _cut(self) -> None:
        if self._plan.cut is not None:
            self.cuts += self._plan.cut()

    def _record_lost(self, name: str) -> None:
        now = time.monotonic()
        self._lost += [(message, name, now) for message in self._platform.claimed_by(name)]

    def _start(self) -> None:
        self._started += 1
        name = f"node{self._started}"
        arguments = [self._plan.where, str(self._server.server_port), name, str(self._plan.lease)]
        self._nodes[name] = subprocess.Popen(
            [sys.executable, "-m", f"tests.torture.{self._plan.node}", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )

    # -- the end

    def _settle(self) -> None:
        deadline = time.monotonic() + _TIMEOUT
        with tertulia.open(self._plan.where) as store:
            while time.monotonic() < deadline:
                # A node that was killed after an answer has left its claims until they end.
                is_claimed = store.inbox.count("taken") or store.outbox.find(state="sending").items
                if self._platform.is_answered() and not is_claimed:
                    break
                time.sleep(0.1)
        time.sleep(0.5)  # an extra answer would arrive now

    def _report(self, all_faults: list[str]) -> Report:
        waits = self._take_overs()
        platform = self._platform
        return Report(
            messages=platform.total(),
            answers=sum(map(len, platform.answers.values())),
            repeated_by_platform=platform.repeats,
            repeated_deliveries=platform.dropped,
            kills=self.kills,
            stops=self.stops,
            cuts=self.cuts,
            restarts=self.restarts,
            taken_over=len(waits),
            longest_take_over=max(waits, default=0.0),
            lease=self._plan.lease,
            faults=all_faults,
        )

    def _take_overs(self) -> list[float]:
        """Return how long each message of a lost node waited for another node."""
        waits = []
        for message, node, since in self._lost:
            later = [
                claim.at - since
                for claim in self._platform.claims
                if claim.message == message and claim.node != node and claim.at > since
            ]
            waits += [min(later)] if later else []  # a stopped node may have continued itself
        return waits

    def _find_faults(self) -> list[str]:
        found_faults = []
        for chat, questions in self._platform.questions.items():
            expected = [f"answer {message}" for message in questions]
            answers = self._platform.answers[chat]
            if answers != expected:
                found_faults.append(f"{chat} received {_difference(answers, expected)}")
        with tertulia.open(self._plan.where) as store:
            found_faults += store.check()
            for chat, questions in self._platform.questions.items():
                found_faults += _transcript_faults(store, chat, questions)
            found_faults += [
                f"the inbox has {item.message_id} {state}"
                for state in set(INBOX_STATES) - {"done"}
                for item in store.inbox.find(state=state, limit=3).items
            ]
            found_faults += [
                f"the outbox has {delivery.body} {delivery.state}"
                for state in set(DELIVERY_STATES) - {"sent"}
                for delivery in store.outbox.find(state=state, limit=3).items
            ]
        return found_faults


def _transcript_faults(store: tertulia.Store, chat: str, questions: list[str]) -> list[str]:
    """Check that each question is stored once, in order, with exactly one answer to it."""
    if not questions:
        return []
    session = store.sessions.current(store.sessions.key(Source("telegram", chat, user_id=chat)))
    if session is None:
        return [f"{chat} has no session"]
    transcript = store.transcript(session.id)
    texts = [
        message["content"]
        for message in transcript.load()
        if message["role"] == "user" or (message["role"] == "assistant" and message["content"])
    ]
    expected = [
        text for message in questions for text in (f"question {message}", f"answer {message}")
    ]
    found_faults = [f"{chat} has {_difference(texts, expected)}"] if texts != expected else []
    for form in ("openai", "anthropic"):
        history = transcript.history(format=form)
        found_faults += [f"{chat} in {form}: {fault}" for fault in faults(form, history)]
    return found_faults


def _difference(texts: list[str], expected: list[str]) -> str:
    missing = [text for text in expected if text not in texts]
    extra = [text for text in texts if texts.count(text) > 1 or text not in expected]
    if missing or extra:
        return f"missing {missing[:3]}, unexpected {extra[:3]}"
    pairs = enumerate(zip(texts, expected, strict=True))
    index = next(number for number, pair in pairs if len({*pair}) > 1)
    return f"a different order, from {texts[index]!r} instead of {expected[index]!r}"
