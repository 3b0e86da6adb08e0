-- Accepted messages; the lane of one is its conversation. See also queues.sql.

-- name: part_inbox_columns
id, arrival, key, source, body, state, attempts, not_before, received_at, problem, gathered_into,
node, worker

-- name: part_inbox_claimed
'taken'

-- name: part_inbox_claim_also
worker = cast(:worker as text),

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

-- name: inbox_accept
-- A message that nothing has to be decided about: it is new, its chat is not linked, and its author
-- may have one more waiting. Otherwise nothing changes, and `Inbox.put` decides.
insert into inbox (
    arrival, key, person, source, body, state, not_before, paused_at, received_at, is_next, node
)
select :arrival, :key, :person, :source, :body, 'waiting', :not_before, :paused_at, :now,
    {part_inbox_is_head}, :node
where {part_is_read_committed}
    and not exists (select 1 from inbox where arrival = :arrival)
    and not exists (select 1 from deleted_messages where hash = :hash)
    and not exists (select 1 from links where key = :key)
    and (:waiting_limit = 0 or (
        select count(*) from (
            select 1 from inbox where person = :person and state = 'waiting' limit :waiting_limit
        ) waiting
    ) < :waiting_limit)
returning {part_inbox_columns}

-- name: part_next_person
select inbox.person from inbox {part_inbox_by_person}
where {part_head_is_due} and {part_is_ours}

-- name: part_inbox_heads
-- Due messages in the order of a claim, which goes round the people from the one after `:person`:
-- the oldest message of each, then the next one of each. Nobody gets more than there is room for:
-- `:rooms` by person, else `:room`. One seek in the index for each, however many messages wait.
with recursive after_last (person, step) as (
    select person, step from (
        select person, 1 as step from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and person > :person order by person limit 1
    ) first_person
    union all
    select (
        {part_next_person} and inbox.person > after_last.person order by inbox.person limit 1
    ), step + 1
    from after_last where after_last.person is not null and step < :people
), from_start (person, step) as (
    select person, step from (
        select person, 1 as step from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and person >= '' and person <= :person order by person limit 1
    ) first_person
    union all
    select (
        {part_next_person} and inbox.person > from_start.person and inbox.person <= :person
        order by inbox.person limit 1
    ), step + 1
    from from_start where from_start.person is not null and step < :people
), people_due (person, room) as (
    select person, {part_room_of_person} from after_last where person is not null
    union all
    select person, {part_room_of_person} from from_start where person is not null
), heads (person, room, number, id) as (
    select person, room, 1, (
        select inbox.id from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and inbox.person = people_due.person order by inbox.id limit 1
    ) from people_due where room > 0
    union all
    select person, room, number + 1, (
        select inbox.id from inbox {part_inbox_by_person}
        where {part_head_is_due} and {part_is_ours} and inbox.person = heads.person and inbox.id > heads.id
        order by inbox.id limit 1
    ) from heads where heads.id is not null and number < room
)

-- name: inbox_claim
{part_inbox_heads}
{part_inbox_claim}
where id in (
    select id from inbox where {part_is_inbox_head} and {part_head_is_due} and {part_is_ours}
    {part_skip_locked}
)
returning {part_inbox_columns}

-- name: inbox_is_due
{part_inbox_heads}
select (select id from heads where id is not null limit 1) is not null
    or {part_inbox_is_woken}
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
select 0, '', '', '', '', 'done', 0, at, at, null, null, null, null
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

-- name: deleted_session_put
-- Only for a session that schedules ran in: files of their results may be left.
insert into deleted_messages (hash, at)
select :hash, :at where exists (
    select 1 from turns where session = :session and arrival like '%schedule%'
) on conflict (hash) do nothing

-- name: deleted_message_get
select 1 from deleted_messages where hash = :hash

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

-- name: inbox_newest_open
select {part_inbox_columns} from inbox
where {part_inbox_to_review} order by id desc

-- name: inbox_dead_by_problem
select {part_inbox_columns} from inbox
where state = 'dead' and {part_problem} = :problem and id < :before
order by id desc limit :limit

-- name: inbox_settle_dead
update inbox set state = :state, not_before = :now, paused_at = 0, problem = :problem
where id = :id and state = 'dead' and attempts = :attempts

-- name: inbox_count_settled
-- Counted up to the limit only.
select count(*), count(case when state = 'dead' then 1 end) from (
    select state from inbox {part_inbox_by_settled}
    where state in ('done', 'dead', 'gathered') and received_at >= :since limit :limit
) ended
