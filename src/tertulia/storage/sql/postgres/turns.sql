-- The short way into a turn and out of it (records/turns/fast_path.py): one statement that changes
-- everything, or nothing. It must be read committed: in any other isolation level it would not see the
-- newest row of its session.
--
-- The server sets up every node of a plan at each call, which takes longer than to run it. So conditions
-- that name no column of the session stand in a `case`: else there would be a node for them, with all
-- columns, above the one that reads the session.

-- name: part_is_read_committed
current_setting('transaction_isolation') = 'read committed'

-- name: part_takes_lane
-- The lock of the lane, if it is free; if not, the general path waits for it. The session's row is read
-- again when it is updated, so its newest version decides. The other tables are read as they were when
-- the statement began: to come before a transaction that ends just then is as right as to come after
-- it. A message id that it has stored is found by the unique index. (decision 0060)
case when pg_try_advisory_xact_lock(:lane) then {part_is_read_committed}
    and set_config('lock_timeout', :lock_timeout, true) <> ''
    and case when :is_safe then true else set_config('synchronous_commit', 'off', true) <> '' end
    else false end

-- name: turn_enter
with entered as (
    update sessions set {part_begin_turn}
    where {part_can_enter} and case when {part_is_undisputed} then {part_takes_lane} else false end
    returning {part_session}, sessions.indexed_seq
), message as (
    insert into messages (place, turn, role, author, at, body)
    select (ref << 32) + last_seq, turns, 'user', :author, :now, :body from entered
), turn as (
    insert into turns (session, number, state, arrival, began_at, first_seq, token)
    select ref, turns, 'open', :arrival, :now, last_seq, :token from entered
), awaited as (
    insert into unindexed (session) select ref from entered where last_seq - :count <= indexed_seq
    on conflict (session) do nothing
)
select * from entered

-- name: part_locked_item
-- The claimed message that the answer settles. Whoever claims it again does not wait for its lane.
item as (
    select id, key from inbox
    where id = :item and state = {part_inbox_claimed} and attempts = :attempts for update
)

-- name: part_answer_columns
-- What `part_step_columns` is for the last step of a turn.
last_seq = last_seq + 1, version = version + 1, lease_until = 0, open_turn = null

-- name: part_is_claimed
-- For the answer that settles a message: that message is still claimed.
case when open_turn = :turn then {part_is_read_committed}
    and (cast(:item as bigint) is null or exists (select 1 from item)) else false end

-- name: part_answered
returning ref, last_seq, turns, indexed_seq, platform, person

-- name: part_answer_rows
message as (
    insert into messages (place, turn, role, kind, at, body)
    select (ref << 32) + last_seq, :turn, 'assistant', :kind, :now, :body from answered
), awaited as (
    insert into unindexed (session) select ref from answered where last_seq - 1 <= indexed_seq
    on conflict (session) do nothing
), closed as (
    update turns set state = 'answered', closed_at = :now, answer_seq = (select last_seq from answered)
    where turns.session = (select ref from answered) and turns.number = :turn
)

-- name: part_answer_queues
delivered as (
    insert into outbox (
        delivery, session_id, target, platform, account, chat_id, thread_id, body, state,
        not_before, created_at, is_next, node
    )
    select :delivery, :id, :target, :platform, :account, :chat_id, :thread_id, :delivered, 'waiting',
        :now, :now, {part_outbox_is_head}, :node
    from answered where cast(:delivery as text) is not null
    on conflict (delivery) do nothing
), settled as (
    update inbox set state = 'done', problem = null, is_next = 0
    from answered, item where inbox.id = item.id
    returning item.key
), promoted as (
    -- The row is looked up by an id that is known before: a join with `settled` read the whole inbox,
    -- if the server had planned it while there were few messages.
    update inbox set is_next = 1
    where id = (
        select (
            select min(waiting.id) from inbox as waiting
            where waiting.key = settled.key and waiting.state = 'waiting'
        ) from settled
    )
)

-- name: part_answer_usage
ledger as (
    insert into usage_new (
        session_id, turn, at, platform, person, model, provider, base_url,
        input, output, cache_read, cache_write, reasoning, cost, certainty, cost_source
    )
    select :id, :turn, :now, answered.platform, coalesce(:person, answered.person), :model,
        :provider, :base_url, :input, :output, :cache_read, :cache_write, :reasoning,
        cast(:cost as bigint), :certainty, :cost_source
    from answered
)

-- name: turn_answer
-- The server sets up every part of a statement at each call, also one that finds no rows: an answer
-- that is delivered or settles a message has a statement of its own.
with answered as (
    update sessions set {part_answer_columns}
    {part_can_answer} and {part_takes_lane} {part_answered}
), {part_answer_rows}
select last_seq from answered

-- name: turn_answer_with_usage
with answered as (
    update sessions set {part_answer_columns},
    {part_add_usage}
    {part_can_answer} and {part_takes_lane} {part_answered}
), {part_answer_usage}, {part_answer_rows}
select last_seq from answered

-- name: turn_answer_queued
with {part_locked_item}, answered as (
    update sessions set {part_answer_columns}
    {part_can_answer} and {part_is_claimed} {part_answered}
), {part_answer_rows}, {part_answer_queues}
select last_seq from answered

-- name: turn_answer_queued_with_usage
with {part_locked_item}, answered as (
    update sessions set {part_answer_columns},
    {part_add_usage}
    {part_can_answer} and {part_is_claimed} {part_answered}
), {part_answer_usage}, {part_answer_rows}, {part_answer_queues}
select last_seq from answered
