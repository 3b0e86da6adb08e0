"""The conversation of a request to OpenAI's APIs.

A client names it (`X-Conversation-Id`, `conversation`, `previous_response_id`); then only its
newest message is taken from the request. Other clients send the whole conversation each time, and
it is found by what was said (`ChatChain`): at its end it goes on; before its end, after an edit or
to write an answer again, a fork goes on; else it is new. Open WebUI names its chat and sends the
whole conversation too, so it is compared in the same way, within that chat. Requests for titles are
answered apart and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tertulia import aio
from tertulia.core.message import ASSISTANT, USER, text_of
from tertulia.core.source import Source
from tertulia.errors import Error
from tertulia.gateway.request_reply import AgentReply
from tertulia.http import conversation_id
from tertulia.http.auth import API, Caller
from tertulia.http.awaited_turn import MessageName
from tertulia.http.chat_chain import ChatChain, normal_text, split_newest
from tertulia.http.routing import ApiCall

OPEN_WEBUI_HEADER: Final = "X-OpenWebUI-Chat-Id"
_MAX_CHOICES: Final = 10_000
# A request for a title is compared with so many of the person's newest chats.
_NEWEST_CHATS: Final = 3


class ClientConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation that a request belongs to.

    name        its name, which the response repeats
    source      the source of the request's message
    is_stored   the client named it, so earlier messages are not read from the request
    chain       the hash of the texts up to the newest message of the person; None if the
                conversation is not found by its texts
    apart_in    for a request that is answered apart, such as one for a title: the session that is
                charged for it
    """

    name: str
    source: Source
    is_stored: bool = False
    chain: ChatChain | None = None
    apart_in: str | None = None

    async def record(self, store: aio.Store, reply: AgentReply) -> None:
        """Remember where the conversation stands after an answer."""
        if self.chain is None or reply.tool_calls or not reply.text:
            return
        entries = await store.transcript(reply.session_id).entries(newest=3)
        seq = next((entry.seq for entry in reversed(entries) if entry.role == ASSISTANT), None)
        if seq is not None:
            self.chain.add(ASSISTANT, reply.text)
            await store.chat_chains.put(self.chain.digest, reply.session_id, seq)


class RecentChoices:
    """The conversations that were chosen for messages with an id, by caller and id.

    A repeated request must not fork the conversation that its first attempt went on with.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def get(self, caller: str, message: MessageName) -> str | None:
        """Return the name of the conversation that was chosen before, or None."""
        return self._names.get((caller, message.id))

    def put(self, caller: str, message: MessageName, name: str) -> None:
        """Remember the conversation of a message that may come again."""
        if message.is_named or message.can_repeat:
            self._names[caller, message.id] = name
            if len(self._names) > _MAX_CHOICES:
                del self._names[next(iter(self._names))]


async def choose_conversation(
    call: ApiCall,
    message: MessageName,
    messages: Sequence[Any],
    *names: Any,
    streams: bool,
    agent: str | None = None,
) -> ClientConversation:
    """Return the conversation of a request; fork one if the request goes back in it.

    `agent` is the one that the request asks for; None: the one that routes choose.
    """
    named = conversation_id.choose_conversation(call.request, message.id, *names)
    client = await _identify_client(call, agent)
    if named.is_stored:
        return ClientConversation(name=named.id, source=client.source(named.id), is_stored=True)
    choice = _Choice(call, message, messages, client, streams=streams)
    chosen = await choice.make(named.id)
    call.api.choices.put(call.caller.name, message, chosen.name)
    return chosen


async def source_in(call: ApiCall, conversation: str) -> Source:
    """Return the source of the caller's messages in a conversation of this name."""
    return (await _identify_client(call, None)).source(conversation)


class _Client(NamedTuple):
    """Who makes a request, and which agent answers."""

    caller: Caller
    person: str | None
    agent: str | None
    main: str

    def source(self, chat: str) -> Source:
        """Return the source of a conversation of this client."""
        source = self.caller.source(API, chat)
        return source.with_fields(user_id=self.person or source.user_id, agent=self.agent)

    @property
    def chain_owner(self) -> str:
        """The owner of the chains: one person with one agent."""
        agent = f"\0{self.agent}" if self.agent not in (None, self.main) else ""
        return f"{self.caller.name}\0{self.person}{agent}"


async def _identify_client(call: ApiCall, agent: str | None) -> _Client:
    store = call.api.store
    client = _Client(call.caller, _get_person(call), None, store.settings.agent)
    if not store.settings.agents:
        return client
    if agent is None:
        agent = (await store.agent_choices.resolve(client.source(""))).agent
    return client._replace(agent=agent)


