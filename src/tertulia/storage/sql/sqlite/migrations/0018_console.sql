-- What the console shows: who made a revision, queues newest first and by problem.

alter table revisions add column actor text;    -- who made it; null for the program itself

-- Problems by their beginning, which fits into an entry of an index.
create index outbox_dead_problem on outbox (platform, coalesce(substr(problem, 1, 200), ''), id)
    where state = 'dead';
create index outbox_unknown_problem on outbox (platform, coalesce(substr(problem, 1, 200), ''), id)
    where state = 'unknown';
create index outbox_dead_platform on outbox (platform, id) where state = 'dead';
create index outbox_unknown_platform on outbox (platform, id) where state = 'unknown';
create index inbox_dead_problem on inbox (coalesce(substr(problem, 1, 200), ''), id)
    where state = 'dead';

-- The gateways that work on the store, for looking only. Times are those of the database.
create table nodes (
    name text primary key,
    version text not null,
    turns integer not null,      -- how many it was running
    began_at integer not null,
    seen_at integer not null
) strict, without rowid;
