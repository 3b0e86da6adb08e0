-- Accounts of chat platforms: which node listens, how each node is connected, late outcomes.

alter table outbox add column message_id text;  -- the platform's id of what was sent
-- When it was first sent without an outcome that is known; null if it was certainly not sent.
alter table outbox add column first_sent_at bigint;
-- How many of its attempts do not count: the platform asked to wait, or refused the account.
alter table outbox add column waived bigint not null default 0;

create index outbox_due_for_account on outbox (platform, account, id)
    where state = 'waiting' and is_next = 1 and paused_at = 0;
create index outbox_paused_for_account on outbox (platform, account, not_before)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;

create table listeners (
    platform text not null,
    account text not null,
    node text not null default '',       -- the node that listens, '' if none does
    epoch bigint not null default 0,    -- raised by each takeover
    until bigint not null default 0,    -- the end of the lease, by the clock of the database
    cursor text,                         -- where listening begins again
    primary key (platform, account)
);

create table connections (
    platform text not null,
    account text not null,
    node text not null,
    listening bigint not null,
    since bigint,
    heard_at bigint,
    problem text,
    reported_at bigint not null,        -- by the clock of the database
    primary key (platform, account, node)
);

create table bot_messages (
    chat text not null,
    message_id text not null,
    at bigint not null,                 -- by the clock of the database
    primary key (chat, message_id)
);

create index bot_messages_at on bot_messages (at);
