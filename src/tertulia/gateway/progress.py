"""The progress of turns as people see it: "typing", drafts of the answer, tools.

This module owns every timer of it. A ticker ends with its turn, and after ten minutes at most:
a turn that hangs does not type for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Literal

from tertulia.core.source import Source
from tertulia.core.text.text_buffer import TextBuffer
from tertulia.platforms.base import Adapter, StreamUpdate

log = logging.getLogger("tertulia.gateway")

LONGEST_SECONDS = 600.0
# A call of `show` that takes longer is given up: it must not delay the answer.
_SHOW_SECONDS = 10.0

Kind = Literal["began", "typing", "notice", "thought", "delta", "draft", "tool", "result", "ended"]


class TurnProgress:
    """Shows the progress of one turn, if its adapter can.

    `draft_id` is the platform's id of a draft that stays in the chat; the answer replaces it.
    """

    def __init__(
        self,
        adapter: Adapter | None,
        source: Source,
        turn: str,
        *,
        message_id: str | None = None,
        streams: bool = True,
        is_retry: bool = False,
    ) -> None:
        # Most events are deltas: skip per-token calls for adapters that do not override `show()`.
        shows = adapter is not None and type(adapter).show is not Adapter.show
        self._adapter = adapter if shows else None
        self._source = source
        self._turn = turn
        self._message_id = message_id
        self._streams = streams
        self._is_retry = is_retry
        self._text = TextBuffer()
        self._drafted = ""
        self._has_news = asyncio.Event()
        self._lock = asyncio.Lock()
        self.draft_id: str | None = None

    @property
    def is_visible(self) -> bool:
        """Return whether the adapter shows anything."""
        return self._adapter is not None

    @property
    def shows_text(self) -> bool:
        """Return whether the answer is shown while it is written."""
        return self._adapter is not None and self._streams

    @property
    def shows_thoughts(self) -> bool:
        """Return whether the reasoning of the model is shown while it is written."""
        return self._adapter is not None and self._adapter.shows_thoughts

    def shown(self) -> AbstractAsyncContextManager[None]:
        """Show the turn while the block runs."""
        return self._shown() if self.is_visible else nullcontext()

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        self.draft_id = await self.show("began")
        ticker = asyncio.create_task(self._tick()) if self._needs_ticker() else None
        try:
            yield
        finally:
            if ticker is not None:
                ticker.cancel()
                await asyncio.gather(ticker, return_exceptions=True)
            await self.show("ended")

    async def add(self, text: str) -> None:
        """Show a piece of the answer, at once or with the next draft."""
        adapter = self._adapter
        if adapter is None or not self._streams:
            return
        if adapter.draft_seconds is None:
            await self.show("delta", text)
        else:
            self._text.append(text)
            self._has_news.set()

    async def end_step(self) -> None:
        """Forget the text of a step that is stored: what follows is another text."""
        self._text.clear()
        self._drafted = ""
        self._has_news.clear()

    async def tool(self, name: str) -> None:
        """Show that a tool is called."""
        await self.show("tool", name)

    async def last_draft(self) -> str | None:
        """Stop drafting, and return the id of the draft that the answer has to replace."""
        self._streams = False
        async with self._lock:
            return self.draft_id

    def _needs_ticker(self) -> bool:
        adapter = self._adapter
        return adapter is not None and (
            adapter.typing_seconds is not None or adapter.draft_seconds is not None
        )

    async def _tick(self) -> None:
        adapter = self._adapter
        assert adapter is not None
        ends = time.monotonic() + LONGEST_SECONDS
        typing, drafting = adapter.typing_seconds, adapter.draft_seconds
        next_typing = time.monotonic() + (typing or LONGEST_SECONDS)
        while (now := time.monotonic()) < ends:
            try:
                async with asyncio.timeout(max(0.0, min(next_typing, ends) - now)):
                    await self._has_news.wait()
                if not self._drafted and self.draft_id is None:
                    await asyncio.sleep(adapter.draft_delay_seconds)
                self._has_news.clear()
                await self._draft()
                # The platform's limit; what is written meanwhile is in the next draft.
                await asyncio.sleep(drafting or 0)
            except TimeoutError:
                if typing is not None:
                    await self.show("typing")
                    next_typing = time.monotonic() + typing

    async def _draft(self) -> None:
        async with self._lock:
            text = str(self._text)
            if self._streams and text.strip() and text != self._drafted:
                self._drafted = text
                shown_id = await self.show("draft", text)
                self.draft_id = shown_id or self.draft_id

    async def show(self, kind: Kind, text: str = "", detail: str = "") -> str | None:
        """Show one update; a failure is logged and costs nothing else."""
        if self._adapter is None:
            return None
        update = StreamUpdate(
            kind=kind, turn=self._turn, text=text, detail=detail, message_id=self._message_id,
            is_retry=self._is_retry,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SHOW_SECONDS):
                return await self._adapter.show(self._source, update)
        except TimeoutError:
            log.warning("%s did not show the progress of a turn in time", self._adapter.name)
        except Exception:
            # A bug in an adapter must not cost the answer; the update may be missed.
            log.exception("the adapter of %s has a bug, update skipped", self._adapter.name)
        return None