class _Choice:
    """One choice of a conversation, for a client that sends all of it."""

    def __init__(
        self,
        call: ApiCall,
        message: MessageName,
        messages: Sequence[Any],
        client: _Client,
        *,
        streams: bool,
    ) -> None:
        self._call = call
        self._store = call.api.store
        self._message = message
        self._client = client
        self._streams = streams
        self._before, self._newest = split_newest(messages)
        self._chain = ChatChain(call.api.derive_key("chat chains"), client.chain_owner)
        self._chain.add_all(self._before)
        self._digest = self._chain.digest
        self._is_first = self._chain.is_empty

    async def make(self, new_name: str) -> ClientConversation:
        """Return the conversation; `new_name` is for one that is not found."""
        header = self._call.request.headers.get(OPEN_WEBUI_HEADER)
        chat = conversation_id.check_name(OPEN_WEBUI_HEADER, header) if header else None
        earlier = self._call.api.choices.get(self._call.caller.name, self._message)
        if self._newest is None or earlier is not None:
            return self._result(earlier or chat or new_name)
        if chat is not None:
            return await self._choose_in_chat(chat)
        if self._is_first:
            return await self._begin(new_name)
        return await self._choose_by_words(new_name)

    async def _begin(self, new_name: str) -> ClientConversation:
        """Begin a conversation, unless the request asks for the title of another."""
        result = self._result(new_name)
        quoted = None if self._streams else await self._find_quoted()
        if quoted is None:
            return result
        return msgspec.structs.replace(result, chain=None, apart_in=quoted)

    async def _choose_by_words(self, new_name: str) -> ClientConversation:
        """Choose the conversation in which everything before the newest message was said."""
        match = None
        if self._client.person is not None:
            match = await self._store.chat_chains.find(self._digest)
        if match is None:
            return self._result(new_name)
        if not match.is_end and not await self._fork(match.session_id, match.seq):
            return self._result(new_name)
        return self._result(match.origin.chat_id)

    async def _choose_in_chat(self, chat: str) -> ClientConversation:
        """Choose within a chat of Open WebUI, which sends its titles and tags with the same id."""
        source = self._client.source(chat)
        key = await self._store.sessions.conversation(source)
        session = await self._store.sessions.current(key)
        has_begun = session is not None and await self._store.transcript(session.id).count() > 0
        if session is None or not has_begun:
            return self._result(chat)
        if self._is_first and not self._streams:
            return msgspec.structs.replace(self._result(chat), chain=None, apart_in=session.id)
        match = None
        if not self._is_first:
            match = await self._store.chat_chains.find(self._digest, key=key)
        if match is not None and match.is_end:
            return self._result(chat)
        if match is None or not await self._fork(match.session_id, match.seq):
            await self._store.sessions.open(source, force_new=True)
        return self._result(chat)

    async def _find_quoted(self) -> str | None:
        """Return the session whose first exchange a request quotes, or None.

        LibreChat asks for the title of a new chat so: in one message, not streamed, without an id,
        with what the person wrote and what was answered in it, each as it was.
        """
        text = "" if self._newest is None else normal_text(text_of(self._newest))
        person = self._store.people.person_of(self._client.source(""))
        if self._client.person is None or person is None or "\n" not in text:
            return None
        page = await self._store.sessions.find(person=person, platform=API, limit=_NEWEST_CHATS)
        for session in page.items:
            entries = await self._store.transcript(session.id).entries(newest=3)
            texts = [normal_text(text_of(entry.body)) for entry in entries]
            is_new = [entry.role for entry in entries] == [USER, ASSISTANT]
            if is_new and all(texts) and texts[1] in text.partition(texts[0])[2]:
                return session.id
        return None

    async def _fork(self, session_id: str, seq: int) -> bool:
        """Let a fork of a session be the current one; return False if that is not possible."""
        try:
            by = f"token:{self._call.caller.name}"
            await self._store.sessions.fork(session_id, seq, by=by)
        except Error:
            # It was deleted, or the answer is hidden: a new conversation begins, with the earlier
            # messages of the request.
            return False
        return True

    def _result(self, name: str) -> ClientConversation:
        if self._newest is not None:
            self._chain.add(str(self._newest.get("role")), text_of(self._newest))
        return ClientConversation(
            name=name,
            source=self._client.source(name),
            chain=self._chain if self._newest is not None and self._client.person else None,
        )


def _get_person(call: ApiCall) -> str | None:
    """Return the person who uses a token; None if it is shared and the request names nobody."""
    token = call.api.token_of(call.caller.name)
    if token is None or (token.person_header is None and not token.is_shared):
        return call.caller.name
    value = call.request.headers.get(token.person_header or "")
    return None if not value else conversation_id.check_name(token.person_header or "", value)
