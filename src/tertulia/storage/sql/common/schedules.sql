-- Scheduled tasks: see records/schedules.py. The lane of a run is its schedule. See also queues.sql.

-- name: part_schedule
id, owner, key, origin, task, rule, misfire, target, session, state, next_at, created_at

-- name: part_occurrences_columns
id, schedule, planned_at, since_at, is_manual, state, attempts, ended_at, session_id, delivery,
result, problem

-- name: part_occurrences_claimed
'taken'

-- name: part_occurrences_claim_also
-- Nothing.

-- name: part_occurrences_open
'taken'

-- name: part_occurrences_settle
ended_at = case when :state = 'waiting' then null else cast(:now as bigint) end,
session_id = coalesce(cast(:session_id as text), session_id),
result = coalesce(cast(:result as text), result),
delivery = coalesce(cast(:delivery as text), delivery)

-- name: part_occurrences_paused
state = 'waiting' and paused_at <> 0

-- name: schedule_put
insert into schedules (
    owner, key, origin, task, rule, misfire, target, session, state, next_at, decided_at, created_at
)
values (
    :owner, :key, :origin, :task, :rule, :misfire, :target, :session, 'active', :next_at, :now, :now
)
returning {part_schedule}

-- name: schedule_get
select {part_schedule} from schedules where id = :id

-- name: schedules_find
select {part_schedule} from schedules where id > :after order by id limit :limit

-- name: schedules_of
select {part_schedule} from schedules
where (owner = :owner or key = :key) and id > :after order by id limit :limit

-- name: schedule_set
update schedules set state = :state, next_at = :next_at, decided_at = :now where id = :id
returning {part_schedule}

-- name: schedules_set_key
update schedules set key = :key where owner = :owner and key = :shared

-- name: schedule_restart
update schedules set rule = :rule, next_at = :next_at, decided_at = :now where id = :id

-- name: schedule_delete
delete from schedules where id = :id

-- name: occurrences_delete
delete from occurrences where schedule = :id

-- name: schedules_due
select {part_schedule} from schedules where state = 'active' and next_at <= :now
order by next_at, id limit :limit

-- name: schedules_decided_later
-- The clock was set back: their next times were decided later than now.
select {part_schedule} from schedules where state = 'active' and decided_at > :future
order by decided_at limit :limit

-- name: occurrence_put
insert into occurrences (
    schedule, planned_at, since_at, is_manual, state, not_before, ended_at, problem
)
values (:schedule, :planned_at, :since_at, :is_manual, :state, :now, :ended_at, :problem)
on conflict (schedule, planned_at) do nothing

-- name: occurrence_by_time
select {part_occurrences_columns} from occurrences where schedule = :schedule and planned_at = :planned_at

-- name: occurrences_expire
-- Their runner is gone, or took longer than the lease.
update occurrences {part_occurrences_by_lease}
set state = case when attempts < :tries then 'waiting' else 'failed' end,
    ended_at = case when attempts < :tries then ended_at else :now end,
    problem = case when attempts < :tries then problem else :problem end
where {part_occurrences_lost}

-- name: part_is_sent
-- A delivered occurrence is done; so is one whose delivery was deleted from the outbox.
occurrences.state = 'sending' and not exists (
    select 1 from outbox where outbox.delivery = occurrences.delivery and outbox.state <> 'sent'
)

-- name: occurrences_finish_sent
update occurrences set state = 'done' where {part_is_sent}

-- name: part_is_due
-- One occurrence of a schedule at a time, in order; of a paused schedule only manual ones.
occurrences.state = 'waiting' and occurrences.paused_at = 0
and not exists (
    select 1 from occurrences other
    where other.state = 'taken' and other.schedule = occurrences.schedule
)
and not exists (
    select 1 from occurrences older
    where older.state = 'waiting' and older.schedule = occurrences.schedule
        and older.id < occurrences.id
)
and (occurrences.is_manual = 1 or not exists (
    select 1 from schedules where schedules.id = occurrences.schedule
        and schedules.state = 'paused'
))

-- name: part_is_undelivered
-- The platform did not accept the delivery.
occurrences.state = 'sending' and exists (
    select 1 from outbox
    where outbox.delivery = occurrences.delivery and outbox.state in ('dead', 'unknown')
)

-- name: occurrences_claim
{part_occurrences_claim}
where id in (
    with due as materialized (
        select id from occurrences where {part_is_due}
        order by planned_at, id limit :limit {part_skip_locked}
    )
    select id from due
)
returning {part_occurrences_columns}

-- name: occurrences_claim_undelivered
{part_occurrences_claim},
    problem = (select outbox.problem from outbox where outbox.delivery = occurrences.delivery)
where id in (
    with undelivered as materialized (
        select id from occurrences where {part_is_undelivered}
        order by id limit :limit {part_skip_locked}
    )
    select id from undelivered
)
returning {part_occurrences_columns}

-- name: occurrences_is_due
select exists (select 1 from schedules where state = 'active' and next_at <= :now)
    or exists (select 1 from schedules where state = 'active' and decided_at > :future)
    or {part_occurrences_is_woken}
    or exists (select 1 from occurrences where {part_is_due})
    or exists (select 1 from occurrences where {part_is_undelivered})
    or exists (select 1 from occurrences {part_occurrences_by_lease} where {part_occurrences_lost})
    or exists (select 1 from occurrences where {part_is_sent})

-- name: occurrences_of
select {part_occurrences_columns} from occurrences
where schedule = :schedule and id < :after order by id desc limit :limit

-- name: occurrences_clear_session
-- The content of a deleted session is deleted here too.
update occurrences set result = null, session_id = null where session_id = :session_id

-- name: occurrences_failed
select schedule, problem, ended_at from occurrences {part_occurrences_by_settled}
where state in ('done', 'failed', 'skipped') and ended_at >= :since and state = 'failed'
order by ended_at desc limit :limit
