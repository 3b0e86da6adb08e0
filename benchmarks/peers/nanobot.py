"""nanobot: `SessionManager`, one JSON lines file per session.

A turn adds four messages to the session and saves it with `fsync=True`, the durable way it offers.
It stores no usage. Its cache is emptied before each lookup, as after a restart or for a session
that is not among the 128 newest.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, Message, endless, text_bytes
from benchmarks.peers.worker import Call, PeerStore, folder_bytes, serve

_ANSWER = "You said: "


class Nanobot(PeerStore):
    package = "nanobot-ai"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._manager: Any = import_module("nanobot.session.manager").SessionManager

    def turn(self, size: int) -> Call:
        manager = self._manager(self.folder("turn"))
        session = manager.get_or_create(_key(0))
        for turn in Corpus().turns(size):
            _add(session, turn)
        turn_iterator = endless(Corpus(2).turns(200))

        def write() -> None:
            _add(session, next(turn_iterator))
            manager.save(session, fsync=True)

        return write

    def find(self, size: int) -> Call:
        manager = self._filled_manager(size)
        numbers = _shuffled(size)

        def find_session() -> object:
            key = _key(next(numbers))
            manager.invalidate(key)
            return manager.get_or_create(key)

        return find_session

    def open(self, size: int) -> Call:
        workspace = self._filled_manager(size).workspace
        numbers = _shuffled(size)
        return lambda: self._manager(workspace).get_or_create(_key(next(numbers)))

    def newest(self, size: int) -> Call:
        manager = self._manager(self.folder(f"newest-{size}"))
        session = manager.get_or_create(_key(0))
        for turn in Corpus().session_turns(size):
            _add(session, turn)
        manager.save(session)
        return lambda: session.get_history(max_messages=50)

    def list(self, size: int) -> Call:
        manager = self._filled_manager(size)
        return lambda: manager.list_sessions()[:50]

    def callers(self, *, callers: int, sessions: int, seconds: float) -> float:
        manager = self._manager(self.folder("callers"))
        turns = Corpus().turns(50)
        done: list[int] = []

        def caller(number: int) -> None:
            own = itertools.cycle(range(number * sessions, (number + 1) * sessions))
            count = 0
            while time.perf_counter() < end:
                session = manager.get_or_create(_key(next(own)))
                _add(session, turns[count % len(turns)])
                manager.save(session, fsync=True)
                count += 1
            done.append(count)

        threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
        start = time.perf_counter()
        end = start + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - start)

    def disk(self, *, turns: int) -> float:
        folder = self.folder("disk")
        manager = self._manager(folder / "workspace", sessions_root=folder / "files")
        corpus = Corpus()
        text_size = 0
        for number in range(max(1, turns // 50)):
            session = manager.get_or_create(_key(number))
            for turn in corpus.turns(50):
                _add(session, turn)
                text_size += text_bytes(turn)
            manager.save(session, fsync=True)
        return folder_bytes(folder) / text_size

    def gateway(self, *, people: int, messages: int, seconds: float, is_bare: float) -> float:
        """Run its own message loop with a provider that answers at once, on an empty workspace."""
        folder = self.folder(f"gateway-{is_bare:g}")
        return asyncio.run(_run_gateway(folder, people, messages, seconds, is_bare=bool(is_bare)))

    def _filled_manager(self, size: int) -> Any:
        """Return a manager of a workspace with `size` sessions; fill it at the first call."""
        workspace = self.root / f"sessions-{size}"
        is_new = not workspace.exists()
        manager = self._manager(workspace)
        if is_new:
            turn = Corpus().turn(0)
            for number in range(size):
                session = manager.get_or_create(_key(number))
                _add(session, turn)
                manager.save(session)
        return manager


class _Words:
    """A tokenizer that only counts."""

    def encode(self, text: str, **options: Any) -> list[int]:
        return [0] * (len(text) // 4)

    def decode(self, tokens: list[int]) -> str:
        return " " * (4 * len(tokens))


async def _run_gateway(
    workspace: Path, people: int, messages: int, seconds: float, *, is_bare: bool
) -> float:
    """Return the turns per second; each user writes again after the answer, for `seconds`.

    It reads its bundled skills again for each turn, which is most of its time: `is_bare` switches
    them off.
    """
    import_module("loguru").logger.remove()
    # Its tokenizer is downloaded at first use; a faster one replaces it.
    setattr(import_module("nanobot.utils.helpers"), "_get_token_encoding", lambda *_: _Words())  # noqa: B010
    import_module("nanobot.config.loader").load_config(workspace / "none.json")  # its defaults
    bus = import_module("nanobot.bus.queue").MessageBus()
    incoming = import_module("nanobot.bus.events").InboundMessage
    skills = Path(import_module("nanobot").__file__ or "").parent / "skills"
    without = [skill.name for skill in skills.iterdir()] if is_bare else []
    loop = import_module("nanobot.agent.loop").AgentLoop(
        bus, _provider(), workspace, disabled_skills=without
    )
    answers: dict[str, asyncio.Future[None]] = {}
    done = 0

    async def person(chat: str) -> None:
        nonlocal done
        for number in range(messages):
            if time.perf_counter() > began + seconds:
                return
            answers[chat] = asyncio.get_running_loop().create_future()
            text = f"question {number}: what about the harbour, and who told you so?"
            await bus.publish_inbound(incoming("telegram", chat, chat, text))
            await answers[chat]
            done += 1

    async def deliver() -> None:
        while True:
            sent = await bus.consume_outbound()
            # Typed events use the same queue; the answer is the message that begins with this.
            if sent.content.startswith(_ANSWER) and not answers[sent.chat_id].done():
                answers[sent.chat_id].set_result(None)

    tasks = [asyncio.create_task(loop.run()), asyncio.create_task(deliver())]
    began = time.perf_counter()
    await asyncio.gather(*(person(f"{number}") for number in range(people)))
    rate = done / (time.perf_counter() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rate


def _provider() -> Any:
    base = import_module("nanobot.providers.base")

    async def chat(self: Any, messages: list[Message], *args: Any, **options: Any) -> Any:
        text = str(messages[-1]["content"])
        return base.LLMResponse(content=f"{_ANSWER}{text}")

    methods = {"chat": chat, "get_default_model": lambda self: "parrot"}
    return type("Parrot", (base.LLMProvider,), methods)(provider_name="parrot")


def _key(number: int) -> str:
    return f"telegram:{100_000 + number}"


def _add(session: Any, turn: list[Message]) -> None:
    for message in turn:
        session.add_message(**message)


def _shuffled(size: int) -> Any:
    order = list(range(size))
    random.Random(size).shuffle(order)
    return itertools.cycle(order)


if __name__ == "__main__":
    serve(Nanobot)
