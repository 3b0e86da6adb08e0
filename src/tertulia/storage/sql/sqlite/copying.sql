-- name: part_given_numbers

-- name: copy_numbers_go_on
-- SQLite counts on from the highest number by itself.
select 1
