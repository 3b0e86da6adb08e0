-- name: usage_insert
insert into usage_new (
    id, session_id, turn, at, platform, person, model, provider, base_url,
    input, output, cache_read, cache_write, reasoning, cost, certainty, cost_source
) values (
    {part_next_usage_id}, :id, :turn, :now, :platform, :person, :model, :provider, :base_url,
    :input, :output, :cache_read, :cache_write, :reasoning, :cost, :certainty, :cost_source
)

-- name: part_quarter
-- Quarters of an hour: each lies within one day in every time zone.
at / 900000000

-- name: part_sum_columns
quarter, platform, person, model, calls, input, output, cache_read, cache_write, reasoning, cost,
certainty

-- name: part_add_sums
-- A row of the sums is added to the one that is there.
on conflict (quarter, platform, person, model) do update set
    calls = old.calls + excluded.calls,
    input = old.input + excluded.input,
    output = old.output + excluded.output,
    cache_read = old.cache_read + excluded.cache_read,
    cache_write = old.cache_write + excluded.cache_write,
    reasoning = old.reasoning + excluded.reasoning,
    cost = case when excluded.cost is null then old.cost
        else coalesce(old.cost, 0) + excluded.cost end,
    certainty = case when old.certainty < excluded.certainty then old.certainty
        else excluded.certainty end

-- name: part_summed
-- The sums of calls. A name of a model may be longer than an entry of an index can be.
select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), count(*),
    cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint),
    cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint),
    min(certainty)

-- name: usage_new_more_than
select 1 from usage_new limit 1 offset :few

-- name: usage_sums_add
insert into usage_sums as old ({part_sum_columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
{part_add_sums}

-- name: usage_sums_delete
delete from usage_sums

-- name: usage_sums_fill
insert into usage_sums ({part_sum_columns})
{part_summed}
from usage_kept group by 1, 2, 3, 4

-- name: usage_groups_delete
delete from usage_groups

-- name: usage_running_delete
delete from usage_running

-- name: usage_groups_fill
insert into usage_groups (kind, name, platform, model)
select distinct 'all', '', '', '' from usage_sums
union all
select distinct 'model', model, '', '' from usage_sums
union all
select distinct 'platform', platform, '', '' from usage_sums
union all
select distinct 'person', person, '', '' from usage_sums
union all
select distinct 'detail', person, platform, model from usage_sums

-- name: usage_running_fill
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
window totals as (partition by group_id order by quarter)

-- name: usage_sums_any_before
select quarter from usage_sums where quarter < :before limit 1

-- name: usage_sums_take
-- Some rows of the oldest quarters, which are added to the running totals.
delete from usage_sums where (quarter, platform, person, model) in (
    select quarter, platform, person, model from usage_sums where quarter < :before
    order by quarter, platform, person, model limit :limit
)
returning quarter, platform, person, model, calls, input, output, cache_read, cache_write, reasoning,
    cost, certainty

-- name: usage_group_put
insert into usage_groups (kind, name, platform, model)
values (:kind, :name, :platform, :model)
on conflict (kind, name, platform, model) do nothing

-- name: part_usage_group
kind = :kind and name = :name and platform = :platform and model = :model

-- name: part_replace_sums
calls = excluded.calls,
input = excluded.input,
output = excluded.output,
cache_read = excluded.cache_read,
cache_write = excluded.cache_write,
reasoning = excluded.reasoning,
cost = excluded.cost,
priced = excluded.priced,
unknown = excluded.unknown,
estimated = excluded.estimated,
actual = excluded.actual

-- name: usage_running_add
insert into usage_running (
    group_id, quarter, calls, input, output, cache_read, cache_write, reasoning, cost, priced, unknown,
    estimated, actual
)
select usage_groups.id, cast(:quarter as bigint),
    coalesce(last.calls, 0) + cast(:calls as bigint),
    coalesce(last.input, 0) + cast(:input as bigint),
    coalesce(last.output, 0) + cast(:output as bigint),
    coalesce(last.cache_read, 0) + cast(:cache_read as bigint),
    coalesce(last.cache_write, 0) + cast(:cache_write as bigint),
    coalesce(last.reasoning, 0) + cast(:reasoning as bigint),
    coalesce(last.cost, 0) + cast(:cost as bigint),
    coalesce(last.priced, 0) + cast(:priced as bigint),
    coalesce(last.unknown, 0) + cast(:unknown as bigint),
    coalesce(last.estimated, 0) + cast(:estimated as bigint),
    coalesce(last.actual, 0) + cast(:actual as bigint)
from usage_groups left join usage_running last
    on last.group_id = usage_groups.id and last.quarter = (
        select max(quarter) from usage_running
        where group_id = usage_groups.id and quarter <= :quarter
    )
where {part_usage_group}
on conflict (group_id, quarter) do update set
    {part_replace_sums}

-- name: usage_running_shift
-- Calls that came late count in all totals after them.
update usage_running set
    calls = calls + cast(:calls as bigint),
    input = input + cast(:input as bigint),
    output = output + cast(:output as bigint),
    cache_read = cache_read + cast(:cache_read as bigint),
    cache_write = cache_write + cast(:cache_write as bigint),
    reasoning = reasoning + cast(:reasoning as bigint),
    cost = cost + cast(:cost as bigint),
    priced = priced + cast(:priced as bigint),
    unknown = unknown + cast(:unknown as bigint),
    estimated = estimated + cast(:estimated as bigint),
    actual = actual + cast(:actual as bigint)
where group_id = (select id from usage_groups where {part_usage_group}) and quarter > :quarter

-- name: usage_newest_put
-- The newest total of a group, after another one was added or all were changed.
insert into usage_newest (group_id, quarter, calls, input, output, cache_read, cache_write, reasoning, cost,
    priced, unknown, estimated, actual)
select group_id, quarter, calls, input, output, cache_read, cache_write, reasoning, cost, priced, unknown, estimated, actual
from usage_running
where group_id = (select id from usage_groups where {part_usage_group})
order by quarter desc limit 1
on conflict (group_id) do update set
    quarter = excluded.quarter,
    {part_replace_sums}

-- name: usage_newest_fill
insert into usage_newest
select * from usage_running where quarter = (
    select max(quarter) from usage_running newest where newest.group_id = usage_running.group_id
)

-- name: usage_newest_delete
delete from usage_newest

-- name: usage_newest_of
select {part_running_columns}, cast(:quarter as bigint), calls, input, output, cache_read, cache_write, reasoning, cost, priced, unknown, estimated, actual
from usage_groups join usage_newest on usage_newest.group_id = usage_groups.id
where kind = :kind and (cast(:person as text) is null or name = :person)

-- name: usage_running_span
-- Two subqueries: each looks at one end of the index, where min and max together would read it all.
select
    (select min(quarter) from usage_running where group_id = usage_groups.id),
    (select max(quarter) from usage_running where group_id = usage_groups.id)
from usage_groups where kind = 'all'

-- name: part_running_columns
-- The name of a group is that of what its kind says; that of 'detail' is the person.
kind, case when kind = 'platform' then name else platform end,
case when kind in ('person', 'detail') then name else '' end,
case when kind = 'model' then name else model end

-- name: part_sums
cast(sum(calls) as bigint), cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint), cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint),
min(certainty)

