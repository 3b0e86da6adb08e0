"""Every promise of a store as a test, with two handles wherever two could race.

A store is tested with a subclass that opens a handle on it:

    class TestMyStore(StoreContract):
        def connect(self, folder: Path, settings: Settings, clock: FakeClock) -> Store:
            return my_store.open(folder / "talk.db", settings=settings, clock=clock)

Each test has its own database. Handles that are opened with the same `folder` use the same
database. The promises are in the `*_promises` modules of this package, one for each subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.core.settings import Settings
from tertulia.store import Store
from tertulia.testing.agent_choice_promises import AgentChoicePromises
from tertulia.testing.browser_promises import BrowserPromises
from tertulia.testing.database_promises import DatabasePromises
from tertulia.testing.deletion_promises import DeletionPromises
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import Handles
from tertulia.testing.inbox_promises import InboxPromises
from tertulia.testing.link_promises import LinkPromises
from tertulia.testing.memory_promises import MemoryPromises
from tertulia.testing.outbox_promises import OutboxPromises
from tertulia.testing.pairing_promises import PairingPromises
from tertulia.testing.process_promises import ProcessPromises
from tertulia.testing.queue_promises import QueuePromises
from tertulia.testing.queue_review_promises import QueueReviewPromises
from tertulia.testing.schedule_promises import SchedulePromises
from tertulia.testing.search_promises import SearchPromises
from tertulia.testing.session_expiry_promises import SessionExpiryPromises
from tertulia.testing.session_find_promises import SessionFindPromises
from tertulia.testing.session_promises import SessionPromises
from tertulia.testing.transcript_promises import TranscriptPromises
from tertulia.testing.transcript_window_promises import TranscriptWindowPromises
from tertulia.testing.turn_promises import TurnPromises
from tertulia.testing.usage_promises import UsagePromises


class StoreContract(
    DatabasePromises,
    SessionPromises,
    SessionExpiryPromises,
    SessionFindPromises,
    TranscriptPromises,
    TranscriptWindowPromises,
    TurnPromises,
    UsagePromises,
    SearchPromises,
    DeletionPromises,
    QueuePromises,
    InboxPromises,
    OutboxPromises,
    QueueReviewPromises,
    SchedulePromises,
    ProcessPromises,
    AgentChoicePromises,
    PairingPromises,
    BrowserPromises,
    LinkPromises,
    MemoryPromises,
):
    """The promises of `storage/base.py`, and those of the records on top of it."""

    settings = Settings(zone="UTC")

    def connect(self, folder: Path, settings: Settings, clock: FakeClock) -> Store:
        """Open a new handle on the database in `folder`, which is empty when a test begins."""
        raise NotImplementedError

    @pytest.fixture
    def handles(self, tmp_path: Path) -> Iterator[Handles]:
        handles = Handles(tmp_path, self.connect, self.settings)
        yield handles
        try:
            # After every test the store must be consistent.
            assert handles.open().check() == []
        finally:
            handles.close()

    @pytest.fixture
    def store(self, handles: Handles) -> Store:
        """Return the first handle."""
        return handles.open()

    @pytest.fixture
    def other(self, handles: Handles, store: Store) -> Store:
        """Return another handle on the same database, as another process would open it."""
        return handles.open()

    @pytest.fixture
    def clock(self, handles: Handles) -> FakeClock:
        """Return the clock of every handle."""
        return handles.clock
