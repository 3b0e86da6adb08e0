"""OpenAI Agents SDK: `SQLiteSession`.

It stores items and neither usage nor activity; the caller names a session, so there is nothing to
find or to list. Its calls are awaited on one event loop that is created once.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, Message, endless, text_bytes
from benchmarks.peers.worker import Call, PeerStore, folder_bytes, serve


class OpenAIAgents(PeerStore):
    package = "openai-agents"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._session: Any = import_module("agents").SQLiteSession
        self._loop = asyncio.new_event_loop()

    def turn(self, size: int) -> Call:
        session = self._filled_session("turn", Corpus().turns(size))
        turn_iterator = endless(Corpus(2).turns(200))
        return lambda: self._wait(session.add_items(next(turn_iterator)))

    def newest(self, size: int) -> Call:
        session = self._filled_session(f"newest-{size}", list(Corpus().session_turns(size)))
        return lambda: self._wait(session.get_items(limit=50))

    def callers(self, *, callers: int, sessions: int, seconds: float) -> float:
        path = self.folder("callers") / "talk.db"
        turns = Corpus().turns(50)
        owned = [
            [self._session(f"{caller}-{number}", path) for number in range(sessions)]
            for caller in range(callers)
        ]

        async def caller(own: list[Any]) -> int:
            turn_iterator = itertools.cycle(own)
            count = 0
            while time.perf_counter() < end:
                await next(turn_iterator).add_items(turns[count % len(turns)])
                count += 1
            return count

        async def everyone() -> list[int]:
            return list(await asyncio.gather(*(caller(own) for own in owned)))

        start = time.perf_counter()
        end = start + seconds
        done: list[int] = self._wait(everyone())
        return sum(done) / (time.perf_counter() - start)

    def disk(self, *, turns: int) -> float:
        folder = self.folder("disk")
        corpus = Corpus()
        text_size = 0
        for number in range(max(1, turns // 50)):
            session = self._session(str(number), folder / "talk.db")
            messages = [message for turn in corpus.turns(50) for message in turn]
            text_size += text_bytes(messages)
            self._wait(session.add_items(messages))
            session.close()
        return folder_bytes(folder) / text_size

    def _filled_session(self, name: str, turns: list[list[Message]]) -> Any:
        session = self._session("talk", self.folder(name) / "talk.db")
        self._wait(session.add_items([message for turn in turns for message in turn]))
        return session

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)


if __name__ == "__main__":
    serve(OpenAIAgents)
