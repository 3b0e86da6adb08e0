"""The stream of an open page ends with the rights of its browser, also while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from tertulia.console import live_stream
from tertulia.console.change_watch import ChangeWatch
from tertulia.console.live_stream import LivePage, live_events
from tertulia.console.page_definition import LoadedPage
from tertulia.errors import Error, NotFound, StoreUnavailable
from tertulia.http.auth import Caller, Unauthorized

ROOT = Caller("root", "owner")


class EmptyPage(LoadedPage):
    """A page without parts."""

    def __init__(self) -> None:
        pass

    def fragments(self, rows: Sequence[str], shared: Mapping[str, Any]) -> dict[str, str]:
        return {}


async def no_changes() -> int:
    return 0


async def no_counts(caller: Caller) -> dict[str, str]:
    return {}


async def load(caller: Caller) -> LoadedPage:
    return EmptyPage()


async def events_of(
    check: Callable[[], Awaitable[Caller]], load: Callable[[Caller], Awaitable[LoadedPage]]
) -> list[bytes]:
    """Return all events of a stream, until it ends."""
    page = LivePage(
        address="/console/", rows=(), shared={}, ages=3600.0, check=check, load=load,
        load_counts=no_counts,
    )  # fmt: skip
    watch = ChangeWatch(no_changes, lambda: False)
    async with asyncio.timeout(60):
        return [event async for event in live_events(page, ROOT, watch, "")]


@pytest.mark.parametrize("ending", ["expired", "demoted"])
def test_rights_are_checked_at_each_sign_of_life(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes in the store when a cookie expires."""
    monkeypatch.setattr(live_stream, "_BETWEEN_SECONDS", 0.0)
    monkeypatch.setattr(live_stream, "_STILL_SECONDS", 0.02)
    checks = 0

    async def check() -> Caller:
        nonlocal checks
        checks += 1
        if checks < 5:
            return ROOT
        if ending == "expired":
            raise Unauthorized("This browser is not signed in.")
        return Caller("root", "guest")

    events = asyncio.run(events_of(check, load))
    assert events[:2] == [b"event: still\ndata: \n\n"] * 2
    if ending == "expired":
        assert events[-1] == b"event: failed\ndata: unauthorized\n\n"
    else:
        assert b"failed" not in events[-1]  # the browser connects again, with its new rights


class FullPage(EmptyPage):
    """A loaded page with something that not everybody may see."""

    def fragments(self, rows: Sequence[str], shared: Mapping[str, Any]) -> dict[str, str]:
        return {"live_list": "what was written after they signed out"}


def test_who_signs_out_while_the_page_is_loaded_sees_nothing_new() -> None:
    """A load may wait for those of other pages."""
    is_signed_out = False

    async def check() -> Caller:
        if is_signed_out:
            raise Unauthorized("This browser is not signed in.")
        return ROOT

    async def wait_and_load(caller: Caller) -> LoadedPage:
        nonlocal is_signed_out
        is_signed_out = True
        return FullPage()

    events = asyncio.run(events_of(check, wait_and_load))
    assert b"written" not in b"".join(events)
    assert events[-1] == b"event: failed\ndata: unauthorized\n\n"


@pytest.mark.parametrize("problem", [StoreUnavailable("The database is away."), NotFound("Gone.")])
def test_a_browser_connects_again_if_the_store_was_away(problem: Error) -> None:
    async def check() -> Caller:
        return ROOT

    async def fail(caller: Caller) -> LoadedPage:
        raise problem

    has_ended = b"event: failed" in b"".join(asyncio.run(events_of(check, fail)))
    assert has_ended == isinstance(problem, NotFound)
