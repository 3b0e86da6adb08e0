"""Every promise of a store as a test, with two handles wherever two could race.

A store proves itself by a subclass that says how a handle on it is opened:

    class TestMyStore(StoreContract):
        def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
            return my_store.open(place / "talk.db", settings=settings, clock=clock)

Each test has a database of its own. Handles that were opened with the same `place` are on the same
one. The promises themselves stand in the modules beside this one, by what they are about.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.core.settings import Settings
from tertulia.store import Store
from tertulia.testing.clock import FakeClock
from tertulia.testing.database_promises import DatabasePromises
from tertulia.testing.deletion_promises import DeletionPromises
from tertulia.testing.fixtures import Handles
from tertulia.testing.inbox_promises import InboxPromises
from tertulia.testing.outbox_promises import OutboxPromises
from tertulia.testing.process_promises import ProcessPromises
from tertulia.testing.schedule_promises import SchedulePromises
from tertulia.testing.search_promises import SearchPromises
from tertulia.testing.session_expiry_promises import SessionExpiryPromises
from tertulia.testing.session_find_promises import SessionFindPromises
from tertulia.testing.session_promises import SessionPromises
from tertulia.testing.transcript_promises import TranscriptPromises
from tertulia.testing.usage_promises import UsagePromises


class StoreContract(
    DatabasePromises,
    SessionPromises,
    SessionExpiryPromises,
    SessionFindPromises,
    TranscriptPromises,
    UsagePromises,
    SearchPromises,
    DeletionPromises,
    InboxPromises,
    OutboxPromises,
    SchedulePromises,
    ProcessPromises,
):
    """What `storage/base.py` promises, and what the records promise on top of it."""

    settings = Settings(zone="UTC")

    def connect(self, place: Path, settings: Settings, clock: FakeClock) -> Store:
        """A new handle on the database at `place`, an empty folder when a test begins."""
        raise NotImplementedError

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[Handles]:
        stage = Handles(tmp_path, self.connect, self.settings)
        yield stage
        # Whatever a test did to it, it leaves a sound store.
        assert stage.open().check() == []
        stage.close()

    @pytest.fixture
    def store(self, stage: Handles) -> Store:
        """The first handle."""
        return stage.open()

    @pytest.fixture
    def other(self, stage: Handles, store: Store) -> Store:
        """Another handle on the same database, as another process would have it."""
        return stage.open()

    @pytest.fixture
    def clock(self, stage: Handles) -> FakeClock:
        """The clock of every handle."""
        return stage.clock
