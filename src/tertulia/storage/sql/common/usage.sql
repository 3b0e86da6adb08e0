-- name: usage_insert
insert into usage (
    session_id, turn, at, platform, person, model, provider, base_url,
    input, output, cache_read, cache_write, reasoning, cost, certainty, cost_source
) values (
    :id, :turn, :now, :platform, :person, :model, :provider, :base_url,
    :input, :output, :cache_read, :cache_write, :reasoning, :cost, :certainty, :cost_source
)

-- name: part_sums
count(*), cast(sum(input) as bigint), cast(sum(output) as bigint), cast(sum(cache_read) as bigint), cast(sum(cache_write) as bigint), cast(sum(reasoning) as bigint), cast(sum(cost) as bigint),
min(certainty)
from usage
where (cast(:since as bigint) is null or at >= :since) and (cast(:until as bigint) is null or at < :until)
group by 1 order by 1

-- name: usage_sum_day
-- Quarters of an hour: each lies within one day in every time zone.
select at / 900000000, {part_sums}

-- name: usage_sum_model
select coalesce(model, 'unknown'), {part_sums}

-- name: usage_sum_platform
select platform, {part_sums}

-- name: usage_sum_person
select coalesce(person, 'shared'), {part_sums}

-- name: usage_sum_session
select session_id, {part_sums}

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
