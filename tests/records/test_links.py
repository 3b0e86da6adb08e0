"""Links: in whatever order chats are linked and parted, nobody sees what is not theirs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import IllegalMove, NotFound, Settings, Source, Store, Usage, aio
from tertulia.core import keys
from tertulia.errors import AccessDenied
from tertulia.http.auth import Caller, Scope
from tertulia.records.links import LinkedChat
from tertulia.storage import statements
from tertulia.testing import FakeClock
from tests.servers.empty_stores import NewPlace

EVE = Caller("eve", "member")
CHATS = (
    Source("telegram", "100", user_id="100"),
    Source("discord", "666", user_id="666"),
    EVE.source("web", "one"),
    EVE.source("web", "two"),
)
FAST = Settings(zone="UTC", durability="fast")

chats = st.integers(0, len(CHATS) - 1)
acts = st.one_of(
    st.tuples(st.just("say"), chats, chats),
    st.tuples(st.sampled_from(["say", "reset", "switch", "end", "fork", "unlink"]), chats, chats),
    st.tuples(st.sampled_from(["link", "confirm", "request"]), chats, chats),
)


class Model:
    """The store, and what each chat may see of it."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.roots = {chat: chat for chat in CHATS}
        self.requests: dict[Source, Source] = {}  # by the chat that made the code
        self.sessions: dict[str, Source] = {}  # whose key each session has
        self.said: list[tuple[Source, str]] = []  # who said what, and in which session

    def act(self, name: str, one: Source, other: Source) -> None:
        self.clock.forward(minutes=11)  # a chat makes a code every ten minutes
        with suppress(IllegalMove, NotFound, AccessDenied):
            getattr(self, name)(one, other)

    def say(self, one: Source, other: Source) -> None:
        word = f"word{len(self.said)}"
        with self.store.turn(one, f"secret {word}") as turn:
            turn.add_assistant("ok", usage=Usage(input=1))
        assert turn.session.key == self.key(self.roots[one])
        self.sessions[turn.session.id] = self.roots[one]
        self.said.append((one, turn.session.id))

    def reset(self, one: Source, other: Source) -> None:
        session = self.store.sessions.reset(self.key(self.roots[one]))
        if session is not None:
            self.sessions[session.id] = self.roots[one]

    def fork(self, one: Source, other: Source) -> None:
        current = self.store.sessions.current(self.key(self.roots[one]))
        if current is not None:
            self.sessions[self.store.sessions.fork(current.id).id] = self.roots[one]

    def switch(self, one: Source, other: Source) -> None:
        for session_id in list(self.sessions)[:2]:
            self.store.sessions.switch(self.key(self.roots[one]), session_id)

    def end(self, one: Source, other: Source) -> None:
        current = self.store.sessions.current(self.key(self.roots[one]))
        if current is not None:
            self.store.sessions.end(current.id, "idle")

    def link(self, one: Source, other: Source) -> None:
        self.requests.pop(other, None)
        self.store.people.accept_link(one, self.store.people.offer_link(other))
        self.join(one, other)

    def request(self, one: Source, other: Source) -> None:
        self.requests.pop(other, None)
        self.store.people.request_link(one, self.store.people.offer_link(other))
        self.requests = {chat: asking for chat, asking in self.requests.items() if asking != one}
        self.requests[other] = one

    def confirm(self, one: Source, other: Source) -> None:
        chat = self.store.people.confirm_link(one)
        assert chat.source == self.requests.pop(one)
        self.join(chat.source, one)

    def join(self, one: Source, other: Source) -> None:
        assert not any(root == one for chat, root in self.roots.items() if chat != one)
        self.roots[one] = self.roots[other]

    def unlink(self, one: Source, other: Source) -> None:
        leaving = [one] if self.roots[one] != one else CHATS
        is_linked = any(self.roots[chat] == self.roots[one] != chat for chat in leaving)
        assert self.store.people.unlink(one) == is_linked
        self.requests = {
            chat: asking for chat, asking in self.requests.items() if one not in (chat, asking)
        }
        for chat in leaving:
            if self.roots[chat] == self.roots[one]:
                self.roots[chat] = chat

    def key(self, chat: Source) -> str:
        return self.store.sessions.key(chat)

    def visible(self, chat: Source) -> set[str]:
        """Return the sessions a chat may see: those of its person's keys, and of its link now."""
        return {
            session_id
            for session_id, owner in self.sessions.items()
            if keys.person_of(owner) == keys.person_of(chat) or owner == self.roots[chat]
        }

    def check(self) -> None:
        for chat in CHATS:
            visible, view = self.visible(chat), self.store.for_person(chat)
            assert {session.id for session in view.find(limit=1000).items} == visible
            assert {session.id for session in view.find(text="secret", limit=1000).items} <= visible
            for session_id in self.sessions:
                session = view.get(session_id)
                assert (session is not None) == (session_id in visible)
                try:
                    view.transcript(session_id).load()
                except NotFound:
                    assert session_id not in visible
            hits = view.search("secret", limit=200).items
            assert {hit.session_id for hit in hits} <= visible
            # Forks show the same messages: each word is found, in a session that shows it.
            texts = {hit.snippet for hit in hits}
            assert texts == {
                f"secret word{number}"
                for number, (_, session_id) in enumerate(self.said)
                if session_id in visible
            }
            linked = {chat.source for chat in self.store.people.linked_chats(chat)}
            assert linked == {other for other in CHATS if self.roots[other] == self.roots[chat]} - {
                chat
            }
        spent = {name: usage.input for name, usage in self.store.usage.sum("person").items()}
        said_by = [keys.person_of(chat) or "" for chat, _ in self.said]
        assert spent == {person: said_by.count(person) for person in said_by}

    def check_http(self, where: str) -> None:
        """A token sees its own conversations, and nothing else."""
        own = {
            session_id
            for session_id, owner in self.sessions.items()
            if keys.person_of(owner) == EVE.person("web")
        }

        async def ask() -> None:
            async with aio.open(where, settings=FAST, clock=self.clock) as store:
                scope = Scope(store, EVE)
                for session_id in self.sessions:
                    try:
                        await scope.require_transcript(session_id)
                    except NotFound:
                        assert session_id not in own
                    else:
                        assert session_id in own

        asyncio.run(ask())


