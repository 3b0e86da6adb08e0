-- Memories; see 0028_memories.

-- name: part_memory_columns
id, text, author, state, session_id, created_at

-- name: memory_insert
insert into memories (owner, agent, text, author, state, session_id, created_at, shown_from)
values (:owner, :agent, :text, :author, :state, :session_id, :created_at, :shown_from)
returning {part_memory_columns}

-- name: memory_count
select count(*) from (
    select 1 from memories where owner = :owner and agent = :agent limit :limit
) as counted

-- name: memory_same
select {part_memory_columns} from memories
where owner = :owner and agent = :agent and text = :text
order by id limit 1

-- name: memories_of_owner
select {part_memory_columns} from memories
where owner = :owner and agent = :agent
order by id desc limit :limit

-- name: memories_of_person
select {part_memory_columns} from memories
where owner = :owner
order by id desc limit :limit

-- name: memories_shown
-- One statement, because every turn of a gateway asks for it.
select memories.id, text, author, state, session_id, memories.created_at
from sessions join memories on memories.owner = sessions.owner and memories.agent = sessions.agent
where sessions.id = :session_id and sessions.chat_type = 'dm'
    and state = 'kept' and shown_from <= sessions.created_at
    and not exists (
        select 1 from memories_off
        where memories_off.owner = sessions.owner and memories_off.agent = sessions.agent
    )
order by memories.id desc limit :limit

-- name: memory_set_text
update memories set text = :text, author = 'person', state = 'kept', shown_from = 0
where id = :id and owner = :owner and agent = :agent
returning {part_memory_columns}

-- name: memory_accept
update memories set state = 'kept', shown_from = 0
where id = :id and owner = :owner and agent = :agent
returning {part_memory_columns}

-- name: memory_delete
delete from memories where id = :id and owner = :owner and agent = :agent

-- name: memories_delete_of_session
delete from memories where session_id = :session_id

-- name: memories_off_put
insert into memories_off (owner, agent) values (:owner, :agent) on conflict do nothing

-- name: memories_off_delete
delete from memories_off where owner = :owner and agent = :agent

-- name: memories_off_get
select 1 from memories_off where owner = :owner and agent = :agent
