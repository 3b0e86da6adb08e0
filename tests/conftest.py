"""How hard the property tests try.

    default   a moderate number of new examples in every run
    ci        the same examples every time, so that a red build is about the change
    slow      many; `make slow` asks for it

`HYPOTHESIS_PROFILE=slow` chooses one by hand. Time limits are off, per example and for the drawing
of examples, because they measure the machine more than the code. No other health check is: where a
single test has to, it does so itself and says why.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg_pool.base
import pytest
from hypothesis import HealthCheck, settings

import tertulia
from tests.servers.postgres import Server, name_in, server

# A pool opens connections in a thread and draws their lifetimes from the global generator.
# Hypothesis takes that for a strategy that draws from it, so the pool gets its own generator.
setattr(psycopg_pool.base, "random", random.Random().random)  # noqa: B010

_TIMELESS = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.register_profile("default", _TIMELESS, max_examples=200, derandomize=False)
# Said in full, because Hypothesis brings a profile of this name, with more switched off.
settings.register_profile(
    "ci", _TIMELESS, max_examples=200, derandomize=True, database=None, print_blob=True
)
settings.register_profile("slow", _TIMELESS, max_examples=5_000, print_blob=True)

_CHOSEN = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
settings.load_profile(_CHOSEN)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real server, with a template that holds an empty store."""
    with server() as running:
        template = running.database()
        tertulia.open(template).close()
        running.template = name_in(template)
        yield running


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def new_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Gives the place of a new store at every call: for tests that need one for each example."""
    if request.param == "sqlite":
        return lambda: str(tmp_path_factory.mktemp("store") / "talk.db")
    running: Server = request.getfixturevalue("postgres")
    return lambda: running.database(running.template)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The place of a new store; the test runs once on each database."""
    if request.param == "sqlite":
        yield str(tmp_path / "talk.db")
        return
    running: Server = request.getfixturevalue("postgres")
    address = running.database(running.template)
    yield address
    running.drop(address)
