-- Clocks: a clock that is set back holds nothing up. What is due at once needs no clock, a pause
-- knows when it began, and a lease how long it is.

-- 0 if the entry is due at once, else when its pause until `not_before` began.
alter table inbox add column paused_at bigint not null default 0;
alter table outbox add column paused_at bigint not null default 0;
alter table occurrences add column paused_at bigint not null default 0;

-- How long the lease is that ends at `lease_until`, in microseconds. What was leased before this
-- column existed counts as an hour.
alter table inbox add column lease_length bigint not null default 3600000000;
alter table outbox add column lease_length bigint not null default 3600000000;
alter table occurrences add column lease_length bigint not null default 3600000000;
alter table flushes add column lease_length bigint not null default 3600000000;
alter table sessions add column lease_length bigint not null default 3600000000;

-- When `next_at` was decided.
alter table schedules add column decided_at bigint not null default 0;

update inbox set paused_at = received_at where state = 'waiting' and attempts > 0;
update outbox set paused_at = created_at where state = 'waiting' and attempts > 0;
update occurrences set paused_at = planned_at where state = 'waiting' and attempts > 0;

-- What can be claimed, in order; then pauses by their end and by their beginning; then leases.
drop index inbox_due;
drop index outbox_due;
drop index outbox_due_for;
create index inbox_due on inbox (id) where state = 'waiting' and is_next = 1 and paused_at = 0;
-- Claims go round the people (0008_fairness).
create index inbox_due_person on inbox (person, id)
    where state = 'waiting' and is_next = 1 and paused_at = 0;
create index outbox_due on outbox (id) where state = 'waiting' and is_next = 1 and paused_at = 0;
create index outbox_due_for on outbox (platform, id)
    where state = 'waiting' and is_next = 1 and paused_at = 0;

create index inbox_paused on inbox (not_before)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;
create index outbox_paused on outbox (not_before)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;
create index outbox_paused_for on outbox (platform, not_before)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;
create index occurrences_paused on occurrences (not_before)
    where state = 'waiting' and paused_at <> 0;
create index inbox_pause_begin on inbox (paused_at)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;
create index outbox_pause_begin on outbox (paused_at)
    where state = 'waiting' and is_next = 1 and paused_at <> 0;
create index occurrences_pause_begin on occurrences (paused_at)
    where state = 'waiting' and paused_at <> 0;

drop index inbox_taken;
drop index outbox_sending;
drop index occurrences_taken;
create index inbox_leased on inbox (lease_until, lease_length) where state = 'taken';
create index outbox_leased on outbox (lease_until, lease_length) where state = 'sending';
create index occurrences_leased on occurrences (lease_until, lease_length) where state = 'taken';

create index tickets_until on tickets (until);
-- A claim leaves out the runs of paused schedules.
create index schedules_paused on schedules (id) where state = 'paused';
create index schedules_decided on schedules (decided_at) where state = 'active';

-- A page of the deliveries of a session, in order.
drop index outbox_session;
create index outbox_session on outbox (session_id, id) where session_id is not null;

-- Deleting a session finds the messages that were gathered into those of its turns.
create index inbox_gathered on inbox (gathered_into) where gathered_into is not null;
