"""nanobot: `SessionManager`, one JSON lines file per session.

A turn adds four messages to the session and saves it with `fsync=True`, the durable way it offers.
It keeps no usage. Its cache is emptied before each look-up, as after a restart or for a session
that is not among the 128 newest.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, Message, endless, text_bytes
from benchmarks.peers.worker import Call, Talker, folder_bytes, serve


class Nanobot(Talker):
    package = "nanobot-ai"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._manager: Any = import_module("nanobot.session.manager").SessionManager

    def turn(self, size: int) -> Call:
        manager = self._manager(self.folder("turn"))
        session = manager.get_or_create(_key(0))
        for turn in Corpus().turns(size):
            _add(session, turn)
        ahead = endless(Corpus(2).turns(200))

        def written() -> None:
            _add(session, next(ahead))
            manager.save(session, fsync=True)

        return written

    def find(self, size: int) -> Call:
        manager = self._filled(size)
        numbers = _shuffled(size)

        def found() -> object:
            key = _key(next(numbers))
            manager.invalidate(key)
            return manager.get_or_create(key)

        return found

    def open(self, size: int) -> Call:
        workspace = self._filled(size).workspace
        numbers = _shuffled(size)
        return lambda: self._manager(workspace).get_or_create(_key(next(numbers)))

    def newest(self, size: int) -> Call:
        manager = self._manager(self.folder(f"newest-{size}"))
        session = manager.get_or_create(_key(0))
        for turn in Corpus().talk(size):
            _add(session, turn)
        manager.save(session)
        return lambda: session.get_history(max_messages=50)

    def list(self, size: int) -> Call:
        manager = self._filled(size)
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
        written = 0
        for number in range(max(1, turns // 50)):
            session = manager.get_or_create(_key(number))
            for turn in corpus.turns(50):
                _add(session, turn)
                written += text_bytes(turn)
            manager.save(session, fsync=True)
        return folder_bytes(folder) / written

    def _filled(self, size: int) -> Any:
        """A manager of a workspace with so many sessions, which is filled once."""
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
