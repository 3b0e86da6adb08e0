"""Access control: every operation is requested with every kind of token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tertulia.errors import AccessDenied
from tertulia.http import HttpSettings, Token
from tertulia.http.auth import Authenticator, RefusalDelay, TooManyRequests, Unauthorized
from tertulia.http.operations import TABLE
from tertulia.http.routing import Operation
from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import SECRETS, ServedGateway, served_gateway

SECRET_WORD = "swordfish"
# The body that a request needs to succeed with the right token.
BODIES: dict[str, Any] = {
    "rename_session": {"title": "mine now"},
    "end_session": {},
    "fork_session": {},
    "undo_turns": {},
    "restore_revision": {"number": 1},
    "edit_message": {"seq": 1, "message": {"role": "user", "content": "mine"}},
    "remove_message": {"seq": 1},
    "compact_transcript": {"keep_turns": 0},
    "settle_delivery": {"outcome": "sent"},
    "settle_deliveries": {"outcome": "sent"},
    "settle_arrival": {"outcome": "done"},
    "settle_arrivals": {"outcome": "done"},
    "set_role": {"role": "owner"},
    "set_zone": {"zone": None},
    "approve_pairing": {"code": "ABCDEFGH"},
    "refuse_pairing": {"person": "telegram:9"},
    "say": {"text": "history", "conversation": "anas"},
    "complete_chat": {"messages": [{"role": "user", "content": "history"}], "user": "anas"},
    "create_response": {"input": "history", "conversation": "anas"},
    "post_message": {"text": "/history"},
    "create_schedule": {"when": "every 2h", "task": "look at the mail"},
}
QUERIES: dict[str, dict[str, str]] = {
    "search_messages": {"q": SECRET_WORD},
    "sum_usage": {"by": "person"},
    "report_usage": {"by": "person"},
    "forecast_policy": {"platform": "web", "updated_at": "2026-03-01T12:00:00Z"},
}
WITHOUT_TOKEN = {
    "check_health",
    "check_readiness",
    "take_webhook",
    "call_platform",
    "call_account",
    "verify_account",
    "verify_platform",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    path = tmp_path_factory.mktemp("auth") / "talk.db"
    with served_gateway(path, adapters=[WebAdapter()], stream_seconds=0.5) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ana_session(server: ServedGateway) -> str:
    """A session of Ana's that contains the secret word."""
    with server.client("ana") as client:
        body = {"text": f"the password is {SECRET_WORD}", "conversation": "anas"}
        session_id: str = client.post("/turns", json=body).json()["session_id"]
    return session_id


def send(client: httpx2.Client, operation: Operation, session_id: str) -> httpx2.Response:
    path = operation.path.format(
        id=session_id,
        person="api:~ana:ana",
        chat="anas",
        platform="web",
        account="main",
        code="AAAA2222",
        seq=1,
        number=0,
        ticket="AAAA",
    )
    params = QUERIES.get(operation.name)
    body = BODIES.get(operation.name)
    return client.request(operation.method, path, params=params, json=body)


@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_request_without_valid_token_is_refused(
    server: ServedGateway, ana_session: str, operation: Operation
) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp4"}):
        with server.client(None, headers=headers) as client:
            response = send(client, operation, ana_session)
        assert SECRET_WORD not in response.text
        if operation.name not in WITHOUT_TOKEN:
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("name", ["bob", "eve"])
@pytest.mark.parametrize("operation", TABLE, ids=lambda operation: operation.name)
def test_session_of_other_person_is_not_visible(
    server: ServedGateway, ana_session: str, operation: Operation, name: str
) -> None:
    with server.client("root") as root:
        before = root.get(f"/sessions/{ana_session}").json()
        transcript = root.get(f"/sessions/{ana_session}/transcript").text
    with server.client(name) as client:
        response = send(client, operation, ana_session)
    assert SECRET_WORD not in response.text
    assert "api:~ana:ana" not in response.text
    if operation.path.startswith("/sessions/"):
        assert response.status_code == (404 if name == "bob" else 403)
    elif operation.role == "owner" or (name == "eve" and operation.role == "member"):
        assert response.status_code == 403
    with server.client("root") as root:
        assert root.get(f"/sessions/{ana_session}").json() == before
        assert root.get(f"/sessions/{ana_session}/transcript").text == transcript


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"bearer {secret}"}


