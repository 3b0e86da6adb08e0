-- name: part_db_now
cast(unixepoch('subsec') * 1000000 as integer)

-- name: part_skip_locked
-- There is one writer at a time.