-- name: part_calls
-- Whole quarters that are not in the running totals yet; the calls of the quarters at both ends; and the
-- calls that are in no sum yet.
from (
    select {part_sum_columns} from usage_sums where quarter >= :first_quarter and quarter < :last_quarter
    union all
    select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), 1,
        input, output, cache_read, cache_write, reasoning, cost, certainty
    from usage_new where at >= :since and at < :until
    union all
    select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), 1,
        input, output, cache_read, cache_write, reasoning, cost, certainty
    from usage_kept where at >= :since and at < :since_end
    union all
    select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), 1,
        input, output, cache_read, cache_write, reasoning, cost, certainty
    from usage_kept where at >= :until_start and at < :until
) calls

-- name: usage_recent
-- Grouped by what is asked for: all groupings of a period come from one read.
select case when cast(:by_day as integer) = 1 then quarter else 0 end,
    case when cast(:by_platform as integer) = 1 then platform else '' end,
    case when cast(:by_person as integer) = 1 then person else '' end,
    case when cast(:by_model as integer) = 1 then model else '' end,
    {part_sums} {part_calls}
where cast(:person as text) is null or person = :person
group by 1, 2, 3, 4

-- name: usage_sum_session
-- The sums have no sessions: there are as many of them as calls, or nearly.
select session_id, count(*), cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint), cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint), min(certainty)
from usage where at >= :since and at < :until and (cast(:person as text) is null or person = :person)
group by 1 order by 1

-- name: spending_add
insert into spending (day, platform, person, tokens, cost)
values (:day, :platform, :person, :tokens, :cost)
on conflict (day, platform, person) do update
set tokens = spending.tokens + excluded.tokens, cost = spending.cost + excluded.cost

-- name: usage_since
select id, at, platform, coalesce(person, ''), input + output + cache_read + cache_write,
    coalesce(cost, 0)
from usage where id > :after order by id limit :limit

-- name: spending_sum
select cast(coalesce(cast(sum(tokens) as bigint), 0) as bigint), cast(coalesce(cast(sum(cost) as bigint), 0) as bigint) from spending
where day >= :since
    and (cast(:platform as text) is null or platform = :platform)
    and (cast(:person as text) is null or person = :person)
