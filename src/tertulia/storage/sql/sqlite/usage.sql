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
