-- name: part_db_now
cast(unixepoch('subsec') * 1000000 as integer)

-- name: part_skip_locked
-- There is one writer at a time.

-- name: part_same_chat
platform = :platform and account = :account
and coalesce(chat_id, '') = coalesce(cast(:chat_id as text), '')
and coalesce(thread_id, '') = coalesce(cast(:thread_id as text), '')

-- name: lock_out
-- A transaction that writes has the file for itself.
select 1

-- name: lock_out_rest
select 1
