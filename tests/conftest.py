"""How many examples the property tests try, and the databases that tests run on.

    default   25, for `make test`
    check     50, for `make check`; 15 in CI, where they are the same in every run
    slow      5,000, for `make slow`

`HYPOTHESIS_PROFILE=slow` chooses one by hand. In CI (`CI` is set) the examples are the same in
every run, so that a red build is about the change. Time limits are off, per example and for the
drawing of examples, because they measure the machine more than the code. No other health check is:
where a single test has to, it does so itself and says why.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg_pool.base
import pytest
from hypothesis import HealthCheck, settings

import tertulia
from tests.servers.empty_stores import NewPlace, copy_new_stores, place_on
from tests.servers.postgres import Server, name_in, server

# A pool opens connections in a thread and draws their lifetimes from the global generator.
# Hypothesis takes that for a strategy that draws from it, so the pool gets its own generator.
setattr(psycopg_pool.base, "random", random.Random().random)  # noqa: B010

copy_new_stores()

_TIMELESS = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,), print_blob=True)
_EXAMPLES = {"default": 25, "check": 15 if os.environ.get("CI") else 50, "slow": 5_000}
_REPEATED = {"derandomize": True, "database": None} if os.environ.get("CI") else {}
for _name, _examples in _EXAMPLES.items():
    settings.register_profile(_name, _TIMELESS, max_examples=_examples, **_REPEATED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real server, with a template that holds an empty store."""
    with server() as running:
        template = running.database()
        tertulia.open(template).close()
        running.template = name_in(template)
        yield running


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def new_place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewPlace:
    """Gives the place of a new store for a block: for tests that need one for each example."""
    if request.param == "sqlite":
        return lambda: nullcontext(str(tmp_path_factory.mktemp("store") / "talk.db"))
    running: Server = request.getfixturevalue("postgres")
    return running.empty_store


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The place of a new store; the test runs once on each database."""
    with place_on(request.param, request) as place:
        yield place


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the modules that `make test` leaves out as a whole: some take long."""
    if not config.option.markexpr.startswith("not check") or collection_path.suffix != ".py":
        return None
    is_left_out = "\npytestmark = pytest.mark.check\n" in collection_path.read_text("utf-8")
    return is_left_out or None
