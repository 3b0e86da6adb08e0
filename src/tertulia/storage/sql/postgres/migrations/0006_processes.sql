-- Processes: background programs that belong to a conversation, known again after a crash.

create table processes (
    id text collate "C" primary key,
    key text not null,          -- the conversation
    session_id text,
    origin text not null,       -- where news of it are sent
    node text not null,         -- the machine it runs on
    folder text not null,       -- where its output is, on that machine
    command text not null,
    cwd text not null,
    environment text not null,  -- where it runs, seen from there
    is_pty bigint not null,
    state text not null,        -- starting, running, exited, killed, lost, forgotten
    keeper_pid bigint not null,
    keeper_mark text not null,  -- when the keeper began: a pid alone may be another program's by now
    pid bigint not null,
    mark text not null,
    exit_code bigint,
    began_at bigint not null,
    ended_at bigint,
    check_interval bigint,     -- microseconds between two looks that tell the conversation
    told bigint not null,      -- how much of the output the conversation was told
    told_at bigint not null
);

create index processes_running on processes (key) where state in ('starting', 'running');
create index processes_session on processes (session_id);
