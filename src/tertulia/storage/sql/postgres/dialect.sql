-- name: part_db_now
cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)
