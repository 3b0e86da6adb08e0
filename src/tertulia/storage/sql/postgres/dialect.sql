-- name: part_db_now
cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)

-- name: part_skip_locked
for update skip locked
