"""The commands `/link` and `/pair`: which chats share a conversation, and who is let in.

A link needs both sides: the chat that made a code is told who typed it, and confirms. Replies name
platforms and ids, because anybody can choose a name.
"""

from __future__ import annotations

from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt, quote_text
from tertulia.errors import IllegalMove
from tertulia.gateway import replies
from tertulia.records.links import LinkedChat
from tertulia.store import Store


def run_link(store: Store, source: Source, argument: str) -> str:
    """Run the command `/link` with its argument; return the reply."""
    if argument == "off":
        return _unlink(store, source)
    if argument == "confirm":
        chat = store.people.confirm_link(source)
        _tell(store, chat, replies.link_confirmed(_describe(source)))
        return f"This chat now shares one conversation with {chat.description}."
    if argument:
        chat = store.people.request_link(source, argument)
        _tell(store, chat, replies.link_requested(_describe(source)))
        return replies.link_warning(chat.description)
    return "\n".join([_offer_link(store, source), *_link_lines(store, source)])


def _offer_link(store: Store, source: Source) -> str:
    try:
        code = store.people.offer_link(source)
    except IllegalMove as problem:
        if source.chat_type != "dm":
            raise
        return f"{problem.message} {problem.hint or ''}".strip()
    return (
        f"In your other chat, send: /link {code}\n"
        "The code is valid for one hour. Show it to nobody: whoever types it asks to read this"
        " conversation. I will ask you here to confirm."
    )


def _link_lines(store: Store, source: Source) -> list[str]:
    """Return what this chat is linked with, and what waits to be confirmed."""
    people = store.people
    lines = [f"Linked with: {chat.description}" for chat in people.linked_chats(source)]
    if lines:
        lines.append("To end that, send /link off.")
    for pending in people.pending_links(source):
        if pending.can_confirm:
            lines.append(replies.link_requested(pending.chat.description))
        else:
            lines.append(f"Waiting until {pending.chat.description} confirms the link.")
    return lines or ["This chat is not linked."]


def _unlink(store: Store, source: Source) -> str:
    people = store.people
    linked = people.linked_chats(source)
    pending = [request.chat for request in people.pending_links(source)]
    was_linked = people.unlink(source)
    still_linked = {chat.key for chat in people.linked_chats(source)}
    for chat in linked:
        if chat.key not in still_linked:
            _tell(store, chat, replies.link_ended(_describe(source)))
    for chat in pending:
        _tell(store, chat, replies.link_dropped(_describe(source)))
    if was_linked:
        return "This chat is no longer linked. The shared conversation has ended."
    return "The request is dropped." if pending else "This chat is not linked."


def _describe(source: Source) -> str:
    return LinkedChat(key="", source=source).description


def _tell(store: Store, chat: LinkedChat, text: str) -> None:
    """Send a text to another chat; a link of an older store does not know which one that is."""
    if chat.source is not None:
        store.outbox.put(
            text, "origin", origin=chat.source, delivery=replies.notice_key(), is_plain=True
        )


def run_pair(store: Store, source: Source, argument: str) -> str:
    """Run the command `/pair` with its argument; return the reply."""
    people = store.people
    action, _, person_id = argument.partition(" ")
    if action == "refuse":
        people.refuse(person_id.strip(), by=people.person_of(source) or "owner")
        refused = clean_for_prompt(person_id, 80)
        return f"{refused} is refused, and gets no new code for a day."
    if argument:
        person = people.approve(argument, by=people.person_of(source) or "owner")
        name = f", who calls themselves {quote_text(person.name, 80)}," if person.name else ""
        return f"{clean_for_prompt(person.id, 80)}{name} may write to me now."
    waiting = people.pending_pairings()
    if not waiting:
        return "Nobody is waiting to be let in."
    lines = [
        f"{clean_for_prompt(pairing.person, 80)}, asked {pairing.asked_at:%H:%M} UTC"
        for pairing in waiting
    ]
    head = "Waiting to be let in (/pair CODE, or /pair refuse PERSON):"
    return "\n".join([head, *lines])