@settings(max_examples=25)
@given(st.lists(acts, max_size=16))
def test_nobody_sees_what_is_not_theirs_in_any_order(
    new_place: NewPlace, steps: list[tuple[str, int, int]]
) -> None:
    clock = FakeClock()
    with new_place() as where, tertulia.open(where, settings=FAST, clock=clock) as store:
        model = Model(store, clock)
        for name, one, other in steps:
            model.act(name, CHATS[one], CHATS[other])
        model.check()
        model.check_http(where)


def test_every_step_of_a_long_story(where: str) -> None:
    """The order of the first report, and each step after it, looked at one by one."""
    clock = FakeClock()
    with tertulia.open(where, settings=FAST, clock=clock) as store:
        model = Model(store, clock)
        ana, ben, eve, _ = CHATS
        for name, one, other in (
            ("say", ana, ana), ("link", ben, ana), ("end", ana, ana), ("say", ben, ben),
            ("unlink", ben, ben), ("say", ana, ana), ("switch", ben, ben), ("say", ben, ben),
            ("request", eve, ana), ("say", eve, eve), ("confirm", ana, ana), ("say", eve, eve),
            ("link", ben, eve), ("reset", ben, ben), ("say", ben, ben), ("fork", eve, eve),
            ("unlink", ana, ana), ("say", ana, ana), ("say", eve, eve), ("say", ben, ben),
        ):  # fmt: skip
            model.act(name, one, other)
            model.check()
        assert len(model.said) == 10


def test_description_names_platform_and_ids_only() -> None:
    stranger = Source("telegram", "5", user_id="666", user_name="Alice (verified owner)")
    chat = LinkedChat(key="k", source=stranger)
    assert chat.description == "telegram, id 666, chat 5"
    hostile = Source("te\nle[gram]", "5\n6", user_id='6"6', account="x\u200b")
    described = LinkedChat(key="k", source=hostile).description
    assert "\n" not in described
    assert not set('"[]\u200b') & set(described)
    assert "k" in LinkedChat(key="k").description


def test_a_chat_of_an_imported_conversation_keeps_it_when_another_chat_parts(where: str) -> None:
    """An import gives the chat a conversation under a foreign key, through a link."""
    from tertulia.records.links import add_import_link

    ana, ben, *_ = CHATS
    with tertulia.open(where, settings=FAST) as store:
        own = store.sessions.key(ana)
        store.context.write(
            lambda tx: add_import_link(tx, own, "agent:main:old:dm:1", "telegram:100", 0)
        )
        imported = store.sessions.open(ana)
        assert imported.key == "agent:main:old:dm:1"
        assert store.people.linked_chats(ana) == []
        store.people.accept_link(ben, store.people.offer_link(ana))
        assert [chat.source for chat in store.people.linked_chats(ana)] == [ben]
        assert [chat.source for chat in store.people.linked_chats(ben)] == [ana]
        assert store.for_person(ben).get(imported.id) is not None
        assert store.people.unlink(ana)
        assert store.for_person(ben).get(imported.id) is None
        assert store.sessions.conversation(ana) == imported.key


def test_migration_makes_sessions_of_past_links_visible_by_key_only(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    connection = apsw.Connection(str(path))
    scripts = statements.migrations("sqlite")
    tertulia.open(tmp_path / "empty.db").close()
    with tertulia.open(path, settings=FAST) as store:
        ana, ben, *_ = CHATS
        old = store.sessions.open(ana)
        alone = store.sessions.open(ben)
        store.people.remember(EVE.source("api"), role="owner")
    # As the version before stored a session that was begun through a link.
    connection.execute("pragma journal_mode")
    connection.execute(
        "insert into sessions (id, key, agent, platform, chat_type, person, owner, origin,"
        " created_at, updated_at, ended_at) select 'begun_by_ben', key, agent, 'discord', 'dm',"
        " 'discord:666', 'discord:666', origin, created_at, updated_at, updated_at"
        " from sessions where id = ?",
        (old.id,),
    )
    (script,) = [text for name, text in scripts if name.startswith("0007")]
    connection.execute(script[script.index("update sessions") :])
    connection.close()
    with tertulia.open(path, settings=FAST) as store:
        assert store.for_person(ben).get("begun_by_ben") is None
        assert [s.id for s in store.for_person(ben).find().items] == [alone.id]
        assert store.for_person(ana).get("begun_by_ben") is not None
        assert store.for_person(ana).get(old.id) is not None
        assert store.people.role_of(EVE.source("api")) == "guest"


@pytest.mark.parametrize("chat_type", ["group", "channel"])
def test_groups_have_no_linked_chats(where: str, chat_type: str) -> None:
    with tertulia.open(where, settings=FAST) as store:
        group = Source("telegram", "-1", chat_type=chat_type, user_id="1")
        assert store.people.linked_chats(group) == []
        with pytest.raises(IllegalMove):
            store.people.unlink(group)
