-- name: db_now
select {part_db_now}

-- name: part_where_leased
-- The `ref` of a deleted session is used again, its id never is.
where ref = :ref and id = :id and epoch = :epoch

-- name: part_begin_turn
last_seq = last_seq + :count,
    turns = turns + :turns,
    updated_at = :now,
    version = version + 1,
    epoch = epoch + 1,
    lease_until = {part_db_now} + :lease,
    lease_length = :lease,
    lease_holder = :holder,
    open_turn = turns + :turns

-- name: session_begin_turn
update sessions set {part_begin_turn}
where ref = :ref
returning ref, last_seq, turns, last_seq - :count > indexed_seq, epoch, version

-- name: session_revoke_lease
update sessions set epoch = epoch + 1, lease_until = 0, open_turn = null where ref = :ref

-- name: part_step_columns
-- A row after the answer that is not a message needs no lease and changes none.
last_seq = last_seq + :count,
    version = version + 1,
    lease_until = case when :is_after then lease_until
        when :is_last then 0 else {part_db_now} + :lease end,
    open_turn = case when :is_after then open_turn when :is_last and not :is_waiting then null
        else :turn end

-- name: part_step_where
where ref = :ref and id = :id and (epoch = :epoch or :is_after)
returning ref, last_seq, turns, last_seq - :count > indexed_seq, platform, person

-- name: turn_append
update sessions set {part_step_columns}
{part_step_where}

-- name: turn_append_with_usage
update sessions set {part_step_columns},
    {part_add_usage}
{part_step_where}

-- name: turn_renew
update sessions set lease_until = {part_db_now} + :lease {part_where_leased} and open_turn is not null

-- name: turn_insert
insert into turns (session, number, state, arrival, began_at, first_seq, token)
values (:ref, :number, 'open', :arrival, :now, :first_seq, :token)

-- name: turn_reopen
update turns set state = 'open', closed_at = null, token = :token
where session = :ref and number = :number

-- name: turn_clear_dedupe_key
update turns set arrival = null where arrival = :arrival

-- name: turn_close
-- An answered turn stays answered, also if it went on after the answer and then failed.
update turns set state = case when state = 'answered' then state else :state end,
    closed_at = :now, answer_seq = coalesce(:answer_seq, answer_seq)
where session = :ref and number = :number

-- name: part_can_enter
-- The condition of `turn_enter`: nothing has to be decided (records/turns/fast_path.py). The
-- session is current, nobody is inside or was left inside, its policy is not due in the zone of the
-- store, somebody has written in it before. `part_is_undisputed` is the rest of it.
sessions.key = :key and sessions.ended_at is null
    and sessions.platform = :platform and sessions.chat_type = :chat_type
    and sessions.open_turn is null and sessions.lease_until = 0
    and sessions.turns > 0 and sessions.epoch > 0
    and sessions.updated_at >= :active_since

-- name: part_is_undisputed
-- The person has no time zone, the message is new, nobody waits, nothing is linked.
(select people.zone from people where people.person = sessions.person) is null
    and not exists (select 1 from turns where turns.arrival = :arrival)
    and not exists (
        select 1 from tickets where tickets.key = :key and tickets.until >= {part_db_now}
    )
    and not exists (select 1 from links where links.key = :key)

-- name: part_can_answer
-- The condition of `turn_answer`: the turn has its lease and was not answered yet.
{part_where_leased} and open_turn = :turn

-- name: turn_by_number
select state, token, answer_seq from turns where session = :ref and number = :number

-- name: part_is_leased
-- A lease that ends later than it could is over: the clock was set back (see part_is_over).
sessions.lease_until > {part_db_now}
and sessions.lease_until <= {part_db_now} + 2 * sessions.lease_length

-- name: turn_by_dedupe_key
select turns.session, turns.number, turns.state, turns.first_seq, turns.answer_seq, sessions.id,
    turns.number = sessions.turns, {part_is_leased},
    sessions.ended_at is not null, sessions.end_reason, turns.token
from turns join sessions on sessions.ref = turns.session
where turns.arrival = :arrival

-- name: turn_newest
select turns.number, turns.state, turns.began_at, turns.closed_at, {part_is_leased},
    sessions.lease_until, inbox.id, inbox.state, inbox.worker, inbox.problem
from sessions
left join turns on turns.session = sessions.ref and turns.number = sessions.turns
left join inbox on inbox.arrival = turns.arrival
where sessions.id = :id

-- name: turn_messages
select {part_message} from messages
where place between (cast(:ref as bigint) << 32) + (
        select first_seq from turns where session = :ref and number = :turn
    ) and (cast(:ref as bigint) << 32) + :last
    and turn = :turn
order by place

-- name: turns_delete
delete from turns where session = :session

-- name: ticket_insert
insert into tickets (key, until) values (:key, {part_db_now} + :lease) returning id

-- name: ticket_renew
update tickets set until = {part_db_now} + :lease where id = :id

-- name: ticket_delete
delete from tickets where id = :id

-- name: tickets_expire
delete from tickets where id in (
    select id from (
        select id from tickets where until < (select {part_db_now}) order by until limit 100
    ) ended
    union all
    select id from (
        select id from tickets where until > (select {part_db_now} + 2 * :lease)
        order by until limit 100
    ) early
)

-- name: ticket_next
select min(id) from tickets
where key = :key and until >= {part_db_now} and until <= {part_db_now} + 2 * :lease

-- name: session_by_epoch
select last_seq from sessions {part_where_leased}

-- name: session_lease
select {part_is_leased}, ref from sessions where id = :id and end_reason = :reason

-- name: session_lease_holder
select lease_holder from sessions where ref = :ref
