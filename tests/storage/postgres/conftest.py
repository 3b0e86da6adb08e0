"""Databases of a real server for the tests of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import Server, own_server


@pytest.fixture
def address(postgres: Server) -> Iterator[str]:
    """The address of an empty store."""
    address = postgres.database(postgres.template)
    yield address
    postgres.drop(address)


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that the tests of one module may stop and start."""
    with own_server() as server:
        yield server
