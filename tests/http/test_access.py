"""Who may do what: every operation is walked with every kind of token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import tertulia
from tertulia import Source
from tertulia.errors import AccessDenied, ConfigError
from tertulia.http import HttpSettings, Token
from tertulia.http.app import TABLE
from tertulia.http.auth import (
    Authenticator,
    TooManyRequests,
    Unauthorized,
)
from tertulia.http.routing import Operation
from tertulia.platforms.web import WebAdapter
from tests.http.scene import SECRETS, ServedGateway, served_gateway

SECRET_WORD = "swordfish"
# What a request needs besides its token, so that it would succeed for the right one.
BODIES: dict[str, Any] = {
    "rename_session": {"title": "mine now"},
    "end_session": {},
    "fork_session": {},
    "settle_delivery": {"outcome": "sent"},
    "set_role": {"role": "owner"},
    "approve_pairing": {"code": "ABCDEFGH"},
    "say": {"text": "history", "conversation": "anas"},
    "complete_chat": {"messages": [{"role": "user", "content": "history"}], "user": "anas"},
    "create_response": {"input": "history", "conversation": "anas"},
    "post_message": {"text": "/history"},
    "create_schedule": {"when": "every 2h", "task": "look at the mail"},
}
QUERIES: dict[str, dict[str, str]] = {
    "search_messages": {"q": SECRET_WORD},
    "sum_usage": {"by": "person"},
}
OPEN = {"check_health", "check_readiness", "take_webhook"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    path = tmp_path_factory.mktemp("access") / "talk.db"
    with served_gateway(path, adapters=[WebAdapter()], stream_seconds=0.5) as found:
        yield found


@pytest.fixture(scope="module")
def anas(here: ServedGateway) -> str:
    """A session of Ana's with a secret in it."""
    with here.client("ana") as client:
        said = {"text": f"the password is {SECRET_WORD}", "conversation": "anas"}
        session: str = client.post("/turns", json=said).json()["session_id"]
    return session


def ask(client: httpx2.Client, one: Operation, session_id: str) -> httpx2.Response:
    path = one.path.format(id=session_id, person="api:~ana:ana", chat="anas")
    params = QUERIES.get(one.name)
    body = BODIES.get(one.name)
    return client.request(one.method, path, params=params, json=body)


@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_without_a_token_nothing_is_told(here: ServedGateway, anas: str, one: Operation) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp4"}):
        with here.client(None, headers=headers) as client:
            found = ask(client, one, anas)
        assert SECRET_WORD not in found.text
        if one.name not in OPEN:
            assert found.status_code == 401
            assert found.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["bob", "eve"])
@pytest.mark.parametrize("one", TABLE, ids=lambda one: one.name)
def test_another_persons_sessions_are_not_there(
    here: ServedGateway, anas: str, one: Operation, name: str
) -> None:
    with here.client("root") as root:
        before = root.get(f"/sessions/{anas}").json()
        seen = root.get(f"/sessions/{anas}/transcript").text
    with here.client(name) as client:
        found = ask(client, one, anas)
    assert SECRET_WORD not in found.text
    assert "api:~ana:ana" not in found.text
    if one.path.startswith("/sessions/"):
        assert found.status_code == (404 if name == "bob" else 403)
    elif one.role == "owner" or (name == "eve" and one.role == "member"):
        assert found.status_code == 403
    with here.client("root") as root:
        assert root.get(f"/sessions/{anas}").json() == before
        assert root.get(f"/sessions/{anas}/transcript").text == seen


@pytest.mark.parametrize("key", ["key", "person"])
@pytest.mark.parametrize("path", ["/sessions", "/search"])
def test_filters_do_not_lead_to_others(here: ServedGateway, anas: str, path: str, key: str) -> None:
    value = {"key": "agent:main:api:ana:dm:anas", "person": "api:~ana:ana"}[key]
    with here.client("bob") as client:
        found = client.get(path, params={"q": SECRET_WORD, key: value})
    assert found.status_code == 403
    assert SECRET_WORD not in found.text


def test_a_person_sees_their_own(here: ServedGateway, anas: str) -> None:
    with here.client("ana") as client:
        listed = client.get("/sessions").json()["items"]
        assert [one["id"] for one in listed] == [anas]
        assert client.get("/search", params={"q": SECRET_WORD}).json()["items"]
        assert SECRET_WORD in client.get(f"/sessions/{anas}/history").text
        assert "began" in client.get(f"/sessions/{anas}/explain").json()["text"].lower()
        sums = client.get("/usage", params={"by": "person"}).json()["sums"]
        assert list(sums) == ["api:~ana:ana"]
        assert client.get("/usage").status_code == 403


def test_nobody_else_can_go_on_from_an_event_id(here: ServedGateway, anas: str) -> None:
    with here.client("bob", headers={"Last-Event-ID": f"{anas}/0"}) as client:
        found = client.get("/web/anas/events")
    assert found.status_code == 200
    assert SECRET_WORD not in found.text


