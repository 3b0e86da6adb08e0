"""Calling operations from Python: the same values, rights and checks as over the network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from tertulia.errors import AccessDenied, ConfigError, NotFound
from tertulia.http.app import Api
from tertulia.http.auth import Caller
from tertulia.http.operations import BY_NAME, TABLE, call_operation
from tertulia.http.sessions import SessionList
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import ServedGateway, run_in, served_gateway

ROOT, ANA, BOB = Caller("root", "owner"), Caller("ana", "member"), Caller("bob", "member")
EVE = Caller("eve", "guest")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    path: Path = tmp_path_factory.mktemp("operations") / "talk.db"
    with served_gateway(path, adapters=[WebAdapter()]) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ana_session(server: ServedGateway) -> str:
    with server.client("ana") as client:
        body = {"text": "hola", "conversation": "anas"}
        return str(client.post("/turns", json=body).json()["session_id"])


def call(server: ServedGateway, name: str, caller: Caller, **inputs: Any) -> Any:
    api: Api = server.app.state.api
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    return run_in(server.loop, call_operation(api, name, caller, request, **inputs))


def test_value_is_what_the_json_is_written_from(server: ServedGateway, ana_session: str) -> None:
    page = call(server, "list_sessions", ROOT, query={"limit": "1", "state": "current"})
    assert isinstance(page, SessionList)
    with server.client("root") as client:
        response = client.get("/sessions", params={"limit": 1, "state": "current"})
    assert msgspec.json.decode(msgspec.json.encode(page)) == response.json()


def test_rights_are_checked(server: ServedGateway, ana_session: str) -> None:
    assert call(server, "get_session", ANA, path={"id": ana_session}).id == ana_session
    with pytest.raises(NotFound):
        call(server, "get_session", BOB, path={"id": ana_session})
    with pytest.raises(AccessDenied):
        call(server, "get_session", EVE, path={"id": ana_session})
    with pytest.raises(AccessDenied):
        call(server, "list_deliveries", ANA)


def test_texts_of_a_form_are_converted_and_checked(server: ServedGateway, ana_session: str) -> None:
    path = {"id": ana_session}
    assert call(server, "rename_session", ANA, path=path, body={"title": "Mine"}).title == "Mine"
    assert len(call(server, "read_transcript", ANA, path=path, query={"newest": "1"}).items) == 1
    with pytest.raises(ConfigError):
        call(server, "read_transcript", ANA, path=path, query={"newest": "many"})
    with pytest.raises(ConfigError):
        call(server, "rename_session", ANA, path=path)


def test_unknown_operation_is_refused(server: ServedGateway) -> None:
    with pytest.raises(ConfigError):
        call(server, "drop_everything", ROOT)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(TABLE)
