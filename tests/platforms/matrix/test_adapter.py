"""The adapter of an account, and its settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tertulia.errors import AccountProblem, ConfigError, PlatformError
from tertulia.platforms.base import Incoming, MenuEntry, Update
from tertulia.platforms.definition import BuildContext
from tertulia.platforms.matrix import PLATFORM, MatrixSettings
from tertulia.platforms.matrix.adapter import MatrixAdapter
from tests.servers.matrix import AGENT, TOKEN, MatrixServer
from tests.servers.scripted_http import Fault

ME = "@agent:example.org"
ANA = "@ana:example.org"
ROOM = "!room:example.org"


def settings(**changes: Any) -> MatrixSettings:
    return MatrixSettings(**{"base_url": "https://matrix.example.org", **changes})


def test_adapter_is_built_for_its_account() -> None:
    context = BuildContext(
        name="matrix", account="work", settings=settings(token_env="MATRIX_TOKEN"), folder="x",
        environ={"MATRIX_TOKEN": "secret"},
    )  # fmt: skip
    adapter = PLATFORM.build_adapter(context)
    assert adapter.account == "work"
    assert adapter.listens_alone
    assert adapter.draft_seconds is not None
    assert "secret" not in repr(adapter)


def test_base_url_needs_http() -> None:
    with pytest.raises(ConfigError) as caught:
        MatrixAdapter(settings(base_url="matrix.example.org"), "x")
    assert caught.value.field == "base_url"


def test_streaming_can_be_switched_off() -> None:
    assert MatrixAdapter(settings(stream="off"), "x").draft_seconds is None


@pytest.mark.parametrize(
    ("join", "inviter", "accepts"),
    [("invited", None, True), ("never", ANA, False), ("allowed", ANA, True),
     ("allowed", "@ben:example.org", True), ("allowed", "@x:example.org", False)],
)  # fmt: skip
def test_invitations_are_accepted_by_setting(join: Any, inviter: str | None, accepts: bool) -> None:
    options = settings(join=join, allow=(ANA,), owners=("@ben:example.org",))
    assert MatrixAdapter(options, "x")._accepts(inviter) is accepts


def test_menu_names_the_commands() -> None:
    adapter = MatrixAdapter(settings(), "x")
    asyncio.run(adapter.fill_menu((MenuEntry("new", "begin anew"),)))
    assert adapter._menu[0].name == "new"


def test_server_without_profiles_is_enough() -> None:
    with MatrixServer() as server:
        server.spoil("profile", Fault(404, b"404: Not Found", times=None))

        async def identify() -> str:
            adapter = MatrixAdapter(settings(base_url=server.url), TOKEN)
            try:
                return await adapter.identify()
            finally:
                await adapter.close()

        assert asyncio.run(identify()) == AGENT


NO_WHOAMI = [
    Fault(404, b"404: Not Found", times=None),
    Fault(405, b"", times=None),
    Fault(404, b'{"errcode": "M_UNRECOGNIZED"}', times=None),
    Fault(405, b'{"errcode": "M_UNRECOGNIZED"}', times=None),
    Fault(200, b"{}", times=None),
]


@pytest.mark.parametrize("fault", NO_WHOAMI)
def test_server_without_whoami_is_enough_if_the_account_is_known(fault: Fault) -> None:
    texts: asyncio.Queue[str | None] = asyncio.Queue()

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            texts.put_nowait(update.text)

    async def listen(server: MatrixServer) -> None:
        adapter = MatrixAdapter(settings(base_url=server.url, user_id=AGENT), TOKEN)
        assert (await adapter.identify()).startswith(AGENT)
        listening = asyncio.create_task(adapter.listen(receive))
        try:
            async with asyncio.timeout(60):
                await asyncio.to_thread(server.wait, lambda: adapter.state.listening)
                server.push([server.event("hola")])
                assert await texts.get() == "hola"
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            await adapter.close()

    with MatrixServer() as server:
        server.spoil("whoami", fault)
        asyncio.run(listen(server))


@pytest.mark.parametrize("fault", [*NO_WHOAMI, None])
def test_wrong_token_is_the_trouble_of_the_account(fault: Fault | None) -> None:
    async def receive(update: Update) -> None:
        return

    async def listen(server: MatrixServer) -> None:
        adapter = MatrixAdapter(settings(base_url=server.url, user_id=AGENT), "wrong")
        try:
            async with asyncio.timeout(60):
                with pytest.raises(AccountProblem, match="token is not accepted"):
                    await adapter.identify()
                with pytest.raises(AccountProblem, match="token is not accepted"):
                    await adapter.listen(receive)
                assert "token is not accepted" in (adapter.state.problem or "")
        finally:
            await adapter.close()

    with MatrixServer() as server:
        # The fault is that of a server that knows no such path, whoever asks.
        server.spoil("whoami", *([fault] if fault else []))
        server.spoil("profile", Fault(404, b"404: Not Found", times=None))
        asyncio.run(listen(server))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (NO_WHOAMI[0], "answered 404"),
        (NO_WHOAMI[2], "whose token"),
        (NO_WHOAMI[4], "whose token"),
        (Fault(403, b'{"errcode": "M_FORBIDDEN"}', times=None), "answered 403 M_FORBIDDEN"),
    ],
)
def test_account_that_nobody_names_is_not_guessed(fault: Fault, text: str) -> None:
    async def identify(server: MatrixServer) -> None:
        adapter = MatrixAdapter(settings(base_url=server.url), TOKEN)
        try:
            with pytest.raises(PlatformError, match=text):
                await adapter.identify()
        finally:
            await adapter.close()

    with MatrixServer() as server:
        server.spoil("whoami", fault)
        asyncio.run(identify(server))
