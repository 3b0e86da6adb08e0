"""The stream that keeps an open page up to date.

It sends state, not events: when the store has changed the page is loaded again, and what differs
from what the browser has is sent. The id of an event has the digests of all parts, so a browser
that connects again, to any node, gets exactly what changed meanwhile (decision 0022).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tertulia.console.change_watch import ChangeWatch, PageKey
from tertulia.console.page_definition import LoadedPage, changed_parts, digest_of, partials
from tertulia.errors import Error, StoreUnavailable
from tertulia.http.auth import Caller

log = logging.getLogger("tertulia.console")

_BETWEEN_SECONDS: Final = 1.0  # between two loads of a page
_STILL_SECONDS: Final = 15.0
MAX_ROWS: Final = 300


class LivePage(NamedTuple):
    """An open page. `check` returns whose browser it is, now; `load` loads the page for them.

    It is loaded when the store has changed, and after `ages` seconds all the same. `load_counts`
    loads the numbers in its navigation, by the id of the element.
    """

    address: str
    rows: Sequence[str]
    shared: Mapping[str, Any]
    ages: float
    check: Callable[[], Awaitable[Caller]]
    load: Callable[[Caller], Awaitable[LoadedPage]]
    load_counts: Callable[[Caller], Awaitable[dict[str, str]]]


def format_html(html: str, *, name: str | None = None, id: str | None = None) -> bytes:
    """Return one event whose data is HTML of any number of lines."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {name}\n" if name else "")
    lines = "".join(f"data: {line}\n" for line in html.split("\n"))
    return f"{head}{lines}\n".encode("utf-8", "replace")


async def live_events(
    page: LivePage, caller: Caller, watch: ChangeWatch, since: str
) -> AsyncGenerator[bytes, None]:
    """Yield the changed parts of a page, and every 15 seconds a sign of life.

    Before and after each load, and at each sign of life, the rights of the browser are checked.
    When they have ended, the stream ends with the event `failed`, whose data is the code of the
    error. When the store cannot be read it just ends: the browser tells so, and connects again.
    """
    key: PageKey = (caller.name, caller.role, page.address)
    yield format_html("", name="still")
    with watch.open(key):
        try:
            # Another tab may have loaded the page before the change that this one was told of.
            await watch.look()
            async for event in _events(page, key, watch, since):
                yield event
        except StoreUnavailable as problem:
            log.debug("a page could not be loaded, its browser connects again: %s", problem)
        except Error as problem:
            yield format_html(problem.code, name="failed")


async def _events(
    page: LivePage, key: PageKey, watch: ChangeWatch, since: str
) -> AsyncGenerator[bytes, None]:
    clock = asyncio.get_running_loop().time
    last, still_at, is_aged = since, clock() + _STILL_SECONDS, False
    counts: dict[str, str] = {}
    while not watch.is_draining:
        changes, began = watch.changes, clock()
        caller = await page.check()
        if not _has_rights_of(caller, key):
            return  # the browser connects again, with its new rights
        loaded = await watch.load(key, partial(_load, page, caller), is_aged=is_aged)
        parts = loaded.fragments(page.rows, page.shared)
        before, counts = counts, await watch.count(key, partial(page.load_counts, caller))
        # Both may have waited for other pages: who lost their rights meanwhile sees nothing new.
        if not _has_rights_of(await page.check(), key):
            return
        different = changed_parts(parts, last)
        different |= dict(counts.items() - before.items())
        if different:
            last = digest_of(parts)
            yield format_html(partials(different), id=last)
        await watch.pause(began + _BETWEEN_SECONDS - clock())
        aged_at, is_changed = began + page.ages, False
        while not is_changed and clock() < aged_at:
            is_changed = await watch.wait(changes, min(still_at, aged_at) - clock())
            if clock() >= still_at:
                yield format_html("", name="still")
                still_at = clock() + _STILL_SECONDS
                if not _has_rights_of(await page.check(), key):
                    return
        is_aged = not is_changed


def _has_rights_of(caller: Caller, key: PageKey) -> bool:
    """Return whether a browser still has the rights with which it opened the page."""
    return (caller.name, caller.role) == key[:2]


async def _load(page: LivePage, caller: Caller) -> LoadedPage:
    """Load a page and write its parts: both count for the rest after it."""
    loaded = await page.load(caller)
    loaded.fragments(page.rows, page.shared)
    return loaded