class TestAuthenticator:
    @pytest.mark.parametrize(
        "host", ["127.0.0.1:8460", "localhost:8460", "[::1]:8460", "localhost"]
    )
    def test_without_tokens_loopback_caller_is_owner(self, host: str) -> None:
        for more in ({}, {"origin": f"http://{host}"}):
            assert Authenticator(HttpSettings()).authenticate({"host": host, **more}).is_owner

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
    def test_without_tokens_other_sites_are_refused(self, headers: dict[str, str]) -> None:
        with pytest.raises(AccessDenied):
            Authenticator(HttpSettings()).authenticate(headers)

    def test_rate_limit_is_per_token(self, tmp_path: Any) -> None:
        now = [0.0]
        tokens = tuple(Token(name=n, secret=SECRETS[n]) for n in ("ana", "bob"))
        authenticator = Authenticator(
            HttpSettings(tokens=tokens, requests_per_minute=2), now=lambda: now[0]
        )
        ana, bob = (bearer(SECRETS[name]) for name in ("ana", "bob"))
        authenticator.authenticate(ana)
        authenticator.authenticate(ana)
        with pytest.raises(TooManyRequests) as caught:
            authenticator.authenticate(ana)
        assert caught.value.retry_after == 30
        assert authenticator.authenticate(bob).name == "bob"
        now[0] += 30
        assert authenticator.authenticate(ana).name == "ana"

    def test_address_cannot_use_up_the_token_that_many_share(self) -> None:
        """One visitor took all requests of the token of a public page."""
        now = [0.0]
        settings = HttpSettings(
            tokens=(
                Token(name="eve", secret=SECRETS["eve"], role="guest"),
                Token(name="ana", secret=SECRETS["ana"]),
            ),
            requests_per_minute=5,
            requests_per_address=2,
            proxies=("10.0.0.1",),
        )
        authenticator = Authenticator(settings, now=lambda: now[0])
        eve = bearer(SECRETS["eve"])
        for address in ("2001:db8::1", "2001:db8::2"):  # one customer has both
            assert authenticator.authenticate(eve, address).role == "guest"
        for _ in range(20):
            with pytest.raises(TooManyRequests, match="one address") as caught:
                authenticator.authenticate(eve, "2001:db8::3")
            assert caught.value.retry_after == 60
        for address in ("192.0.2.1", "10.0.0.1", "10.0.0.1"):  # the refused ones did not count
            authenticator.authenticate(eve, address)
        with pytest.raises(TooManyRequests, match="More than 5 requests in"):
            authenticator.authenticate(eve, "10.0.0.1")
        for _ in range(5):  # a member does not share
            authenticator.authenticate(bearer(SECRETS["ana"]), "192.0.2.1")
        now[0] += 60
        assert authenticator.authenticate(eve, "2001:db8::1").name == "eve"

    def test_wrong_tokens_share_one_rate_limit(self) -> None:
        settings = HttpSettings(
            tokens=(Token(name="ana", secret=SECRETS["ana"]),), requests_per_minute=1
        )
        authenticator = Authenticator(settings, now=lambda: 0.0)
        with pytest.raises(Unauthorized):
            authenticator.authenticate(bearer("wrong"))
        with pytest.raises(TooManyRequests):
            authenticator.authenticate(bearer("wrong too"))
        assert authenticator.authenticate(bearer(SECRETS["ana"])).name == "ana"


def test_refusals_are_delayed_for_some_callers_at_a_time() -> None:
    async def run() -> None:
        delay = RefusalDelay(3600, limit=2)
        waiting = [asyncio.create_task(delay.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        await delay.wait()  # at once: two wait already
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())
