"""The id by which each person is known: a phone number, or an id that WhatsApp made.

WhatsApp names a person by an id of its own, and by the phone number unless the person hides it. A
person who was known by the number stays so when the number is hidden later, or one conversation
would become two. The store keeps the pairs, for all machines; here are those that were used last.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tertulia.platforms.base import RememberId

_MAX_REMEMBERED: Final = 10_000


class KnownIds:
    """The pairs of ids of one account."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, str] = OrderedDict()

    async def resolve(
        self, user_id: str | None, number: str | None, remember_id: RememberId | None
    ) -> tuple[str, str | None]:
        """Return the id by which the person is known, and the number if that is it.

        Raises `ValueError` if there is neither id. A new pair is stored when this returns; raises
        the error of `remember_id` if it cannot be. Without that, pairs are forgotten in the end.
        """
        if user_id is None:
            if number is None:
                raise ValueError("a message without a sender")
            return number, number
        known_id = self._ids.get(user_id)
        if known_id is None:
            known_id = number or user_id
            if remember_id is not None:
                known_id = await remember_id(user_id, known_id)
            self._ids[user_id] = known_id
            while len(self._ids) > _MAX_REMEMBERED:
                self._ids.popitem(last=False)
        return known_id, None if known_id == user_id else known_id
