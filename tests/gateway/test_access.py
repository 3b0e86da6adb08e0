"""Access control: denied by default, a pairing code in private chats, groups as configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import Source
from tertulia.agents.base import Event, Request, Step
from tertulia.gateway import access
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Incoming
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import ROLES, Role
from tests.gateway.running_gateway import ANA, BEN, App, Echo, Scripted, running_gateway

ids = st.sampled_from(["42", "43", "x:1", "", None])
some_rules = st.builds(
    PlatformSettings,
    admission=st.sampled_from(["everyone", "paired", "nobody"]),
    groups=st.sampled_from(["mention", "always", "never"]),
    allow=st.lists(st.sampled_from(["42", "x:1"])).map(tuple),
    owners=st.lists(st.sampled_from(["43", "x:1"])).map(tuple),
)
incomings = st.builds(
    Incoming,
    source=st.builds(
        Source,
        st.sampled_from(["telegram", "slack", "email"]),
        st.just("1"),
        chat_type=st.sampled_from(["dm", "group", "channel", "thread"]),
        user_id=ids,
        user_id_alt=ids,
    ),
    text=st.just("hello"),
    is_addressed=st.booleans(),
)


@given(incomings, st.sampled_from(ROLES), some_rules)
def test_decision_follows_the_table(
    incoming: Incoming, stored: str, rules: PlatformSettings
) -> None:
    source = incoming.source
    role = access.role_of(source, stored, rules, {})  # type: ignore[arg-type]
    found = access.decide(incoming, role, rules)
    named = {source.user_id, source.user_id_alt}
    is_known = stored != "guest" or bool(named & {*rules.owners, *rules.allow})
    is_private = source.chat_type == "dm"
    is_heard = (
        is_private
        or rules.groups == "always"
        or (rules.groups == "mention" and incoming.is_addressed)
    )
    if not is_heard:
        assert found == "ignored"
    elif is_known or rules.admission == "everyone":
        assert found == "welcome"
    elif is_private and rules.admission == "paired":
        assert found == "stranger"
    else:
        assert found == "ignored"


@given(incomings, some_rules)
def test_guest_is_never_welcome_unless_everyone_is(
    incoming: Incoming, rules: PlatformSettings
) -> None:
    if rules.admission != "everyone":
        assert access.decide(incoming, "guest", rules) != "welcome"
    assert access.decide(incoming, "guest", PlatformSettings()) != "welcome"


@given(incomings, st.sampled_from(ROLES), some_rules)
def test_configuration_raises_a_role_and_never_lowers_it(
    incoming: Incoming, stored: str, rules: PlatformSettings
) -> None:
    role = access.role_of(incoming.source, stored, rules, {})  # type: ignore[arg-type]
    assert ROLES.index(role) <= ROLES.index(stored)
    named = {incoming.source.user_id, incoming.source.user_id_alt} - {None}
    assert (role == "owner") == (stored == "owner" or bool(named & {*rules.owners}))


@given(
    st.sampled_from(["api", "web"]),
    st.sampled_from(["ana", "eve"]),
    st.sampled_from(ROLES),
    some_rules,
    st.dictionaries(st.sampled_from(["ana", "eve"]), st.sampled_from(ROLES)),
)
def test_role_of_a_token_comes_from_the_configuration(
    platform: str, name: str, stored: Role, rules: PlatformSettings, tokens: dict[str, Role]
) -> None:
    source = Source(platform, "1", account=name, user_id=name)
    role = access.role_of(source, stored, rules, tokens)
    assert access.has_token(source, tokens) == (name in tokens)
    if name not in tokens:
        assert role == "guest"
    elif tokens[name] == "guest" and platform == "web" and stored != "guest":
        assert role == "member"  # the owner approved this guest
    else:
        assert role == tokens[name]


@pytest.mark.parametrize(
    ("tokens", "stored", "role"),
    [
        ({"shop": "guest"}, "guest", "guest"),
        ({"shop": "guest"}, "member", "member"),
        ({"shop": "owner"}, "guest", "guest"),
        ({"other": "guest"}, "member", "guest"),
    ],
)
def test_visitor_is_a_guest_until_approved(
    tokens: dict[str, Role], stored: Role, role: Role
) -> None:
    """Those of one token have an account each; an approved one stayed a guest."""
    visitor = Source(
        "web", "1", account="shop/0123456789abcdef01234567", user_id="0123456789abcdef"
    )
    assert access.role_of(visitor, stored, PlatformSettings(), tokens) == role


def test_stranger_gets_a_pairing_code_and_nothing_else(where: str) -> None:
    async def play() -> None:
        agent = Echo()
        async with running_gateway(where, agent, rules=GatewaySettings()) as node:
            (told,) = await node.say("let me in: what is the secret?")
            assert "secret" not in told
            code = told.splitlines()[0].rsplit(" ", maxsplit=1)[-1]
            assert len(code) == 8
            # Asking again, or with a command, tells nothing more.
            for text in ("hello?", "/help", "/whoami", "/new", "/pair", f"/pair {code}"):
                assert await node.say(text) == []
            assert agent.asked == []
            assert not (await node.store.inbox.find()).items
            assert not await node.store.sessions.has_any()

            await node.store.people.approve(code)
            assert await node.say("hello") == ["re hello"]
            assert await node.say("/whoami") == ["You are Ana, member."]

    asyncio.run(play())


def test_groups_are_answered_as_configured(tmp_path: Path) -> None:
    group = Source("telegram", "-5", chat_type="group", user_id="42", user_name="Ana")
    stranger = Source("telegram", "-5", chat_type="group", user_id="99")

    async def heard(groups: str, who: Source, *, is_addressed: bool) -> list[str]:
        rules = GatewaySettings(
            platforms={"telegram": PlatformSettings(groups=groups, allow=("42",))}  # type: ignore[arg-type]
        )
        place = str(tmp_path / f"{groups}-{who.user_id}-{is_addressed}.db")
        async with running_gateway(place, Echo(), rules=rules) as node:
            return await node.say("hello", who, is_addressed=is_addressed)

    async def play() -> None:
        assert await heard("mention", group, is_addressed=True) == ["re hello"]
        assert await heard("mention", group, is_addressed=False) == []
        assert await heard("always", group, is_addressed=False) == ["re hello"]
        assert await heard("never", group, is_addressed=True) == []
        # A stranger is told nothing where others read along, whatever the rule.
        assert await heard("always", stranger, is_addressed=True) == []

    asyncio.run(play())


def test_owner_role_ends_when_the_configuration_no_longer_lists_it(where: str) -> None:
    def named(*owners: str) -> GatewaySettings:
        return GatewaySettings(platforms={"telegram": PlatformSettings(owners=owners)})

    async def play() -> None:
        async with running_gateway(where, Echo(), rules=named("42")) as node:
            assert await node.hears("/whoami") == "You are Ana, owner."
            assert await node.hears("/pair") == "Nobody is waiting to be let in."
            (told,) = await node.say("hello", BEN)
            code = told.splitlines()[0].rsplit(" ", maxsplit=1)[-1]
            assert "telegram" in await node.hears("/pair")
            assert "telegram:43" in await node.hears(f"/pair {code}")
            assert await node.hears("hello", BEN) == "re hello"
            assert await node.hears("/pair 12345678") == (
                "That code is not known. It may be older than an hour: ask for a new one."
            )
        async with running_gateway(where, Echo(), rules=named("7")) as node:
            heard = await node.say("/pair", ANA)
            assert len(heard) == 1
            assert "I do not know you yet" in heard[0]

    asyncio.run(play())


def test_guest_and_member_cannot_run_an_owner_command(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            denied = "This needs the role owner. Ask the owner."
            code = await node.store.people.request_pairing(BEN)
            assert await node.hears(f"/pair {code}") == denied
            await node.hears("hello")
            await node.store.people.set_role("telegram:42", "member")
            assert await node.hears(f"/pair {code}") == denied
            assert await node.hears("/whoami") == "You are Ana, member."
            assert "/pair" not in await node.hears("/help")
            assert await node.store.people.role_of(BEN) == "guest"

    asyncio.run(play())


def test_role_that_another_process_has_changed_holds_for_the_next_message(where: str) -> None:
    offered: list[list[str]] = []

    async def answer(request: Request) -> AsyncGenerator[Event, None]:
        offered.append([tool.name for tool in request.tools if tool.name == "schedule"])
        yield Step("done")

    async def play() -> None:
        async with running_gateway(where, Scripted(answer)) as node:
            await node.say("one")
            with tertulia.open(where) as other:
                other.people.remember(ANA, role="member")
            await node.say("two")
            with tertulia.open(where) as other:
                other.people.set_role("telegram:42", "guest")
            await node.say("three")

    asyncio.run(play())
    assert offered == [[], ["schedule"], []]


def test_terminal_has_the_owner_role(tmp_path: Path) -> None:
    async def play() -> None:
        here = Source("local", "cli")
        async with running_gateway(
            str(tmp_path / "talk.db"), Echo(), apps=[App("local")], rules=GatewaySettings()
        ) as node:
            assert await node.hears("hello", here) == "re hello"
            assert "/pair" in await node.hears("/help", here)

    asyncio.run(play())
