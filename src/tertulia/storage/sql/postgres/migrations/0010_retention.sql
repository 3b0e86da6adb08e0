-- Retention: what was settled, and who is a stranger, by age.

create index inbox_settled on inbox (received_at) where state in ('done', 'dead', 'gathered');
create index outbox_settled on outbox (created_at) where state in ('sent', 'unknown', 'dead');
create index occurrences_settled on occurrences (ended_at)
    where state in ('done', 'failed', 'skipped');
create index people_strangers on people (created_at) where role = 'guest';
create index codes_until on codes (until);
