-- The store: sessions, their messages, how they are seen, what they cost. Keys that are texts are in
-- the order of their bytes, as in SQLite: so a store can be moved from one to the other in pages.

create table installation (
    name text collate "C" primary key,
    value text not null
);

create table sessions (
    ref bigint generated always as identity primary key,
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
    created_at bigint not null,
    updated_at bigint not null,
    ended_at bigint,
    end_reason text,
    parent_id text,
    parent_kind text,
    input bigint not null default 0,
    output bigint not null default 0,
    cache_read bigint not null default 0,
    cache_write bigint not null default 0,
    reasoning bigint not null default 0,
    last_prompt bigint not null default 0,
    cost bigint,               -- billionths of a dollar; null is unknown, not free
    certainty bigint,          -- place in core.usage.STATUSES of the weakest cost so far
    cost_source text,
    model text,
    provider text,
    metadata text not null default '{}',
    version bigint not null default 1,
    last_seq bigint not null default 0,
    turns bigint not null default 0,
    revision bigint not null default 1,
    indexed_seq bigint not null default 0,
    is_card_indexed bigint not null default 0
);

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

-- Sessions with something that is not indexed yet.
create table unindexed (
    session bigint primary key
);

-- Append-only. `place` is the session and the sequence in one number, as in SQLite.
create table messages (
    place bigint primary key,
    session bigint generated always as (place >> 32) stored,
    seq bigint generated always as (place & 4294967295) stored,
    turn bigint not null,
    role text not null,
    kind text,                  -- null; or command, internal, delivery, interrupted
    author text,                -- who wrote, in shared chats: {"id": …, "name": …}
    at bigint not null,
    body text not null,         -- the message as it was given, as JSON
    away text                   -- which of its parts are kept in blobs: [[path, hash], …]
);

create table blobs (
    hash text collate "C" primary key,
    size bigint not null,
    data bytea not null
);

create table message_blobs (
    place bigint not null,
    hash text collate "C" not null,
    primary key (place, hash)
);

create index message_blobs_hash on message_blobs (hash);

-- A view over the log: ranges [session, first, last] in order; a last of null is open at its end.
create table revisions (
    session bigint not null,
    number bigint not null,
    ranges text not null,
    made_by text not null,
    made_from bigint,
    start_seq bigint not null, -- the last message that existed when it was made
    closed_seq bigint,         -- and when it was left for another one
    at bigint not null,
    primary key (session, number)
);

-- Whose log a fork's revisions reach into, so that deleting that log finds who must keep a copy.
create table borrowings (
    log bigint not null,
    session bigint not null,
    primary key (log, session)
);

create index borrowings_session on borrowings (session);

create table events (
    session bigint not null,
    number bigint not null,
    at bigint not null,
    kind text not null,
    detail text not null,
    primary key (session, number)
);

-- One row per model call. It names its session, platform and person itself, for it outlives them.
create table usage (
    id bigint generated always as identity primary key,
    session_id text not null,
    turn bigint,
    at bigint not null,
    platform text not null,
    person text,
    model text,
    provider text,
    base_url text,
    input bigint not null,
    output bigint not null,
    cache_read bigint not null,
    cache_write bigint not null,
    reasoning bigint not null,
    cost bigint,
    certainty bigint not null,
    cost_source text
);

create table people (
    person text collate "C" primary key,
    platform text not null,
    account text not null,
    user_id text not null,
    user_id_alt text,
    name text,
    zone text,
    created_at bigint not null
);

-- An id may be longer than an entry of an ordered index.
create index people_user_id on people using hash (user_id);
create index people_user_id_alt on people using hash (user_id_alt) where user_id_alt is not null;

-- What is searched: words with their places, no second copy of the text. A row is a message.
create table words (
    place bigint primary key,
    text tsvector not null
);

create index words_text on words using gin (text);

-- Titles and names of sessions; a row is the session.
create table cards (
    session bigint primary key,
    text tsvector not null
);

create index cards_text on cards using gin (text);
