-- name: part_overriding_numbers

-- name: copy_continue_numbers
-- SQLite itself continues after the highest number.
select 1
