"""How many examples the property tests try, the databases and the folder that tests run on.

    default   25, for `make test`
    check     50, for `make check`; 15 in CI, where they are the same in every run
    slow      5,000, for `make slow`

`HYPOTHESIS_PROFILE=slow` chooses one by hand. In CI (`CI` is set) the examples are the same in
every run, so that a red build is about the change. Time limits are off, per example and for the
drawing of examples, because they measure the machine more than the code. No other health check is:
where a single test has to, it does so itself and says why.
"""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import psycopg_pool.base
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import tertulia
from tests.servers.empty_stores import NewPlace, copy_new_stores, place_on
from tests.servers.postgres import Server, name_in, server

# A pool opens connections in a thread and draws their lifetimes from the global generator.
# Hypothesis takes that for a strategy that draws from it, so the pool gets its own generator.
setattr(psycopg_pool.base, "random", random.Random().random)  # noqa: B010

copy_new_stores()

# Modules and tests live until the end: the collector would only look through them again and again.
# What the tests themselves leave is collected as usual.
gc.disable()

# A store in memory waits for no disk: a test synchronises its files ten times on average. What is
# proved stays the same, since tests kill processes and not machines.
_MEMORY, _ENOUGH_MEMORY = "/dev/shm", 2 << 30
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free > _ENOUGH_MEMORY
):
    os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY

_TIMELESS = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow,), print_blob=True)
_EXAMPLES = {"default": 25, "check": 15 if os.environ.get("CI") else 50, "slow": 5_000}
_REPEATED = {"derandomize": True, "database": None} if os.environ.get("CI") else {}
for _name, _examples in _EXAMPLES.items():
    settings.register_profile(_name, _TIMELESS, max_examples=_examples, **_REPEATED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")

_CONFTEST = Path(__file__)
_ROOT = _CONFTEST.parents[1]
_LONG_MARK = re.compile(r"pytest\.mark\.(check|examples)|\bhypothesis\b")
_TEST_IMPORT = re.compile(r"^from (tests[.\w]+) import", re.MULTILINE)


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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave the modules and the tests themselves out of every garbage collection."""
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the property tests before Hypothesis reads every module for constants to try."""
    if "not hypothesis" in config.option.markexpr:
        kept: list[pytest.Item] = []
        deselected: list[pytest.Item] = []
        for item in items:
            is_property = is_hypothesis_test(getattr(item, "obj", None))
            (deselected if is_property else kept).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=deselected)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules of which no test is selected: to collect a module takes long."""
    selected = config.option.markexpr
    if collection_path.suffix != ".py":
        return None
    if selected.startswith("not check"):
        return "\npytestmark = pytest.mark.check\n" in collection_path.read_text("utf-8") or None
    if selected.startswith("(check or examples or hypothesis)"):
        return not _may_be_long(collection_path) or None
    return None


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Stop if `make check` would not find a test that `make test` leaves out."""
    for item in items:
        is_long = any(item.get_closest_marker(mark) for mark in ("check", "examples", "hypothesis"))
        if is_long and not _may_be_long(item.path):
            raise pytest.UsageError(
                f"`make check` leaves {item.nodeid} out: write its mark into the module, into a"
                " module of tests/ that it imports, or into the conftest.py of its folder."
            )


@cache
def _may_be_long(path: Path) -> bool:
    """Return whether a module may have tests for `make check`, judged by its text."""
    modules, seen = [path, path.with_name("conftest.py")], {_CONFTEST}
    while modules:
        module = modules.pop()
        if module in seen or not module.is_file():
            continue
        seen.add(module)
        text = module.read_text("utf-8")
        if _LONG_MARK.search(text):
            return True
        modules += [_ROOT / f"{name.replace('.', '/')}.py" for name in _TEST_IMPORT.findall(text)]
    return False
