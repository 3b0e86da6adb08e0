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
select id, {part_db_now} - first_sent_at, platform, account, chat_id, thread_id
from outbox {part_outbox_by_lease}
where {part_outbox_lost} {part_skip_locked}

-- name: outbox_set_unknown
update outbox set state = 'unknown', is_next = 0, problem = 'the sender was lost while sending'
where id = :id

-- name: outbox_resend
update outbox set state = 'waiting', problem = 'the sender was lost while sending' where id = :id

-- name: outbox_claim_for
{part_outbox_claim}
where id in (
    select id from outbox {part_outbox_by_due_for}
    where {part_head_is_due} and {part_is_ours} and platform = :platform
    order by id limit :limit {part_skip_locked}
)
returning {part_outbox_columns}

-- name: outbox_wake_for
update outbox set paused_at = 0 where id in (
    select id from (
        select id from outbox {part_outbox_by_pause_for}
        where {part_outbox_paused} and platform = :platform
            and not_before <= :now
        order by not_before limit :limit {part_skip_locked}
    ) ended
    union all
    select id from (
        select id from outbox {part_outbox_by_pause_begin}
        where {part_outbox_paused} and paused_at > :future
        order by paused_at limit :limit {part_skip_locked}
    ) early
)

-- name: outbox_is_due_for
select (
    select id from outbox {part_outbox_by_due_for}
    where {part_head_is_due} and {part_is_ours} and platform = :platform
    order by id limit 1
) is not null or (
    select id from outbox {part_outbox_by_pause_for}
    where {part_outbox_paused} and platform = :platform
        and not_before <= :now
    order by not_before limit 1
) is not null or (
    select id from outbox {part_outbox_by_pause_begin}
    where {part_outbox_paused} and platform = :platform
        and paused_at > :future
    order by paused_at limit 1
) is not null or exists (
    select 1 from outbox {part_outbox_by_lease}
    where {part_outbox_lost} and platform = :platform
)

-- name: outbox_claim_for_account
{part_outbox_claim}
where id in (
    select id from outbox {part_outbox_by_due_for_account}
    where {part_head_is_due} and {part_is_ours} and platform = :platform and account = :account
    order by id limit :limit {part_skip_locked}
)
returning {part_outbox_columns}

-- name: outbox_wake_for_account
update outbox set paused_at = 0 where id in (
    select id from (
        select id from outbox {part_outbox_by_pause_for_account}
        where {part_outbox_paused} and platform = :platform and account = :account
            and not_before <= :now
        order by not_before limit :limit {part_skip_locked}
    ) ended
    union all
    select id from (
        select id from outbox {part_outbox_by_pause_begin}
        where {part_outbox_paused} and paused_at > :future
        order by paused_at limit :limit {part_skip_locked}
    ) early
)

-- name: outbox_is_due_for_account
select (
    select id from outbox {part_outbox_by_due_for_account}
    where {part_head_is_due} and {part_is_ours} and platform = :platform and account = :account
    order by id limit 1
) is not null or (
    select id from outbox {part_outbox_by_pause_for_account}
    where {part_outbox_paused} and platform = :platform and account = :account
        and not_before <= :now
    order by not_before limit 1
) is not null or (
    select id from outbox {part_outbox_by_pause_begin}
    where {part_outbox_paused} and platform = :platform and account = :account
        and paused_at > :future
    order by paused_at limit 1
) is not null or exists (
    select 1 from outbox {part_outbox_by_lease}
    where {part_outbox_lost} and platform = :platform and account = :account
)

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
order by id limit :limit

-- name: outbox_head_of_chat
select id, state, paused_at from outbox where {part_outbox_lane} and is_next = 1

-- name: outbox_resume
update outbox set paused_at = 0 where id = :id and state = 'waiting'

-- name: outbox_delete
delete from outbox where session_id = :session_id
returning platform, account, chat_id, thread_id, body

-- name: outbox_overview
select id, platform, {part_problem}, created_at from outbox where {part_only_state}
order by state desc, id desc limit :limit

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
