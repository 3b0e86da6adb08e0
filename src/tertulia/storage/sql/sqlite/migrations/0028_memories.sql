-- Memories: notes about a person that outlive a conversation.

create table memories (
    id integer primary key autoincrement,
    owner text not null,        -- the person, else the key of the chat: as in sessions
    agent text not null,
    text text not null,
    author text not null,       -- person, agent, flush
    state text not null,        -- kept, proposed
    session_id text,            -- the session it comes from; deleting that deletes it
    created_at integer not null,
    shown_from integer not null  -- only sessions that began later show it; 0: all do
) strict;

create index memories_owner on memories (owner, agent, state, id);
create index memories_session on memories (session_id) where session_id is not null;

-- The people who have switched their memory off.
create table memories_off (
    owner text not null,
    agent text not null,
    primary key (owner, agent)
) strict, without rowid;
