-- Approvals: tool calls that a person has to allow before they run, and what was allowed for longer.

create table approvals (
    code text collate "C" primary key,
    batch text collate "C" not null,     -- the first code of the calls that were asked together
    session bigint not null,
    turn bigint not null,
    session_id text not null,
    key text not null,
    call_id text not null,
    tool text not null,
    arguments text not null,
    digest text not null,
    requester text not null,             -- the person whose turn it is
    origin text not null,                -- the source of their message
    message_id text not null,
    target text,                         -- where the answer of the turn goes; null: nowhere
    asked_in text not null,              -- the target of the question
    is_once_only bigint not null,
    state text not null,                 -- pending, approved, declined, expired, used
    scope text,                          -- once, session, always
    reason text,
    answered_by text,
    asked_at bigint not null,
    expires_at bigint not null,          -- by the clock of the database
    answered_at bigint
);

create index approvals_pending on approvals (expires_at, code) where state = 'pending';
create index approvals_open on approvals (session) where state in ('pending', 'approved');
create index approvals_session on approvals (session);
create index approvals_batch on approvals (batch);
create index approvals_settled on approvals (asked_at) where state not in ('pending', 'approved');

create table approval_grants (
    id bigint generated always as identity primary key,
    person text collate "C" not null,
    session_id text,                     -- null: in every conversation of the person
    tool text not null,
    command text,                        -- null: every call of the tool
    granted_at bigint not null,
    granted_by text not null
);

create index approval_grants_person on approval_grants (person);
create index approval_grants_session on approval_grants (session_id) where session_id is not null;
