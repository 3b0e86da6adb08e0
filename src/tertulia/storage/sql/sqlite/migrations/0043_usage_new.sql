-- A turn writes a model call into this small table only. Later it is moved to the other calls, which have
-- an index by time, and added to the sums: so a turn writes two pages less.
create table usage_new (
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

alter table usage rename to usage_kept;

-- The ledger: all model calls.
create view usage as select * from usage_kept union all select * from usage_new;
