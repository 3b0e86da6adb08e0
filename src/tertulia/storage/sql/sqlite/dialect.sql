-- name: part_db_now
-- The clock of the machine; a value, so that a statement can run again with the same effect.
:db_now

-- name: commit_state
-- It changes when another connection has committed.
pragma data_version

-- name: part_skip_locked
-- Empty: there is one writer at a time.

-- name: part_by_activity
-- Empty: SQLite uses the index for nothing but lists.

-- name: part_outbox_lane
platform = :platform and account = :account
and coalesce(chat_id, '') = coalesce(cast(:chat_id as text), '')
and coalesce(thread_id, '') = coalesce(cast(:thread_id as text), '')

-- name: part_inbox_by_person
indexed by inbox_due_person

-- name: part_is_inbox_head
id in (select heads.id from heads where heads.id is not null limit :limit)

-- name: part_room_of_person
coalesce((select value from json_each(:rooms) where key = person), :room)

-- name: part_is_read_committed
-- There is one writer at a time, which sees everything that was committed before.
true

-- name: part_is_outbox_head
id in (select heads.id from heads where heads.id > 0 limit :limit)

-- name: part_outbox_accounts
(
    select json_extract(value, '$[0]') as platform, json_extract(value, '$[1]') as account,
        json_extract(value, '$[2]') as room
    from json_each(:accounts)
) as accounts

-- name: part_session_ids
sessions.id in (select value from json_each(:ids))

-- name: part_person_ids
people.person in (select value from json_each(:ids))

-- name: part_message_places
place in (select value from json_each(:places))

-- name: part_outbox_chat
platform || '/' || account || '/' || coalesce(chat_id, '')
= :platform || '/' || :account || '/' || coalesce(cast(:chat_id as text), '')
and platform = :platform and account = :account

-- name: part_outbox_oldest_first
order by id

-- name: part_outbox_newest_first
order by id desc

-- name: lock_sessions_table
-- A writing transaction has the whole file locked.
select 1

-- name: lock_other_tables
select 1

-- name: part_{queue}_by_due (outbox)
-- Without statistics SQLite prefers an index on the state alone, and reads all that waits. With
-- `indexed by` a statement that cannot use its index is an error.
indexed by {queue}_due

-- name: part_outbox_by_due_for
indexed by outbox_due_for

-- name: part_outbox_by_due_for_account
indexed by outbox_due_for_account

-- name: part_{queue}_by_pause (inbox, outbox, occurrences)
indexed by {queue}_paused

-- name: part_{queue}_by_pause_begin (inbox, outbox, occurrences)
indexed by {queue}_pause_begin

-- name: part_{queue}_by_lease (inbox, outbox, occurrences)
indexed by {queue}_leased

-- name: part_{queue}_by_settled (inbox, outbox, occurrences)
indexed by {queue}_settled

-- name: part_people_by_strangers
indexed by people_strangers

-- name: usage_running_at
-- The totals of each kind before each of its limits. SQLite keeps the order of a cross join.
select {part_running_columns}, quarters.value,
    running.calls, running.input, running.output, running.cache_read, running.cache_write, running.reasoning, running.cost, running.priced, running.unknown, running.estimated, running.actual
from json_each(:limits) kinds cross join usage_groups cross join json_each(kinds.value) quarters
    cross join usage_running running
where kind = kinds.key and (:person is null or name = :person)
    and running.group_id = usage_groups.id and running.quarter = (
        select max(quarter) from usage_running
        where group_id = usage_groups.id and quarter < quarters.value
    )

-- name: sessions_current_page
-- The newest of each platform, each read in the order of the index. SQLite has no lateral join, but
-- a list of references can depend on the platform.
{part_platforms_current}
select {part_session}
from known cross join json_each((
    select json_group_array(newest.ref) from (
        select sessions.ref from sessions where sessions.platform = known.name and ended_at is null
            {part_by_activity} {part_filters}
        {part_newest}
    ) newest
)) chosen cross join sessions
where known.name is not null and sessions.ref = chosen.value

-- name: sessions_ended_page
-- The newest of each platform, each read in the order of the index. SQLite has no lateral join, but
-- a list of references can depend on the platform.
{part_platforms_ended}
select {part_session}
from known cross join json_each((
    select json_group_array(newest.ref) from (
        select sessions.ref from sessions where sessions.platform = known.name and ended_at is not null
            {part_filters}
        {part_newest}
    ) newest
)) chosen cross join sessions
where known.name is not null and sessions.ref = chosen.value

-- name: part_next_usage_id
(select coalesce((select max(id) from usage_new), (select max(id) from usage_kept), 0) + 1)

-- name: part_oldest_new_usage
from usage_new
where id <= (select max(id) from (select id from usage_new order by id limit :limit) oldest)

-- name: usage_new_take
-- Moves the oldest new calls to the others, and returns their sums.
insert into usage_kept select * {part_oldest_new_usage};
{part_summed} {part_oldest_new_usage} group by 1, 2, 3, 4;
delete {part_oldest_new_usage}
