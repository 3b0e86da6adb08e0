-- The short way into a turn and out of it (records/turns/fast_path.py). SQLite changes one table with
-- a statement, so there are several: `changes()` tells whether the one before has changed a row.

-- name: turn_enter
update sessions set {part_begin_turn}
where {part_can_enter}
returning {part_session};
insert into messages (place, turn, role, author, at, body)
select (ref << 32) + last_seq, turns, 'user', :author, :now, :body
from sessions where changes() = 1 and key = :key and ended_at is null;
insert into turns (session, number, state, arrival, began_at, first_seq, token)
select ref, turns, 'open', :arrival, :now, last_seq, :token
from sessions where changes() = 1 and key = :key and ended_at is null;
insert into unindexed (session)
select ref from sessions
where changes() = 1 and key = :key and ended_at is null and last_seq - :count <= indexed_seq
on conflict (session) do nothing
