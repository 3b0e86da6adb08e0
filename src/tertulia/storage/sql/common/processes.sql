-- Background programs: see records/processes.py.

-- name: part_process_columns
id, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
keeper_pid, keeper_mark, pid, mark, exit_code, began_at, ended_at, check_interval, told, told_at

-- name: process_insert
insert into processes (
    id, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
    keeper_pid, keeper_mark, pid, mark, began_at, check_interval, told, told_at
) values (
    :id, :key, :session_id, :origin, :node, :folder, :command, :cwd, :environment, :is_pty,
    'starting', 0, '', 0, '', :now, :check_interval, 0, :now
)

-- name: process_get
select {part_process_columns} from processes where id = :id and state <> 'forgotten'

-- name: processes_of_key
select {part_process_columns} from processes
where key = :key and state <> 'forgotten' order by began_at, id

-- name: processes_of_node
select {part_process_columns} from processes where node = :node order by began_at, id

-- name: processes_all
select {part_process_columns} from processes where state <> 'forgotten' order by began_at, id

-- name: processes_count_running
select count(*) from processes where node = :node and state in ('starting', 'running')

-- name: process_is_running_for
-- The key may be one that linked chats share: a process may have been started before the link.
select 1
where exists (
    select 1 from processes where key = :key and state in ('starting', 'running')
) or exists (
    select 1 from links join processes on processes.key = links.key
    where links.shared_key = :key and processes.state in ('starting', 'running')
)

-- name: processes_running_keys
-- There are few running processes: each node has a limit.
select key from processes where state in ('starting', 'running')
union
select links.shared_key from processes join links on links.key = processes.key
where processes.state in ('starting', 'running')

-- name: process_set_running
update processes set
    state = 'running', keeper_pid = :keeper_pid, keeper_mark = :keeper_mark, pid = :pid, mark = :mark
where id = :id and state = 'starting'

-- name: process_end
update processes set state = :state, exit_code = :exit_code, ended_at = :now
where id = :id and state in ('starting', 'running')

-- name: process_set_reported
-- A node that read an older position was overtaken by another node: its update changes nothing.
update processes set told = :told, told_at = :now where id = :id and told_at = :before

-- name: process_delete
delete from processes where id = :id

-- name: processes_clear
-- Its content is deleted at once. The node that runs the process ends it, then deletes this row.
update processes set state = 'forgotten', key = '', session_id = null, origin = '{}', command = ''
where session_id = :session_id
