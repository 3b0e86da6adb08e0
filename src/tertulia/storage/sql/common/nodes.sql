-- Nodes and their signs of life. All times are those of the database.

-- name: node_report
insert into nodes (name, version, turns, began_at, seen_at, process)
values (:name, :version, :turns, {part_db_now}, {part_db_now}, :process)
on conflict (name) do update set
    version = excluded.version, turns = excluded.turns, seen_at = excluded.seen_at

-- name: node_forget
delete from nodes where name = :name or seen_at < {part_db_now} - :age

-- name: nodes_processes
select name, process from nodes where process is not null order by name limit :limit

-- name: node_end_claims
-- What the node was answering can be claimed again, as in inbox_expire.
update inbox {part_inbox_by_lease} set state = 'waiting' where state = 'taken' and worker = :name

-- name: node_end_sending
-- The outcome of what its terminal was showing is unknown, see outbox_find_lost.
update outbox {part_outbox_by_lease} set lease_until = 0 where state = 'sending' and node = :name

-- name: node_end_listening
update listeners set node = '', until = 0 where node = :name

-- name: nodes_find
-- A sign of life from a time to come is from before the clock was set back: a node that lives has
-- given another one since.
select name, version, turns, began_at, seen_at,
    {part_db_now} - seen_at < :age and seen_at - {part_db_now} < :age
from nodes order by began_at, name limit :limit

-- name: listeners_find
select platform, account, node, epoch, until, not {part_listener_is_over}
from listeners order by platform, account limit :limit
