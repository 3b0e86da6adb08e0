-- Accepted messages; the lane of one is its conversation. See also queues.sql.

-- name: part_inbox_columns
id, arrival, key, source, body, state, attempts, not_before, received_at, problem, gathered_into,
node

-- name: part_inbox_claimed
'taken'

-- name: part_inbox_claim_also
-- Nothing.

-- name: part_inbox_open
'taken'

-- name: part_inbox_settle
is_next = case when :state = 'waiting' then is_next else 0 end

-- name: part_inbox_lane
key = :key

-- name: inbox_put
insert into inbox (
    arrival, key, person, source, body, state, not_before, paused_at, received_at, is_next,
    node
) values (:arrival, :key, :person, :source, :body, 'waiting', :not_before, :paused_at, :now,
    {part_inbox_is_head}, :node)
returning {part_inbox_columns}

-- name: inbox_put_gathered
insert into inbox (arrival, key, source, body, state, not_before, received_at, gathered_into)
values (:arrival, :key, :source, :body, 'gathered', :now, :now, :into)
returning {part_inbox_columns}

-- name: inbox_count_waiting
-- Counted up to the limit only.
select count(*) from (
    select 1 from inbox where person = :person and state = 'waiting' limit :limit
) waiting

-- name: inbox_due_people
-- People with due messages, from one on in order, and the oldest due message of each: one seek in
-- the index for each of them, however many messages wait.
with recursive people_due (person, step) as (
    select person, step from (
        select person, 1 as step from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and person >= :person order by person limit 1
    ) first_person
    union all
    select (
        select inbox.person from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and inbox.person > people_due.person
        order by inbox.person limit 1
    ), step + 1
    from people_due where people_due.person is not null and step < :people
)
select person, (
    select inbox.id from inbox {part_inbox_by_person}
    where {part_head_is_due} and {part_is_ours} and inbox.person = people_due.person order by inbox.id limit 1
) from people_due where person is not null

-- name: inbox_claim_these
{part_inbox_claim}
where id in (
    select id from inbox where {part_inbox_ids} and {part_head_is_due} and {part_is_ours}
    {part_skip_locked}
)
returning {part_inbox_columns}

-- name: inbox_is_waking
-- Something is due that is not a due head yet: a pause has ended, or a claimer was lost.
select {part_inbox_is_woken}
    or exists (select 1 from inbox {part_inbox_by_lease} where {part_inbox_lost})

-- name: inbox_newest
-- A range instead of `key = …`: only the index on the key has this order, so that PostgreSQL cannot
-- read the table from its end in the hope to meet the key soon.
select {part_inbox_columns} from inbox where key >= :key and key <= :key and state <> 'gathered'
order by key desc, id desc limit 1

-- name: inbox_set_body
update inbox set body = :body, not_before = :not_before, paused_at = :paused_at where id = :id

-- name: inbox_edit
update inbox set body = :body where id = :id and state = 'waiting' and attempts = 0
returning {part_inbox_columns}

-- name: inbox_gather
update inbox set state = 'done', is_next = 0, body = :body
where id = :id and state = 'waiting' and attempts = :attempts

-- name: inbox_by_dedupe_key
select {part_inbox_columns} from inbox where arrival = :arrival

-- name: inbox_by_dedupe_key_or_hash
-- A message that was deleted with its session has the number 0 and no content.
select {part_inbox_columns} from inbox where arrival = :arrival
union all
select 0, '', '', '', '', 'done', 0, at, at, null, null, null
from deleted_messages where hash = :hash
limit 1

-- name: deleted_messages_of_session
select arrival from inbox where arrival in (select arrival from turns where session = :session)
union
select arrival from inbox where gathered_into in (
    select id from inbox where arrival in (select arrival from turns where session = :session)
)

-- name: deleted_message_put
insert into deleted_messages (hash, at) values (:hash, :at) on conflict (hash) do nothing

-- name: inbox_expire
update inbox {part_inbox_by_lease} set state = 'waiting' where {part_inbox_lost}

-- name: inbox_find_by_key
select {part_inbox_columns} from inbox
where id > :after and key = :key and (cast(:state as text) is null or state = :state)
order by id limit :limit

-- name: inbox_delete
-- Items that were accepted for turns of a session are deleted with the session.
delete from inbox where arrival in (select arrival from turns where session = :session)
returning key

-- name: inbox_delete_gathered
delete from inbox where gathered_into in (
    select id from inbox where arrival in (select arrival from turns where session = :session)
)

-- name: inbox_overview
select id, source, {part_problem}, received_at from inbox where {part_only_state}
order by state desc, id desc limit :limit

-- name: inbox_dead_by_problem
select {part_inbox_columns} from inbox
where state = 'dead' and {part_problem} = :problem and id < :before
order by id desc limit :limit

-- name: inbox_settle_dead
update inbox set state = :state, not_before = :now, paused_at = 0, problem = :problem
where id = :id and state = 'dead' and attempts = :attempts

-- name: inbox_count_settled
-- Counted up to the limit only.
select count(*) from (
    select 1 from inbox {part_inbox_by_settled}
    where state in ('done', 'dead', 'gathered') and received_at >= :since limit :limit
) ended
