-- name: part_db_now
cast(unixepoch('subsec') * 1000000 as integer)
