-- A turn writes a model call into this small table only. Later it is moved to the other calls, which have
-- an index by time, and added to the sums: so a turn writes two pages less.
create table usage_new (
    id bigint primary key default nextval('usage_id_seq'),
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

alter table usage rename to usage_kept;

-- The ledger: all model calls.
create view usage as select * from usage_kept union all select * from usage_new;
