"""The stream that keeps an open page up to date.

It sends state, not events: at each look the page is loaded again, and what differs from what the
browser has is sent. The id of an event has the digests of all parts, so a browser that connects
again, to any node, gets exactly what changed meanwhile (decision 0022).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tertulia.console.page_definition import LoadedPage, changed_parts, digest_of, partials
from tertulia.errors import Error

_LOOK_SECONDS: Final = 2.0
_STEPS: Final = 8
_STILL_SECONDS: Final = 15.0
MAX_ROWS: Final = 300

Load = Callable[[], Awaitable[LoadedPage]]


def format_html(html: str, *, name: str | None = None, id: str | None = None) -> bytes:
    """Return one event whose data is HTML of any number of lines."""
    head = (f"id: {id}\n" if id is not None else "") + (f"event: {name}\n" if name else "")
    lines = "".join(f"data: {line}\n" for line in html.split("\n"))
    return f"{head}{lines}\n".encode("utf-8", "replace")


async def live_events(
    load: Load,
    rows: Sequence[str],
    since: str,
    shared: Mapping[str, Any],
    *,
    is_draining: Callable[[], bool],
) -> AsyncGenerator[bytes, None]:
    """Yield the changed parts of a page, and every 15 seconds a sign of life.

    `load` loads the page anew, with the rights of the browser as of then. When those have ended,
    the stream ends with the event `failed`, whose data is the code of the error.
    """
    last, quiet = since, 0.0
    yield format_html("", name="still")
    while not is_draining():
        try:
            page = await load()
        except Error as problem:
            yield format_html(problem.code, name="failed")
            return
        parts = page.fragments(rows, shared)
        changes = changed_parts(parts, last)
        if changes:
            last, quiet = digest_of(parts), 0.0
            yield format_html(partials(changes), id=last)
        for _ in range(_STEPS):  # a server that stops waits for its streams
            await asyncio.sleep(_LOOK_SECONDS / _STEPS)
            if is_draining():
                return
        quiet += _LOOK_SECONDS
        if quiet >= _STILL_SECONDS:
            quiet = 0.0
            yield format_html("", name="still")
