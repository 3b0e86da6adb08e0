"""Hermes Agent: `SessionStore`, with the `SessionDB` behind it, as its gateway uses them.

A turn is four appends, the token counts and the update of the session, which is what the gateway
does after an answer. Thousands of sessions are created with the database's own calls, because
creating them one by one through the store rewrites the whole routing index each time.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.corpus import RARE_WORD, Corpus, Message, endless, text_bytes
from benchmarks.peers.worker import Call, PeerStore, folder_bytes, serve


class Hermes(PeerStore):
    package = "hermes-agent"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._sessions: Any = import_module("gateway.session")
        self._config: Any = import_module("gateway.config")
        self._state: Any = import_module("hermes_state")

    def turn(self, size: int) -> Call:
        store = self._store(self.folder("turn"))
        entry = store.get_or_create_session(self._source(0))
        messages = [message for turn in Corpus().turns(size) for message in turn]
        store.rewrite_transcript(entry.session_id, messages)
        turn_iterator = endless(Corpus(2).turns(200))
        return lambda: _turn(store, entry, next(turn_iterator))

    def find(self, size: int) -> Call:
        store = self._store(self._filled_folder(size))
        numbers = _shuffled(size)
        return lambda: store.get_or_create_session(self._source(next(numbers)))

    def open(self, size: int) -> Call:
        folder = self._filled_folder(size)
        numbers = _shuffled(size)

        def open_and_find() -> None:
            store = self._store(folder)
            store.get_or_create_session(self._source(next(numbers)))

        return open_and_find

    def newest(self, size: int) -> Call:
        store = self._store(self.folder(f"newest-{size}"))
        session_id = store.get_or_create_session(self._source(0)).session_id
        messages = [message for turn in Corpus().session_turns(size) for message in turn]
        store.rewrite_transcript(session_id, messages)
        return lambda: store.load_transcript(session_id)[-50:]

    def list(self, size: int) -> Call:
        store = self._store(self._filled_folder(size))
        return lambda: store._db.list_sessions_rich(limit=50, order_by_last_active=True)

    def search(self, size: int) -> Call:
        store = self._store(self.folder(f"search-{size}"))
        session_id = store.get_or_create_session(self._source(0)).session_id
        messages = [message for turn in Corpus().session_turns(size, rare=10) for message in turn]
        store.rewrite_transcript(session_id, messages)
        return lambda: store._db.search_messages(RARE_WORD, limit=20)

    def callers(self, *, callers: int, sessions: int, seconds: float) -> float:
        store = self._store(self.folder("callers"))
        entries = [
            store.get_or_create_session(self._source(number))
            for number in range(callers * sessions)
        ]
        turns = Corpus().turns(50)
        done: list[int] = []

        def caller(number: int) -> None:
            own = itertools.cycle(entries[number * sessions : (number + 1) * sessions])
            count = 0
            while time.perf_counter() < end:
                _turn(store, next(own), turns[count % len(turns)])
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
        store = self._store(folder)
        text_size = 0
        corpus = Corpus()
        for number in range(max(1, turns // 50)):
            session_id = store.get_or_create_session(self._source(number)).session_id
            messages = [message for turn in corpus.turns(50) for message in turn]
            text_size += text_bytes(messages)
            store.rewrite_transcript(session_id, messages)
        store._db.close()
        return folder_bytes(folder) / text_size

    def _store(self, folder: Path) -> Any:
        self._state.DEFAULT_DB_PATH = folder / "state.db"
        return self._sessions.SessionStore(folder / "sessions", self._config.GatewayConfig())

    def _source(self, number: int) -> Any:
        return self._sessions.SessionSource(
            platform=self._config.Platform.TELEGRAM,
            chat_id=str(100_000 + number),
            user_id=str(number),
            user_name="Ada",
        )

    def _filled_folder(self, size: int) -> Path:
        """Return a folder with `size` sessions; create it at the first call."""
        folder = self.root / f"sessions-{size}"
        if not folder.exists():
            self._fill(folder, size)
        return folder

    def _fill(self, folder: Path, size: int) -> None:
        store = self._store(folder)
        entries = {}
        for number in range(size):
            entry = self._entry(number)
            store._db.create_session(
                entry.session_id,
                "telegram",
                user_id=entry.origin.user_id,
                session_key=entry.session_key,
                chat_id=entry.origin.chat_id,
                chat_type="dm",
            )
            entries[entry.session_key] = json.dumps(entry.to_dict())
        scope = str((folder / "sessions").resolve())
        store._db.replace_gateway_routing_entries(entries, scope=scope)
        store._db.close()

    def _entry(self, number: int) -> Any:
        source = self._source(number)
        now = datetime.now()
        return self._sessions.SessionEntry(
            session_key=self._sessions.build_session_key(source),
            session_id=f"{now:%Y%m%d_%H%M%S}_{number:08x}",
            created_at=now,
            updated_at=now,
            origin=source,
            platform=source.platform,
        )


def _turn(store: Any, entry: Any, turn: list[Message]) -> None:
    for message in turn:
        store.append_to_transcript(entry.session_id, message)
    store._db.update_token_counts(
        entry.session_id,
        input_tokens=812,
        output_tokens=64,
        model="gpt-5-mini",
        api_call_count=1,
    )
    store.update_session(entry.session_key, last_prompt_tokens=812)


def _shuffled(size: int) -> Any:
    order = list(range(size))
    random.Random(size).shuffle(order)
    return itertools.cycle(order)


if __name__ == "__main__":
    serve(Hermes)
