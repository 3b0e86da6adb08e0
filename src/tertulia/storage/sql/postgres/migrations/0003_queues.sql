-- The boxes as queues: the oldest unsettled entry of each conversation, and of each chat, is marked
-- as the next one. So a claim looks at nothing else, however many wait behind it.

alter table inbox add column is_next bigint not null default 0;
alter table outbox add column is_next bigint not null default 0;

-- What a person writes in a row is answered together: the first message has it all, the others say
-- which one that is.
alter table inbox add column gathered_into bigint;

update inbox set is_next = 1 where id in (
    select min(id) from inbox where state in ('waiting', 'taken') group by key
);
update outbox set is_next = 1 where id in (
    select min(id) from outbox where state in ('waiting', 'sending')
    group by platform, account, chat_id, thread_id
);

drop index inbox_due;
drop index outbox_due;

-- One at a time is this constraint, and nothing else.
create unique index inbox_next on inbox (key) where is_next = 1;
-- An id may be longer than an entry of an index, hence the hashes.
create unique index outbox_next on outbox (
    platform, account, md5(coalesce(chat_id, '')), md5(coalesce(thread_id, ''))
) where is_next = 1;

create index inbox_due on inbox (not_before, id) where state = 'waiting' and is_next = 1;
create index outbox_due on outbox (not_before, id) where state = 'waiting' and is_next = 1;
create index outbox_due_for on outbox (platform, not_before, id)
    where state = 'waiting' and is_next = 1;
create index inbox_taken on inbox (lease_until) where state = 'taken';
create index outbox_sending on outbox (lease_until) where state = 'sending';
create index inbox_lane on inbox (key, id) where state = 'waiting';
create index outbox_lane on outbox (
    platform, account, md5(coalesce(chat_id, '')), md5(coalesce(thread_id, '')), id
) where state = 'waiting';

-- For people who look through them.
create index inbox_state on inbox (state, id);
create index inbox_key on inbox (key, id);
create index outbox_state on outbox (state, id);

-- For retention: what ended before a moment.
create index sessions_ended_at on sessions (ended_at) where ended_at is not null;

-- Sessions that a policy has ended and whose memory is still to be saved.
create table flushes (
    session bigint primary key,
    attempts bigint not null default 0,
    lease_until bigint not null default 0
);