def test_what_an_owner_does_with_a_session(here: ServedGateway) -> None:
    with here.client("root") as root:
        said = {"text": "hola", "conversation": "roots"}
        first = root.post("/turns", json=said).json()["session_id"]
        at = f"/sessions/{first}"
        assert root.patch(at, json={"title": "Mine"}).json()["title"] == "Mine"
        fork = root.post(f"{at}/fork", json={"at": 1}).json()
        assert fork["parent_id"] == first
        assert root.get(at).json()["end_reason"] == "fork"
        assert root.post(f"{at}/resume").json()["ended_at"] is None
        assert root.post(f"{at}/end", json={"reason": "done"}).json()["end_reason"] == "done"
        fresh = root.post(f"{at}/reset").json()
        assert fresh["key"] == fork["key"]
        assert root.delete(at).status_code == 204
        assert root.get(at).status_code == 404
        page = root.get("/sessions", params={"limit": 1, "key": fork["key"]}).json()
        rest = root.get(
            "/sessions", params={"limit": 1, "key": fork["key"], "cursor": page["next"]}
        ).json()
        assert page["items"][0]["id"] != rest["items"][0]["id"]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"bearer {secret}"}


class TestDoor:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:8460", "localhost:8460", "[::1]:8460", "localhost"]
    )
    def test_without_tokens_this_machine_is_the_owner(self, host: str) -> None:
        for more in ({}, {"origin": f"http://{host}"}):
            assert Authenticator(HttpSettings()).admit({"host": host, **more}).is_owner

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"host": "evil.example:8460"},
            {"host": "127.0.0.1.evil.example"},
            {"host": "127.0.0.1:8460", "origin": "https://evil.example"},
            {"host": "127.0.0.1:8460", "origin": "null"},
            {"host": "127.0.0.1:8460", "origin": "http://127.0.0.1:9999"},
        ],
    )
    def test_without_tokens_no_other_site_is_let_in(self, headers: dict[str, str]) -> None:
        with pytest.raises(AccessDenied):
            Authenticator(HttpSettings()).admit(headers)

    def test_the_rate_is_limited_for_each_token(self, tmp_path: Any) -> None:
        now = [0.0]
        tokens = tuple(Token(name=n, secret=SECRETS[n]) for n in ("ana", "bob"))
        door = Authenticator(HttpSettings(tokens=tokens, rate=2), now=lambda: now[0])
        ana, bob = (bearer(SECRETS[name]) for name in ("ana", "bob"))
        door.admit(ana)
        door.admit(ana)
        with pytest.raises(TooManyRequests) as caught:
            door.admit(ana)
        assert caught.value.retry_after == 30
        assert door.admit(bob).name == "bob"
        now[0] += 30
        assert door.admit(ana).name == "ana"

    def test_wrong_tokens_are_limited_together(self) -> None:
        settings = HttpSettings(tokens=(Token(name="ana", secret=SECRETS["ana"]),), rate=1)
        door = Authenticator(settings, now=lambda: 0.0)
        with pytest.raises(Unauthorized):
            door.admit(bearer("wrong"))
        with pytest.raises(TooManyRequests):
            door.admit(bearer("wrong too"))
        assert door.admit(bearer(SECRETS["ana"])).name == "ana"


class TestSettings:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
    def test_the_world_is_not_let_in_without_a_token(self, host: str) -> None:
        with pytest.raises(ConfigError, match="Add a token"):
            HttpSettings(host=host)
        HttpSettings(host=host, tokens=(Token(name="a", secret="x" * 16),))

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.9"])
    def test_this_machine_is(self, host: str) -> None:
        HttpSettings(host=host)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": "A b", "secret": "x" * 16},
            {"name": "a", "secret": "tiny"},
            {"name": "a", "secret": "x" * 16, "role": "king"},
        ],
    )
    def test_a_token_that_is_no_good(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError) as caught:
            Token(**wrong)
        assert wrong["secret"] not in str(caught.value)

    def test_secrets_are_not_shown(self) -> None:
        token = Token(name="a", secret="x" * 16)
        assert "xxx" not in repr(HttpSettings(tokens=(token,)))

    def test_two_tokens_alike(self) -> None:
        one = Token(name="a", secret="x" * 16)
        with pytest.raises(ConfigError, match="same secret"):
            HttpSettings(tokens=(one, Token(name="b", secret="x" * 16)))


def test_a_guest_who_was_let_in_stays_so_until_the_token_changes(tmp_path: Path) -> None:
    path, eve = tmp_path / "talk.db", Source("web", "", account="eve", user_id="eve")

    def role_after(tokens: tuple[Token, ...], *paths: str) -> str:
        with (
            served_gateway(path, adapters=[WebAdapter()], tokens=tokens) as here,
            here.client("eve") as one,
        ):
            for place in paths:
                assert one.post(place, json={"text": "hello"}).is_success
        with here.store() as store:
            return store.people.role_of(eve)

    guest = (Token(name="eve", secret=SECRETS["eve"], role="guest"),)
    member = (Token(name="eve", secret=SECRETS["eve"], role="member"),)
    assert role_after(guest, "/web/den/messages") == "guest"
    with tertulia.open(path) as store:
        code = store.people.ask(eve)
        assert code is not None
        store.people.approve(code)
    assert role_after(guest, "/web/den/messages", "/turns") == "member"
    assert role_after(member, "/turns") == "member"
    # Less than before: what was given to the token is taken away wherever it was known.
    assert role_after(guest, "/turns", "/web/den/messages") == "guest"
