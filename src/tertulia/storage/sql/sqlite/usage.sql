-- name: usage_insert
insert into usage (
    session_id, turn, at, platform, person, model, provider, base_url,
    input, output, cache_read, cache_write, reasoning, cost, certainty, cost_source
) values (
    :id, :turn, :now, :platform, :person, :model, :provider, :base_url,
    :input, :output, :cache_read, :cache_write, :reasoning, :cost, :certainty, :cost_source
)

-- name: part_sums
count(*), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(reasoning), sum(cost),
min(certainty)
from usage
where (:since is null or at >= :since) and (:until is null or at < :until)
group by 1 order by 1

-- name: usage_sum_day
-- Quarters of an hour, which fall within one day in every time zone there is.
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
set tokens = tokens + excluded.tokens, cost = cost + excluded.cost

-- name: usage_since
select id, at, platform, coalesce(person, ''), input + output + cache_read + cache_write,
    coalesce(cost, 0)
from usage where id > :after order by id limit :limit

-- name: spending_sum
select coalesce(sum(tokens), 0), coalesce(sum(cost), 0) from spending
where day >= :since
    and (:platform is null or platform = :platform)
    and (:person is null or person = :person)
