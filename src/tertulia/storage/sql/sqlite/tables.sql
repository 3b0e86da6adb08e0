-- name: part_given_numbers

-- name: copy_numbers_go_on
-- SQLite itself continues after the highest number.
select 1
