-- What only PostgreSQL needs. The parts `…_by_…` are empty: it has statistics, and chooses the partial
-- indexes by itself (tests/records/queues/test_statement_cost.py).

-- name: part_db_now
cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)

-- name: commit_state
-- Which transactions are visible; it changes with every one that ends and has written.
select cast(pg_current_snapshot() as text)

-- name: part_skip_locked
for update skip locked

-- name: part_by_activity
-- Without this condition, which always holds, the index `sessions_active` cannot be used. So nothing
-- but lists uses it (0039_active_index.sql).
and sessions.ref > 0

-- name: part_outbox_lane
-- By hash, like the index: an id may be longer than an index entry can be.
platform = :platform and account = :account
and md5(coalesce(chat_id, '')) = md5(coalesce(cast(:chat_id as text), ''))
and md5(coalesce(thread_id, '')) = md5(coalesce(cast(:thread_id as text), ''))

-- name: part_inbox_by_person
-- Empty: the statistics of PostgreSQL lead it to the index.

-- name: part_is_inbox_head
-- An array, so that the rows are looked up by their ids and nothing else is read.
id = any (array(select heads.id from heads where heads.id is not null limit :limit))

-- name: part_room_of_person
coalesce(cast(cast(:rooms as jsonb) ->> person as bigint), :room)

-- name: part_is_outbox_head
id = any (array(select heads.id from heads where heads.id > 0 limit :limit))

-- name: part_outbox_accounts
(
    select value ->> 0 as platform, value ->> 1 as account, cast(value ->> 2 as bigint) as room
    from jsonb_array_elements(cast(:accounts as jsonb)) as value
) as accounts

-- name: part_session_ids
sessions.id = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- name: part_person_ids
people.person = any (array(select jsonb_array_elements_text(cast(:ids as jsonb))))

-- name: part_message_places
place = any (cast(translate(:places, '[]', '{}') as bigint[]))

-- name: part_outbox_chat_name
md5(platform || '/' || account || '/' || coalesce(chat_id, ''))

-- name: part_outbox_wanted_chat
md5(:platform || '/' || :account || '/' || coalesce(cast(:chat_id as text), ''))

-- name: part_outbox_chat
-- A range, and sorted by it. For an equals sign the server may read the primary key, with all other
-- chats in it, until it has found enough.
{part_outbox_chat_name} between {part_outbox_wanted_chat} and {part_outbox_wanted_chat}
and platform = :platform and account = :account

-- name: part_outbox_oldest_first
order by {part_outbox_chat_name}, id

-- name: part_outbox_newest_first
order by {part_outbox_chat_name} desc, id desc

-- name: lock_sessions_table
-- From here on no other transaction may write. `sessions` is locked against readers too: a transaction
-- that has read it and goes on to write would wait for this one, and this one for it when it renames
-- the table.
lock table sessions in access exclusive mode

-- name: lock_other_tables
lock table
    installation, people, links, codes, wrong_codes, messages, blobs, message_blobs,
    revisions, borrowings, turns, events, usage_kept, usage_new, usage_sums, usage_groups, usage_running,
    usage_newest, spending, inbox, outbox, flushes, newcomers,
    schedules, occurrences, processes, listeners, connections, bot_messages, pending_media,
    memories, memories_off, deleted_messages, approvals, approval_grants, mcp_pins,
    chat_chains, person_ids, agent_choices, session_agents, prompt_texts, people_events
in exclusive mode

-- name: part_{queue}_by_due (outbox)

-- name: part_outbox_by_due_for

-- name: part_outbox_by_due_for_account

-- name: part_{queue}_by_pause (inbox, outbox, occurrences)

-- name: part_{queue}_by_pause_begin (inbox, outbox, occurrences)

-- name: part_{queue}_by_lease (inbox, outbox, occurrences)

-- name: part_{queue}_by_settled (inbox, outbox, occurrences)

-- name: part_people_by_strangers

-- name: usage_running_at
-- The totals of each kind before each of its limits.
select {part_running_columns}, quarters.value,
    running.calls, running.input, running.output, running.cache_read, running.cache_write, running.reasoning, running.cost, running.priced, running.unknown, running.estimated, running.actual
from jsonb_each(cast(:limits as jsonb)) kinds
cross join lateral (
    select cast(jsonb_array_elements_text(kinds.value) as bigint) as value
) quarters
cross join lateral (
    select * from usage_groups
    where usage_groups.kind = kinds.key and (cast(:person as text) is null or name = :person)
) usage_groups
cross join lateral (
    select * from usage_running where group_id = usage_groups.id and quarter < quarters.value
    order by quarter desc limit 1
) running

-- name: sessions_current_page
-- The newest of each platform, each read in the order of the index.
{part_platforms_current}
select newest.* from known cross join lateral (
    select {part_session} from sessions where sessions.platform = known.name and ended_at is null
        {part_by_activity} {part_filters}
    {part_newest}
) newest
where known.name is not null

-- name: sessions_ended_page
-- The newest of each platform, each read in the order of the index.
{part_platforms_ended}
select newest.* from known cross join lateral (
    select {part_session} from sessions where sessions.platform = known.name and ended_at is not null
        {part_filters}
    {part_newest}
) newest
where known.name is not null

-- name: part_next_usage_id
default

-- name: usage_new_take
-- Moves the oldest new calls to the others, and returns their sums. It is one statement: another one
-- would see calls that were committed in between.
with taken as (
    delete from usage_new where id in (select id from usage_new order by id limit :limit) returning *
), moved as (
    insert into usage_kept overriding system value select * from taken
)
{part_summed} from taken group by 1, 2, 3, 4
