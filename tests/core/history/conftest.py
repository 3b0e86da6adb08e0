"""A transcript whose history must be legal in every format at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tertulia
from tertulia import Settings, Source, Store
from tertulia.records.transcript.transcript import Transcript
from tertulia.testing import FakeClock
from tests.core.history.messages import FORMATS
from tests.legality.validators import faults

OPTIONS = Settings(zone="UTC", durability="fast", group_sessions_per_user=False)


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with tertulia.open(where, settings=OPTIONS, clock=FakeClock()) as store:
        yield store


@pytest.fixture
def transcript(store: Store) -> Iterator[Transcript]:
    session = store.sessions.open(Source("telegram", "42", user_id="42"))
    transcript = store.transcript(session.id)
    yield transcript
    for form in FORMATS:
        assert faults(form, transcript.history(format=form)) == []  # type: ignore[arg-type]
