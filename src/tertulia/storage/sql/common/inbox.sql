-- `is_next` marks the head of the queue of a conversation: see 0003_queues.

-- name: part_inbox_columns
id, arrival, key, source, body, state, attempts, not_before, received_at, problem, gathered_into

-- name: inbox_put
insert into inbox (arrival, key, source, body, state, not_before, received_at, is_next)
values (:arrival, :key, :source, :body, 'waiting', :not_before, :now,
    case when exists (select 1 from inbox where is_next = 1 and key = :key) then 0 else 1 end)
returning {part_inbox_columns}

-- name: inbox_put_gathered
insert into inbox (arrival, key, source, body, state, not_before, received_at, gathered_into)
values (:arrival, :key, :source, :body, 'gathered', :now, :now, :into)
returning {part_inbox_columns}

-- name: inbox_newest
select {part_inbox_columns} from inbox where key = :key and state <> 'gathered' order by id desc limit 1

-- name: inbox_set_body
update inbox set body = :body, not_before = :not_before where id = :id

-- name: inbox_gather
update inbox set state = 'done', is_next = 0, body = :body
where id = :id and state = 'waiting' and attempts = :attempts
returning key

-- name: inbox_by_dedupe_key
select {part_inbox_columns} from inbox where arrival = :arrival

-- name: inbox_expire
update inbox set state = 'waiting' where state = 'taken' and lease_until < {part_db_now}

-- name: inbox_promote
-- Mark the oldest waiting item of a conversation as its next one, if none is marked.
update inbox set is_next = 1
where id = (select min(id) from inbox where state = 'waiting' and key = :key)
    and not exists (select 1 from inbox where is_next = 1 and key = :key)

-- name: inbox_claim
update inbox set state = 'taken', attempts = attempts + 1, lease_until = {part_db_now} + :lease
where id in (
    select id from inbox where state = 'waiting' and is_next = 1 and not_before <= :now
    order by not_before, id limit :limit {part_skip_locked}
)
returning {part_inbox_columns}

-- name: inbox_is_due
select exists (
    select 1 from inbox where state = 'waiting' and is_next = 1 and not_before <= :now
) or exists (select 1 from inbox where state = 'taken' and lease_until < {part_db_now})

-- name: inbox_renew
update inbox set lease_until = {part_db_now} + :lease
where id = :id and state = 'taken' and attempts = :attempts

-- name: inbox_settle
update inbox set state = :state, not_before = :not_before, problem = :problem,
    is_next = case when :state = 'waiting' then is_next else 0 end
where id = :id and state = 'taken' and attempts = :attempts
returning key

-- name: inbox_find
select {part_inbox_columns} from inbox where id > :after order by id limit :limit

-- name: inbox_find_by_key
select {part_inbox_columns} from inbox
where id > :after and key = :key and (cast(:state as text) is null or state = :state)
order by id limit :limit

-- name: inbox_find_by_state
select {part_inbox_columns} from inbox where id > :after and state = :state order by id limit :limit

-- name: inbox_delete
-- Items that were accepted for turns of a session are deleted with the session.
delete from inbox where arrival in (select arrival from turns where session = :session)
returning key

-- name: inbox_delete_gathered
delete from inbox where gathered_into in (
    select id from inbox where arrival in (select arrival from turns where session = :session)
)
