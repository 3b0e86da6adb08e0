"""The promises of an adapter, kept by the terminal adapter with a pipe."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from tertulia.core.source import Source
from tertulia.errors import StoreUnavailable
from tertulia.platforms.base import Incoming, Receive, Update
from tertulia.platforms.terminal.adapter import TerminalAdapter
from tertulia.testing.adapter_contract import AdapterContract, AdapterFixture, wait_until


class WatchedTerminal(TerminalAdapter):
    """Notes the messages that were taken: a pipe is told nothing."""

    def __init__(self, stdin: io.TextIOWrapper, stdout: io.StringIO) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.taken: list[str | None] = []

    async def listen(self, receive: Receive) -> None:
        async def watched(update: Update) -> None:
            await receive(update)
            assert isinstance(update, Incoming)
            self.taken.append(update.text)

        await super().listen(watched)


class PipeScene(AdapterFixture):
    chat = Source.local().chat_id
    names_people = False

    def __init__(self, stdin: io.TextIOWrapper, writer: io.TextIOWrapper) -> None:
        self._writer = writer
        self._out = io.StringIO()
        self.adapter = self.watched = WatchedTerminal(stdin, self._out)

    async def write(self, text: str, message_id: str) -> bool:
        count = self.watched.taken.count(text)
        # A line that ends in a backslash goes on in the next one.
        line = text.replace("\n", "\\\n")
        self._writer.write(f"{line}\n")
        self._writer.flush()
        await wait_until(lambda: self.watched.taken.count(text) > count)
        return True

    async def arrived(self, count: int) -> list[str]:
        texts: list[str] = []

        def is_complete() -> bool:
            texts[:] = self._out.getvalue().split("\n\n")[:-1]
            return len(texts) >= count

        await wait_until(is_complete)
        return texts


@contextmanager
def pipe() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Yield both ends of a pipe; the thread that reads ends with the input."""
    read_end, write_end = os.pipe()
    with open(read_end, encoding="utf-8") as stdin, open(write_end, "w", encoding="utf-8") as out:
        yield stdin, out
        out.close()


class TestPipe(AdapterContract):
    @asynccontextmanager
    async def scene(self) -> AsyncIterator[AdapterFixture]:
        with pipe() as (stdin, writer):
            yield PipeScene(stdin, writer)

    def test_a_rejected_message_is_not_acknowledged(self) -> None:
        """Nobody repeats a line of a pipe: the program ends with the problem, and says so."""

        async def reject(update: Update) -> None:
            raise StoreUnavailable("The store is locked.", hint="Try again.")

        async def run() -> None:
            out = io.StringIO()
            adapter = TerminalAdapter(stdin=io.StringIO("one\ntwo\n"), stdout=out)
            async with asyncio.timeout(60):
                with pytest.raises(StoreUnavailable):
                    await adapter.listen(reject)
            assert isinstance(adapter.problem, StoreUnavailable)
            assert not adapter.state.listening

        asyncio.run(run())
