-- The short way into a turn (records/turns/fast_path.py). SQLite changes one table with a statement: the
-- rows of the message and of the turn are inserted after this one, if it returns a row.

-- name: turn_enter
update sessions set {part_begin_turn}
where {part_can_enter} and {part_is_undisputed}
returning ref, last_seq, turns, last_seq - :count > indexed_seq, {part_session}
