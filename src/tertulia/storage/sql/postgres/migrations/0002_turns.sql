-- Turns: the right to act for a session, exchanges that happen once, summaries, what is delivered.

-- The lease. A writer raises the epoch when it enters and names it in every write; `lease_until` is
-- the database's time, 0 where the session is free. `open_turn` is under way, or was left open.
alter table sessions add column epoch bigint not null default 0;
alter table sessions add column lease_until bigint not null default 0;
alter table sessions add column open_turn bigint;

create table turns (
    session bigint not null,
    number bigint not null,
    state text not null,        -- open, answered, silent, interrupted
    arrival text,               -- platform, account, chat and message id, as one text
    began_at bigint not null,
    closed_at bigint,
    first_seq bigint not null, -- where its messages begin in the log
    answer_seq bigint,
    primary key (session, number)
);

-- A message of a platform is taken once, and this constraint is what says so.
create unique index turns_arrival on turns (arrival) where arrival is not null;

-- Whoever waits for a conversation, in order of arrival; a ticket nobody renews is void.
create table tickets (
    id bigint generated always as identity primary key,
    key text not null,
    until bigint not null
);

create index tickets_key on tickets (key, id);

-- What a revision does not show word by word: everything up to a message, told by a summary.
alter table revisions add column summary_seq bigint;
alter table revisions add column after_log bigint;
alter table revisions add column after_seq bigint;

create table outbox (
    id bigint generated always as identity primary key,
    delivery text not null unique,  -- the idempotency key a platform is given
    session_id text,
    target text not null,
    platform text not null,
    account text not null,
    chat_id text,
    thread_id text,
    body text not null,
    state text not null,        -- waiting, sending, sent, unknown, dead
    attempts bigint not null default 0,
    not_before bigint not null,
    lease_until bigint not null default 0,
    created_at bigint not null,
    sent_at bigint,
    problem text
);

create index outbox_due on outbox (state, not_before, id) where state in ('waiting', 'sending');
create index outbox_session on outbox (session_id) where session_id is not null;

create table inbox (
    id bigint generated always as identity primary key,
    arrival text,
    key text not null,
    source text not null,
    body text not null,
    state text not null,        -- waiting, taken, done, dead
    attempts bigint not null default 0,
    not_before bigint not null,
    lease_until bigint not null default 0,
    received_at bigint not null,
    problem text
);

create unique index inbox_arrival on inbox (arrival) where arrival is not null;
create index inbox_due on inbox (key, id) where state in ('waiting', 'taken');

-- What was used on each day, for budgets: a sum over a few rows instead of over the ledger.
create table spending (
    day bigint not null,       -- days since 1970 in the store's zone
    platform text collate "C" not null,
    person text collate "C" not null,
    tokens bigint not null,
    cost bigint not null,
    primary key (day, platform, person)
);

alter table people add column role text not null default 'guest';

-- Codes that prove something: who may write here, which chats belong to one person.
create table codes (
    hash text collate "C" primary key,
    purpose text not null,      -- pair, link
    platform text not null,
    account text not null,
    subject text not null,      -- the person to pair, or the key to link
    made_at bigint not null,
    until bigint not null
);

create index codes_subject on codes (subject, purpose);

create table wrong_codes (
    place text collate "C" not null,        -- who tried
    at bigint not null,
    primary key (place, at)
);

-- Keys of one person that share one conversation.
create table links (
    key text collate "C" primary key,
    shared_key text not null,
    made_at bigint not null
);

create index links_shared on links (shared_key);
