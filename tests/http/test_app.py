"""The application: unknown paths, the served description, and the roles of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Source
from tertulia.http import Token
from tertulia.http.app import TABLE
from tertulia.http.routing import describe_api
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import SECRETS, ServedGateway, served_gateway


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("app") / "talk.db") as gateway:
        yield gateway


@pytest.mark.parametrize("path", ["/nothing", "/sessions/x/y/z", "/v1", "/%ff%fe", "/sessions/%00"])
def test_unknown_path_is_not_found(server: ServedGateway, path: str) -> None:
    with server.client() as client:
        response = client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_no_cors_headers_are_sent(server: ServedGateway) -> None:
    with server.client() as client:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        preflight = client.options("/turns", headers=headers)
        assert preflight.status_code == 405
        post = client.post("/turns", json={"text": "hola"}, headers=headers)
    for response in (preflight, post):
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_openapi_description_is_served(server: ServedGateway) -> None:
    with server.client(None) as client:
        description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    assert description == json.loads(json.dumps(describe_api(TABLE)))
    assert len(description["paths"]) > 20


def test_approved_guest_keeps_role_until_token_role_changes(tmp_path: Path) -> None:
    path, eve = tmp_path / "talk.db", Source("web", "", account="eve", user_id="eve")

    def role_after(tokens: tuple[Token, ...], *paths: str) -> str:
        with (
            served_gateway(path, adapters=[WebAdapter()], tokens=tokens) as server,
            server.client("eve") as client,
        ):
            for url_path in paths:
                assert client.post(url_path, json={"text": "hello"}).is_success
        with server.store() as store:
            return store.people.role_of(eve)

    guest = (Token(name="eve", secret=SECRETS["eve"], role="guest"),)
    member = (Token(name="eve", secret=SECRETS["eve"], role="member"),)
    assert role_after(guest, "/web/den/messages") == "guest"
    with tertulia.open(path) as store:
        code = store.people.request_pairing(eve)
        assert code is not None
        store.people.approve(code)
    assert role_after(guest, "/web/den/messages", "/turns") == "member"
    assert role_after(member, "/turns") == "member"
    # The token has lost a role: its person loses it on every platform.
    assert role_after(guest, "/turns", "/web/den/messages") == "guest"
