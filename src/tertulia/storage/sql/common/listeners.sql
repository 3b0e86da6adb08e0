-- The leases of listeners, and the connections of every node. All times are those of the database.

-- name: part_listener_is_over
-- A lease is over too if it ends later than it could: the clock of the database was set back. A node
-- that lives has by then renewed it, unless the clock was set back by less than the lease.
(listeners.until < {part_db_now} or listeners.until > {part_db_now} + 2 * :lease)

-- name: listener_claim
insert into listeners (platform, account, node, epoch, until)
values (:platform, :account, :node, 1, {part_db_now} + :lease)
on conflict (platform, account) do update set
    node = excluded.node, epoch = listeners.epoch + 1, until = excluded.until
where {part_listener_is_over}
returning epoch, cursor

-- name: listener_renew
update listeners set until = {part_db_now} + :lease
where platform = :platform and account = :account and epoch = :epoch

-- name: listener_release
update listeners set node = '', until = 0
where platform = :platform and account = :account and epoch = :epoch

-- name: listener_advance
update listeners set cursor = :cursor
where platform = :platform and account = :account and epoch = :epoch

-- name: listener_is_free
select not exists (
    select 1 from listeners
    where platform = :platform and account = :account and not {part_listener_is_over}
)

-- name: connection_report
insert into connections (
    platform, account, node, listening, since, heard_at, problem, reported_at
) values (
    :platform, :account, :node, :listening, :since, :heard_at, :problem, {part_db_now}
)
on conflict (platform, account, node) do update set
    listening = excluded.listening, since = excluded.since, heard_at = excluded.heard_at,
    problem = excluded.problem, reported_at = excluded.reported_at

-- name: connection_forget
delete from connections
where node = :node or reported_at < {part_db_now} - :age

-- name: connection_find
select platform, account, node, listening, since, heard_at, problem,
    {part_db_now} - reported_at < :age and reported_at - {part_db_now} < :age
from connections order by platform, account, node

-- name: bot_message_forget
-- Those of a time to come are from before the clock was set back.
delete from bot_messages where at < {part_db_now} - :seconds or at > {part_db_now} + :seconds

-- name: bot_message_put
insert into bot_messages (chat, message_id, at) values (:chat, :message_id, {part_db_now})
on conflict (chat, message_id) do nothing

-- name: bot_message_count
select count(*) from bot_messages where chat = :chat
