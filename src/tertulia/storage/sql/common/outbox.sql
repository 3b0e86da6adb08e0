-- name: part_parcel
id, delivery, session_id, target, platform, account, chat_id, thread_id, body, state, attempts,
not_before, created_at, sent_at, problem

-- name: outbox_put
insert into outbox (
    delivery, session_id, target, platform, account, chat_id, thread_id, body, state, not_before,
    created_at
) values (
    :delivery, :session_id, :target, :platform, :account, :chat_id, :thread_id, :body, 'waiting',
    :now, :now
) on conflict (delivery) do nothing

-- name: part_unsent
-- In these words SQLite knows that the index over them will do.
state in ('waiting', 'sending')

-- name: outbox_expire
-- Whoever was sending is gone: whether it arrived, nobody knows.
update outbox set state = 'unknown', problem = 'the sender was lost while sending'
where {part_unsent} and state = 'sending' and lease_until < {part_db_now}

-- name: outbox_claim
-- In order for each chat: nothing is sent while something older for the chat waits or is under way.
update outbox set state = 'sending', attempts = attempts + 1, lease_until = {part_db_now} + :lease
where id in (
    select id from outbox
    where state = 'waiting' and not_before <= :now and id in (
        select min(id) from outbox where {part_unsent}
        group by platform, account, chat_id, thread_id
    )
    order by id limit :limit
)
returning {part_parcel}

-- name: outbox_settle
update outbox set state = :state, not_before = :not_before, problem = :problem,
    sent_at = case when :state = 'sent' then :now else sent_at end
where id = :id and state in ('sending', 'unknown', 'dead') and attempts = :attempts

-- name: outbox_get
select {part_parcel} from outbox where delivery = :delivery

-- name: outbox_find
select {part_parcel} from outbox
where id > :after and (cast(:state as text) is null or state = :state)
    and (cast(:session_id as text) is null or session_id = :session_id)
order by id limit :limit

-- name: outbox_delete
delete from outbox where session_id = :session_id

-- name: part_arrived
id, arrival, key, source, body, state, attempts, not_before, received_at, problem

-- name: inbox_put
insert into inbox (arrival, key, source, body, state, not_before, received_at)
values (:arrival, :key, :source, :body, 'waiting', :now, :now)
on conflict do nothing returning {part_arrived}

-- name: inbox_by_arrival
select {part_arrived} from inbox where arrival = :arrival

-- name: part_unanswered
state in ('waiting', 'taken')

-- name: inbox_expire
update inbox set state = 'waiting'
where {part_unanswered} and state = 'taken' and lease_until < {part_db_now}

-- name: inbox_claim
-- In order for each conversation, one at a time.
update inbox set state = 'taken', attempts = attempts + 1, lease_until = {part_db_now} + :lease
where id in (
    select id from inbox
    where state = 'waiting' and not_before <= :now and id in (
        select min(id) from inbox where {part_unanswered} group by key
    )
    order by id limit :limit
)
returning {part_arrived}

-- name: inbox_settle
update inbox set state = :state, not_before = :not_before, problem = :problem
where id = :id and state = 'taken' and attempts = :attempts

-- name: inbox_find
select {part_arrived} from inbox
where id > :after and (cast(:state as text) is null or state = :state) and (cast(:key as text) is null or key = :key)
order by id limit :limit

-- name: inbox_delete
-- What was accepted for a turn of a session goes with the session.
delete from inbox where arrival in (select arrival from turns where session = :session)
