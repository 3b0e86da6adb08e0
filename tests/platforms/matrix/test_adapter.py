"""The adapter of an account, and its settings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tertulia.errors import (
    ConfigError,
)
from tertulia.platforms.base import MenuEntry
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
