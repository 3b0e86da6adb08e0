-- Running totals of usage: what was used until the end of a quarter of an hour, by group. What was
-- used between two times is the difference of two rows, so no sum grows with the ledger.

create table usage_groups (
    id integer primary key,
    kind text not null,      -- 'all', 'model', 'platform', 'person', or 'detail'
    name text not null,      -- '' of all; that of 'detail' is the person
    platform text not null,  -- only of 'detail', else ''
    model text not null,     -- only of 'detail', else ''
    unique (kind, name, platform, model)
) strict;

create table usage_running (
    group_id integer not null references usage_groups,
    quarter integer not null,     -- of an hour, since 1970
    calls integer not null,
    input integer not null,
    output integer not null,
    cache_read integer not null,
    cache_write integer not null,
    reasoning integer not null,
    cost integer not null,
    priced integer not null,      -- the rows of usage_sums with a price
    unknown integer not null,     -- the rows of usage_sums whose least certain price is unknown, …
    estimated integer not null,
    actual integer not null,
    primary key (group_id, quarter)
) strict, without rowid;

-- From here on usage_sums has the newest calls only, which are not in the running totals yet.

insert into usage_groups (kind, name, platform, model)
select distinct 'all', '', '', '' from usage_sums
union all
select distinct 'model', model, '', '' from usage_sums
union all
select distinct 'platform', platform, '', '' from usage_sums
union all
select distinct 'person', person, '', '' from usage_sums
union all
select distinct 'detail', person, platform, model from usage_sums;

insert into usage_running (
    group_id, quarter, calls, input, output, cache_read, cache_write, reasoning, cost, priced,
    unknown, estimated, actual
)
select group_id, quarter, sum(sum(calls)) over totals, sum(sum(input)) over totals,
    sum(sum(output)) over totals, sum(sum(cache_read)) over totals,
    sum(sum(cache_write)) over totals, sum(sum(reasoning)) over totals,
    sum(sum(coalesce(cost, 0))) over totals, sum(count(cost)) over totals,
    sum(sum(case when certainty = 0 then 1 else 0 end)) over totals,
    sum(sum(case when certainty = 1 then 1 else 0 end)) over totals,
    sum(sum(case when certainty = 2 then 1 else 0 end)) over totals
from (
    select usage_groups.id as group_id, usage_sums.*
    from usage_sums cross join usage_groups where kind = 'all'
    union all
    select usage_groups.id as group_id, usage_sums.*
    from usage_sums cross join usage_groups where kind = 'model' and name = usage_sums.model
    union all
    select usage_groups.id as group_id, usage_sums.*
    from usage_sums cross join usage_groups where kind = 'platform' and name = usage_sums.platform
    union all
    select usage_groups.id as group_id, usage_sums.*
    from usage_sums cross join usage_groups where kind = 'person' and name = usage_sums.person
    union all
    select usage_groups.id as group_id, usage_sums.*
    from usage_sums cross join usage_groups where kind = 'detail' and name = usage_sums.person
        and usage_groups.platform = usage_sums.platform and usage_groups.model = usage_sums.model
) calls
group by group_id, quarter
window totals as (partition by group_id order by quarter);

delete from usage_sums;
