-- name: usage_insert
insert into usage (
    session_id, turn, at, platform, person, model, provider, base_url,
    input, output, cache_read, cache_write, reasoning, cost, certainty, cost_source
) values (
    :id, :turn, :now, :platform, :person, :model, :provider, :base_url,
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

-- name: usage_sums_add
-- A name of a model may be longer than an entry of an index can be.
insert into usage_sums as old ({part_sum_columns}) values (
    cast(:now as bigint) / 900000000, :platform, coalesce(:person, ''),
    coalesce(substr(cast(:model as text), 1, 200), ''), 1,
    :input, :output, :cache_read, :cache_write, :reasoning, :cost, :certainty
)
{part_add_sums}

-- name: usage_sums_delete
delete from usage_sums

-- name: usage_sums_fill
insert into usage_sums ({part_sum_columns})
select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), count(*),
    sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost),
    min(certainty)
from usage group by 1, 2, 3, 4

-- name: part_sums
cast(sum(calls) as bigint), cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint), cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint),
min(certainty)

-- name: part_calls
-- Whole quarters from the sums; the calls of the quarters at both ends from the ledger.
from (
    select {part_sum_columns} from usage_sums where quarter >= :first_quarter and quarter < :last_quarter
    union all
    select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), 1,
        input, output, cache_read, cache_write, reasoning, cost, certainty
    from usage where at >= :since and at < :since_end
    union all
    select {part_quarter}, platform, coalesce(person, ''), coalesce(substr(model, 1, 200), ''), 1,
        input, output, cache_read, cache_write, reasoning, cost, certainty
    from usage where at >= :until_start and at < :until
) calls

-- name: usage_sum_day
select quarter, {part_sums} {part_calls} group by 1 order by 1

-- name: usage_sum_model
select case when model = '' then 'unknown' else model end, {part_sums} {part_calls} group by 1 order by 1

-- name: usage_sum_platform
select platform, {part_sums} {part_calls} group by 1 order by 1

-- name: usage_sum_person
select case when person = '' then 'shared' else person end, {part_sums} {part_calls} group by 1 order by 1

-- name: usage_total
select {part_sums} {part_calls} where cast(:person as text) is null or person = :person

-- name: usage_days_by_model
select quarter, case when model = '' then 'unknown' else model end, {part_sums} {part_calls}
where cast(:person as text) is null or person = :person
group by 1, 2 order by 1, 2

-- name: usage_days_by_person
select quarter, case when person = '' then 'shared' else person end, {part_sums} {part_calls}
where cast(:person as text) is null or person = :person
group by 1, 2 order by 1, 2

-- name: usage_days_by_platform
select quarter, platform, {part_sums} {part_calls}
where cast(:person as text) is null or person = :person
group by 1, 2 order by 1, 2

-- name: usage_sum_session
-- The sums have no sessions: there are as many of them as calls, or nearly.
select session_id, count(*), cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint), cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint), min(certainty)
from usage where at >= :since and at < :until group by 1 order by 1

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
