-- Deliveries; the lane of one is its chat. See also queues.sql, and dialect.sql for part_outbox_lane.

-- name: part_outbox_columns
id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state, attempts,
not_before, created_at, sent_at, problem, message_id, waived, node

-- name: part_outbox_claimed
'sending'

-- name: part_outbox_claim_also
first_sent_at = coalesce(first_sent_at, {part_db_now}),

-- name: part_outbox_open
'sending', 'unknown', 'dead'

-- name: part_outbox_settle
is_next = case when :state = 'waiting' then is_next else 0 end,
sent_at = case when :state = 'sent' then :now else sent_at end,
message_id = coalesce(cast(:message_id as text), message_id),
waived = waived + :waived,
first_sent_at = case when :state = 'unknown' then first_sent_at else null end

-- name: outbox_put
insert into outbox (
    delivery, session_id, target, platform, account, chat_id, thread_id, body, state, not_before,
    created_at, is_next, node
) values (
    :delivery, :session_id, :target, :platform, :account, :chat_id, :thread_id, :body, 'waiting',
    :now, :now,
    {part_outbox_is_head}, :node
) on conflict (delivery) do nothing

-- name: outbox_find_lost
-- The sender is gone: it is unknown whether the delivery arrived.
select id, {part_db_now} - first_sent_at, body, platform, account, chat_id, thread_id
from outbox {part_outbox_by_lease}
where {part_outbox_lost} {part_skip_locked}

-- name: outbox_set_unknown
update outbox set state = 'unknown', is_next = 0, problem = 'the sender was lost while sending'
where id = :id

-- name: outbox_resend
update outbox set state = 'waiting', problem = 'the sender was lost while sending' where id = :id

-- name: part_next_due
-- The next due delivery of an account; of the whole platform if there is no account. Rows are
-- compared as a whole, in the order of an index: only that index can be used, from that row on.
case when heads.account is null then (
    select case when next.platform = heads.platform then next.id end from (
        select platform, id from outbox {part_outbox_by_due_for}
        where {part_head_is_due} and {part_is_ours} and (platform, id) > (heads.platform, heads.id)
        order by platform, id limit 1
    ) as next
) else (
    select case when next.platform = heads.platform and next.account = heads.account then next.id end
    from (
        select platform, account, id from outbox {part_outbox_by_due_for_account}
        where {part_head_is_due} and {part_is_ours}
            and (platform, account, id) > (heads.platform, heads.account, heads.id)
        order by platform, account, id limit 1
    ) as next
) end

-- name: outbox_claim_for
-- For several accounts at once, each with room for some: the oldest of each, then the next of each.
-- One seek in the index for each delivery, however many wait.
with recursive heads (platform, account, room, number, id) as (
    select platform, account, room, 0, cast(0 as bigint) from {part_outbox_accounts}
    union all
    select platform, account, room, number + 1, {part_next_due}
    from heads where heads.id is not null and number < room
)
{part_outbox_claim}
where id in (
    select id from outbox where {part_is_outbox_head} and {part_head_is_due} and {part_is_ours}
    {part_skip_locked}
)
returning {part_outbox_columns}

-- name: outbox_is_due_for
-- A row for each account: whether something can be claimed. Every claim ends the pauses that are
-- over, of all accounts, so there are few to look at.
select {part_next_due} is not null
    or (
        select id from outbox {part_outbox_by_pause}
        where {part_outbox_paused} and not_before <= :now and platform = heads.platform
            and account = coalesce(heads.account, account)
        order by not_before limit 1
    ) is not null
    or (
        select id from outbox {part_outbox_by_pause_begin}
        where {part_outbox_paused} and paused_at > :future and platform = heads.platform
            and account = coalesce(heads.account, account)
        order by paused_at limit 1
    ) is not null
    or exists (
        select 1 from outbox {part_outbox_by_lease}
        where {part_outbox_lost} and platform = heads.platform
            and account = coalesce(heads.account, account)
    )
from (select platform, account, cast(0 as bigint) as id from {part_outbox_accounts}) as heads

-- name: outbox_settle_late
update outbox set state = :state, not_before = :not_before, problem = :problem,
    {part_outbox_settle}
where id = :id
returning {part_outbox_columns}

-- name: outbox_get
select {part_outbox_columns} from outbox where delivery = :delivery

-- name: outbox_find_by_session
select {part_outbox_columns} from outbox
where id > :after and session_id = :session_id and (cast(:state as text) is null or state = :state)
order by id limit :limit

-- name: outbox_in_chat
select {part_outbox_columns} from outbox where {part_outbox_chat} and id > :after
{part_outbox_oldest_first} limit :limit

-- name: outbox_newest_in_chat
select {part_outbox_columns} from outbox where {part_outbox_chat}
{part_outbox_newest_first} limit :limit

-- name: outbox_head_of_chat
select id, state, paused_at from outbox where {part_outbox_lane} and is_next = 1

-- name: outbox_resume
update outbox set paused_at = 0 where id = :id and state = 'waiting'

-- name: outbox_delete
delete from outbox where session_id = :session_id
returning platform, account, chat_id, thread_id, body

-- name: queues_overview
select 'outbox' as queue, id, platform, {part_problem} as problem, created_at, state from outbox
where {part_outbox_to_review}
union all
select 'inbox', id, source, {part_problem}, received_at, state from inbox
where {part_inbox_to_review}

-- name: queues_count_problems
-- Of each up to the limit only. Ranges instead of `state = …`: see part_only_state.
select
    (select count(*) from (
        select 1 from outbox where state >= 'unknown' and state <= 'unknown' limit :limit
    ) unknown_ones),
    (select count(*) from (
        select 1 from outbox where state >= 'dead' and state <= 'dead' limit :limit
    ) dead_ones),
    (select count(*) from (
        select 1 from inbox where state >= 'dead' and state <= 'dead' limit :limit
    ) unanswered_ones),
    (select count(*) from (
        select 1 from codes where purpose = 'pair' and until > :now limit :limit
    ) asking_ones)

-- name: outbox_newest_open
select {part_outbox_columns} from outbox
where {part_outbox_to_review} order by id desc

-- name: outbox_unknown_of_platform
select {part_outbox_columns} from outbox
where state = 'unknown' and platform = :platform and id < :before
order by id desc limit :limit

-- name: outbox_unknown_by_problem
select {part_outbox_columns} from outbox
where state = 'unknown' and platform = :platform and {part_problem} = :problem and id < :before
order by id desc limit :limit

-- name: outbox_dead_of_platform
select {part_outbox_columns} from outbox
where state = 'dead' and platform = :platform and id < :before
order by id desc limit :limit

-- name: outbox_dead_by_problem
select {part_outbox_columns} from outbox
where state = 'dead' and platform = :platform and {part_problem} = :problem and id < :before
order by id desc limit :limit
