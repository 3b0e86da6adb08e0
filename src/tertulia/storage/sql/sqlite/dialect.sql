-- name: part_db_now
cast(unixepoch('subsec') * 1000000 as integer)

-- name: part_skip_locked
-- Empty: there is one writer at a time.

-- name: part_outbox_lane
platform = :platform and account = :account
and coalesce(chat_id, '') = coalesce(cast(:chat_id as text), '')
and coalesce(thread_id, '') = coalesce(cast(:thread_id as text), '')

-- name: lock_sessions_table
-- A writing transaction has the whole file locked.
select 1

-- name: lock_other_tables
select 1
