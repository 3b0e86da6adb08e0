"""The application: unknown paths, the served description, and the roles of tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import Source
from tertulia.agents.base import Event, Request, Step
from tertulia.http import Token
from tertulia.http.operations import TABLE
from tertulia.http.routing import describe_api
from tertulia.records.people import Role
from tests.gateway.running_gateway import Scripted
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


def test_refused_method_is_answered_with_the_methods_of_the_path(server: ServedGateway) -> None:
    with server.client() as client:
        for path, methods in (
            ("/schedules", "GET, HEAD, POST"),
            ("/schedules/1", "DELETE, GET, HEAD"),
            ("/sessions/x", "DELETE, GET, HEAD, PATCH"),
            ("/turns", "POST"),
        ):
            response = client.request("TRACE", path)
            assert (response.status_code, response.headers["Allow"]) == (405, methods)


@pytest.mark.parametrize(
    "address",
    ["/people?role=null", "/inbox?state=null", "/sessions?limit=NULL", "/usage?since=null"],
)
def test_null_is_no_value_of_a_filter(server: ServedGateway, address: str) -> None:
    with server.client() as client:
        response = client.get(address)
        assert client.get("/search?q=null").status_code == 200
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "config"


def test_ids_that_are_numbers_are_described_as_numbers(server: ServedGateway) -> None:
    """What the description calls a number is refused as one, and nothing else is."""
    numbers = [operation for operation in TABLE if "{id}" in operation.path and not operation.body]
    assert len(numbers) > 10
    with server.client() as client:
        for operation in numbers:
            path = operation.path.replace("{id}", "parrot").replace("{seq}", "1")
            response = client.request(operation.method, path.replace("{number}", "1"))
            assert ("is not the number of a" in response.text) == operation.has_number, path


def test_openapi_description_is_served(server: ServedGateway) -> None:
    with server.client(None) as client:
        description = client.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0"
    assert description == json.loads(json.dumps(describe_api(TABLE)))
    assert len(description["paths"]) > 20


def test_role_comes_from_the_token_and_an_approved_guest_is_a_member(tmp_path: Path) -> None:
    path, eve = tmp_path / "talk.db", Source("web", "", account="eve", user_id="eve")

    async def whoami(request: Request) -> AsyncGenerator[Event, None]:
        yield Step(" ".join(tool.name for tool in request.tools) or "nothing")

    def offered(role: Role) -> str:
        tokens = (Token(name="eve", secret=SECRETS["eve"], role=role),)
        with (
            served_gateway(path, agent=Scripted(whoami), tokens=tokens) as server,
            server.client("eve") as client,
        ):
            return str(client.post("/turns", json={"text": "hello"}).json()["text"])

    roles: tuple[Role, ...] = ("owner", "member", "guest")
    assert [offered(role) for role in roles] == ["schedule memory", "schedule memory", "nothing"]
    with tertulia.open(path) as store:
        # Nothing is stored that a later configuration could not take back.
        assert {person.role for person in store.people.find()} == {"guest"}
        code = store.people.request_pairing(eve)
        assert code is not None
        store.people.approve(code)
    assert offered("guest") == "nothing"  # the approval is for the page, not for the API


def test_role_of_a_token_cannot_be_set_in_the_store(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server, server.client("root") as root:
        root.post("/turns", json={"text": "hello"})
        response = root.put("/people/api:~root:root/role", json={"role": "guest"})
        assert response.status_code == 400
        assert "http.tokens" in response.text
