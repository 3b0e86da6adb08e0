-- `is_next` marks the head of the queue of a chat: see 0003_queues.

-- name: part_outbox_columns
id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state, attempts,
not_before, created_at, sent_at, problem

-- name: outbox_put
insert into outbox (
    delivery, session_id, target, platform, account, chat_id, thread_id, body, state, not_before,
    created_at, is_next
) values (
    :delivery, :session_id, :target, :platform, :account, :chat_id, :thread_id, :body, 'waiting',
    :now, :now,
    case when exists (select 1 from outbox where is_next = 1 and {part_same_chat})
        then 0 else 1 end
) on conflict (delivery) do nothing

-- name: outbox_find_lost
-- The sender is gone: it is unknown whether the delivery arrived.
select id, platform, account, chat_id, thread_id from outbox
where state = 'sending' and lease_until < {part_db_now} {part_skip_locked}

-- name: outbox_set_unknown
update outbox set state = 'unknown', is_next = 0, problem = 'the sender was lost while sending'
where id = :id

-- name: outbox_resend
update outbox set state = 'waiting', problem = 'the sender was lost while sending' where id = :id

-- name: outbox_promote
-- Mark the oldest waiting delivery of a chat as its next one, if none is marked.
update outbox set is_next = 1
where id = (select min(id) from outbox where state = 'waiting' and {part_same_chat})
    and not exists (select 1 from outbox where is_next = 1 and {part_same_chat})

-- name: outbox_claim
update outbox set state = 'sending', attempts = attempts + 1, lease_until = {part_db_now} + :lease
where id in (
    select id from outbox where state = 'waiting' and is_next = 1 and not_before <= :now
    order by not_before, id limit :limit {part_skip_locked}
)
returning {part_outbox_columns}

-- name: outbox_claim_for
update outbox set state = 'sending', attempts = attempts + 1, lease_until = {part_db_now} + :lease
where id in (
    select id from outbox
    where state = 'waiting' and is_next = 1 and platform = :platform and not_before <= :now
    order by not_before, id limit :limit {part_skip_locked}
)
returning {part_outbox_columns}

-- name: outbox_is_due_for
select exists (
    select 1 from outbox
    where state = 'waiting' and is_next = 1 and platform = :platform and not_before <= :now
) or exists (
    select 1 from outbox
    where state = 'sending' and platform = :platform and lease_until < {part_db_now}
)

-- name: outbox_is_due
select exists (
    select 1 from outbox where state = 'waiting' and is_next = 1 and not_before <= :now
) or exists (select 1 from outbox where state = 'sending' and lease_until < {part_db_now})

-- name: outbox_renew
update outbox set lease_until = {part_db_now} + :lease
where id = :id and state = 'sending' and attempts = :attempts

-- name: outbox_settle
update outbox set state = :state, not_before = :not_before, problem = :problem,
    is_next = case when :state = 'waiting' then is_next else 0 end,
    sent_at = case when :state = 'sent' then :now else sent_at end
where id = :id and state in ('sending', 'unknown', 'dead') and attempts = :attempts
returning {part_outbox_columns}

-- name: outbox_get
select {part_outbox_columns} from outbox where delivery = :delivery

-- name: outbox_find
select {part_outbox_columns} from outbox
where id > :after and (cast(:session_id as text) is null or session_id = :session_id)
order by id limit :limit

-- name: outbox_find_by_state
select {part_outbox_columns} from outbox
where id > :after and state = :state
    and (cast(:session_id as text) is null or session_id = :session_id)
order by id limit :limit

-- name: outbox_delete
delete from outbox where session_id = :session_id
returning platform, account, chat_id, thread_id
