-- name: part_db_now
cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)

-- name: part_skip_locked
for update skip locked

-- name: part_same_chat
-- By hash, as the index over them is: an id may be longer than an entry of an index.
platform = :platform and account = :account
and md5(coalesce(chat_id, '')) = md5(coalesce(cast(:chat_id as text), ''))
and md5(coalesce(thread_id, '')) = md5(coalesce(cast(:thread_id as text), ''))
