-- The store: sessions, their messages, how they are seen, what they cost.

create table installation (
    name text primary key,
    value text not null
) strict, without rowid;

create table sessions (
    ref integer primary key,
    id text not null unique,
    key text not null,
    agent text not null,
    platform text not null,
    chat_type text not null,
    person text,                -- whose it is; null where several people share it
    owner text not null,        -- for whom its title is unique: the person, else the key
    origin text not null,
    display_name text,
    title text,
    created_at integer not null,
    updated_at integer not null,
    ended_at integer,
    end_reason text,
    parent_id text,
    parent_kind text,
    input integer not null default 0,
    output integer not null default 0,
    cache_read integer not null default 0,
    cache_write integer not null default 0,
    reasoning integer not null default 0,
    last_prompt integer not null default 0,
    cost integer,               -- billionths of a dollar; null is unknown, not free
    certainty integer,          -- place in core.usage.STATUSES of the weakest cost so far
    cost_source text,
    model text,
    provider text,
    metadata text not null default '{}',
    version integer not null default 1,
    last_seq integer not null default 0,
    turns integer not null default 0,
    revision integer not null default 1,
    indexed_seq integer not null default 0,
    is_card_indexed integer not null default 0
) strict;

-- Which session of a key is current is this constraint, and nothing else.
create unique index sessions_current on sessions (key) where ended_at is null;
create unique index sessions_title on sessions (owner, title) where title is not null;
create index sessions_past on sessions (key) where ended_at is not null;
create index sessions_person on sessions (person) where person is not null;
create index sessions_parent on sessions (parent_id) where parent_id is not null;
-- Newest first, for each platform, as two halves: a touch of a session moves one entry only, and
-- the newest of all platforms are merged from the newest of each.
create index sessions_active on sessions (platform, updated_at, ref) where ended_at is null;
create index sessions_ended on sessions (platform, updated_at, ref) where ended_at is not null;

-- Sessions with something that is not indexed yet. A table, since a row that is there already costs
-- a turn nothing, and an entry of an index would be written again each time.
create table unindexed (
    session integer primary key
) strict;

-- Append-only. `place` is the session and the sequence in one number: SQLite clusters a table by
-- one integer only, and so the newest N of a session are one short range of it.
create table messages (
    place integer primary key,
    session integer generated always as (place >> 32) virtual,
    seq integer generated always as (place & 4294967295) virtual,
    turn integer not null,
    role text not null,
    kind text,                  -- null; or command, internal, delivery, interrupted
    author text,                -- who wrote, in shared chats: {"id": …, "name": …}
    at integer not null,
    body text not null,         -- the message as it was given, as JSON
    away text                   -- which of its parts are kept in blobs: [[path, hash], …]
) strict;

create table blobs (
    hash text primary key,
    size integer not null,
    data blob not null
) strict;

create table message_blobs (
    place integer not null,
    hash text not null,
    primary key (place, hash)
) strict, without rowid;

create index message_blobs_hash on message_blobs (hash);

-- A view over the log: ranges [session, first, last] in order; a last of null is open at its end.
create table revisions (
    session integer not null,
    number integer not null,
    ranges text not null,
    made_by text not null,
    made_from integer,
    start_seq integer not null, -- the last message that existed when it was made
    closed_seq integer,         -- and when it was left for another one
    at integer not null,
    primary key (session, number)
) strict, without rowid;

-- Whose log a fork's revisions reach into, so that deleting that log finds who must keep a copy.
create table borrowings (
    log integer not null,
    session integer not null,
    primary key (log, session)
) strict, without rowid;

create index borrowings_session on borrowings (session);

create table events (
    session integer not null,
    number integer not null,
    at integer not null,
    kind text not null,
    detail text not null,
    primary key (session, number)
) strict, without rowid;

-- One row per model call. It names its session, platform and person itself, for it outlives them.
create table usage (
    id integer primary key,
    session_id text not null,
    turn integer,
    at integer not null,
    platform text not null,
    person text,
    model text,
    provider text,
    base_url text,
    input integer not null,
    output integer not null,
    cache_read integer not null,
    cache_write integer not null,
    reasoning integer not null,
    cost integer,
    certainty integer not null,
    cost_source text
) strict;

create table people (
    person text primary key,
    platform text not null,
    account text not null,
    user_id text not null,
    user_id_alt text,
    name text,
    zone text,
    created_at integer not null
) strict, without rowid;

create index people_user_id on people (user_id);
create index people_user_id_alt on people (user_id_alt) where user_id_alt is not null;

-- What is searched: words only, no second copy of the text. A row is a message's place.
create virtual table words using fts5 (text, content = '', tokenize = 'unicode61');
-- Titles and names of sessions; a row is the session.
create virtual table cards using fts5 (text, tokenize = 'unicode61');
-- What is deleted is taken out of an index at once, not at some later merge.
insert into words (words, rank) values ('secure-delete', 1);
insert into cards (cards, rank) values ('secure-delete', 1);
