"""The session lease that one run of an SDK holds."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import cast

import pytest

from tertulia import IllegalMove, SessionBusy, Store
from tertulia.aio.turn import TurnControl
from tertulia.integrations import run_lease
from tertulia.integrations.run_lease import HeldTurn, RunLease
from tertulia.integrations.store_access import unwrap_store
from tests.records.store_inspection import ANA, open_apart

pytestmark = pytest.mark.check


class Owner:
    """An object that lives as long as a run."""


def make_lease(store: Store, session_id: str | None = None) -> RunLease:
    return RunLease(*unwrap_store(store), ANA, session_id=session_id, wait=0)


def is_free(store: Store) -> bool:
    with open_apart(Path(store.path)) as other:
        try:
            with other.turn(ANA, "free?", wait=0) as turn:
                turn.add_assistant("yes")
        except SessionBusy:
            return False
    return True


def test_an_owner_keeps_its_turn_until_it_is_released(store: Store) -> None:
    async def run() -> None:
        lease, owner = make_lease(store), Owner()
        assert lease.get_turn(owner) is None
        turn = await lease.claim(owner)
        assert await lease.claim(owner) is turn
        assert lease.get_turn(owner) is turn
        assert not is_free(store)
        await lease.release(turn)
        assert is_free(store)
        assert run_lease._held_turns == {}

    asyncio.run(run())


def test_turn_claimed_while_another_is_removed_stays_held(store: Store) -> None:
    """Lease renewal removes turns in its own thread; here a run begins in the middle of that."""
    lease, owner = make_lease(store), Owner()
    conversation = lease._conversation

    async def hold() -> HeldTurn:
        return HeldTurn(conversation, cast(TurnControl, None), owner)

    class Interrupted(list[HeldTurn]):
        def __bool__(self) -> bool:
            result = len(self) > 0
            if beginning.ident is None:
                beginning.start()
                beginning.join(timeout=0.5)  # as far as it comes; it may have to wait for us
            return result

    beginning = threading.Thread(target=lambda: asyncio.run(hold()))
    ended = asyncio.run(hold())
    run_lease._held_turns[conversation] = Interrupted([ended])
    ended.remove()
    beginning.join()
    ((held_turn,),) = run_lease._held_turns.values()
    assert held_turn.is_owned_by(owner)
    held_turn.remove()
    assert run_lease._held_turns == {}


def test_another_task_is_refused_while_a_run_goes_on(store: Store) -> None:
    async def run() -> None:
        lease, owner = make_lease(store), Owner()
        turn = await lease.claim(owner)
        with pytest.raises(SessionBusy):
            await asyncio.create_task(lease.claim(Owner()))
        await lease.release(turn)

    asyncio.run(run())


def test_the_next_run_of_a_task_ends_the_one_before(store: Store) -> None:
    async def run() -> None:
        lease, first, second = make_lease(store), Owner(), Owner()
        await lease.claim(first)
        turn = await lease.claim(second)
        assert lease.get_turn(first) is None
        await lease.release(turn)

    asyncio.run(run())


def test_a_collected_owner_stops_renewal_and_releases_the_lease(store: Store) -> None:
    async def run() -> None:
        lease, owner = make_lease(store), Owner()
        await lease.claim(owner)
        ((held_turn,),) = run_lease._held_turns.values()
        assert not held_turn.is_given_up()
        del owner
        gc.collect()
        assert held_turn.is_given_up()
        assert is_free(store)

    asyncio.run(run())


def test_an_owner_can_be_released_without_waiting(store: Store) -> None:
    async def run() -> None:
        lease, owner = make_lease(store), Owner()
        await lease.claim(owner)
        lease.release_owner(owner)
        lease.release_owner(owner)
        assert is_free(store)

    asyncio.run(run())


def test_an_ended_session_is_refused_with_a_hint_to_resume_it(store: Store) -> None:
    ended = store.sessions.open(ANA)
    store.sessions.reset(ended.key)

    async def run() -> None:
        with pytest.raises(IllegalMove, match=r"sessions\.switch"):
            await make_lease(store, ended.id).begin()
        assert is_free(store)

    asyncio.run(run())
