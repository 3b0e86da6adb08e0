-- The way of one message: its turn, its model calls, its deliveries.

-- name: trace_turn
select sessions.id, turns.number, turns.state, turns.began_at, turns.closed_at, turns.first_seq,
    turns.answer_seq
from turns join sessions on sessions.ref = turns.session where turns.arrival = :arrival

-- name: trace_ahead
-- Counted up to the limit only.
select count(*) from (
    select 1 from inbox
    where key = :key and id < :id and state in ('waiting', 'taken') limit :limit
) waiting

-- name: trace_calls
-- Within the time of the turn: the ledger has an index on times.
select at, model, provider, input, output, cache_read, cache_write, reasoning, cost, certainty
from usage
where at >= :began_at and at <= :closed_at and session_id = :session_id and turn = :turn
order by at, id limit :limit

-- name: trace_deliveries
select {part_outbox_columns} from outbox
where session_id = :session_id and created_at >= :began_at and created_at <= :closed_at
order by id limit :limit
