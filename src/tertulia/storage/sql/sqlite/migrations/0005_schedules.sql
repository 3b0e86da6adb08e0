-- Schedules: tasks that run later or repeatedly, and each time they ran.

create table schedules (
    id integer primary key autoincrement,
    owner text not null,        -- the person whose it is, else the key it was made in
    key text not null,          -- the conversation it was made in
    origin text not null,
    task text not null,
    rule text not null,
    misfire text not null,
    target text not null,
    session text not null,      -- whether it runs in its own session or in the origin's
    state text not null,        -- active, paused, over
    next_at integer,            -- the next time it is planned for; null if there is none
    created_at integer not null
) strict;

create index schedules_due on schedules (next_at) where state = 'active';
create index schedules_owner on schedules (owner, id);
create index schedules_key on schedules (key, id);

create table occurrences (
    id integer primary key autoincrement,
    schedule integer not null,
    planned_at integer not null,
    since_at integer not null,  -- the first planned time that this one stands for
    is_manual integer not null, -- somebody asked for it
    state text not null,        -- waiting, taken, sending, done, failed, skipped
    attempts integer not null default 0,
    not_before integer not null,
    lease_until integer not null default 0,
    ended_at integer,
    session_id text,
    delivery text,              -- its delivery in the outbox
    result text,
    problem text
) strict;

-- A cluster runs each occurrence once: this is the constraint that says so.
create unique index occurrences_planned on occurrences (schedule, planned_at);
-- What is under way is found however long the history is: each state has an index of its own.
create index occurrences_waiting on occurrences (planned_at, id) where state = 'waiting';
create index occurrences_waiting_of on occurrences (schedule, id) where state = 'waiting';
create index occurrences_taken on occurrences (lease_until) where state = 'taken';
create index occurrences_taken_of on occurrences (schedule) where state = 'taken';
create index occurrences_sending on occurrences (id) where state = 'sending';
create index occurrences_history on occurrences (schedule, id);
create index occurrences_session on occurrences (session_id) where session_id is not null;
