"""Where a room concerns us."""

from __future__ import annotations

from tertulia.platforms.matrix.sync_answer import after_start, is_join
from tests.platforms.matrix.test_room_events import ME, member, text


def test_messages_before_an_invitation_are_not_for_us() -> None:
    invite, early, late = member(ME, "invite"), text("early"), text("late")
    join = member(ME, "join", prev_content={"membership": "invite"})
    assert after_start([early, invite, late, join], ME) == [late, join]
    joined = member(ME, "join")
    assert after_start([early, joined, late], ME) == [late]
    renamed = member(ME, "join", prev_content={"membership": "join"})
    assert not is_join(renamed, ME)
    assert not is_join(member(ME, "join", replaces_state="$x"), ME)
    assert after_start([early, renamed, late], ME) == [early, renamed, late]
    # The invitation is too far back: what was written before we came is left out.
    assert after_start([early, join, late], ME) == [late]
