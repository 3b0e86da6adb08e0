-- name: part_db_now
cast(unixepoch('subsec') * 1000000 as integer)

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

-- name: lock_sessions_table
-- A writing transaction has the whole file locked.
select 1

-- name: lock_other_tables
select 1

-- name: part_{queue}_by_due (inbox, outbox)
-- Without statistics SQLite prefers an index on the state alone, and reads all that waits. With
-- `indexed by` a statement that cannot use its index is an error.
indexed by {queue}_due

-- name: part_outbox_by_due_for
indexed by outbox_due_for

-- name: part_outbox_by_due_for_account
indexed by outbox_due_for_account

-- name: part_{queue}_by_pause (inbox, outbox, occurrences)
indexed by {queue}_paused

-- name: part_outbox_by_pause_for
indexed by outbox_paused_for

-- name: part_outbox_by_pause_for_account
indexed by outbox_paused_for_account

-- name: part_{queue}_by_pause_begin (inbox, outbox, occurrences)
indexed by {queue}_pause_begin

-- name: part_{queue}_by_lease (inbox, outbox, occurrences)
indexed by {queue}_leased

-- name: part_{queue}_by_settled (inbox, outbox, occurrences)
indexed by {queue}_settled

-- name: part_people_by_strangers
indexed by people_strangers

-- name: usage_running_at
-- The totals before each of some quarters. SQLite keeps the order of a cross join.
select name, platform, model, value, running.calls, running.input, running.output, running.cache_read, running.cache_write, running.reasoning, running.cost, running.priced, running.unknown, running.estimated, running.actual
from usage_groups cross join json_each(:quarters) cross join usage_running running
where kind = :kind and (:name is null or name = :name)
    and running.group_id = usage_groups.id and running.quarter = (
        select max(quarter) from usage_running where group_id = usage_groups.id and quarter < value
    )
