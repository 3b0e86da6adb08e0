-- Nodes and their signs of life, for looking only. All times are those of the database.

-- name: node_report
insert into nodes (name, version, turns, began_at, seen_at)
values (:name, :version, :turns, {part_db_now}, {part_db_now})
on conflict (name) do update set
    version = excluded.version, turns = excluded.turns, seen_at = excluded.seen_at

-- name: node_forget
delete from nodes where name = :name or seen_at < {part_db_now} - :age

-- name: nodes_find
-- A sign of life from a time to come is from before the clock was set back: a node that lives has
-- given another one since.
select name, version, turns, began_at, seen_at,
    {part_db_now} - seen_at < :age and seen_at - {part_db_now} < :age
from nodes order by began_at, name limit :limit

-- name: listeners_find
select platform, account, node, epoch, until, not {part_listener_is_over}
from listeners order by platform, account limit :limit
