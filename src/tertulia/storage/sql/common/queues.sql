-- Statements that several queues share: see records/queues/base.py. `{queue}` is the table, and the
-- line of the name lists the tables: `{queue}_renew (inbox, outbox)` makes inbox_renew and outbox_renew.
-- Each queue defines, in its own file:
--   part_…_columns   the columns of an entry
--   part_…_claimed   the state of a claimed entry
--   part_…_claim_also   the columns that claiming sets besides
--   part_…_open      the states of an entry that can be settled
--   part_…_settle    the columns that settling sets besides state, not_before and problem
--   part_…_lane      the condition for entries of one lane; `is_next` marks its head (0003_queues)
--   part_…_filter    the condition of a search

-- name: part_{queue}_claim (inbox, outbox, occurrences)
update {queue} set state = {part_{queue}_claimed}, attempts = attempts + 1,
    {part_{queue}_claim_also}
    lease_until = {part_db_now} + :lease

-- name: part_head_is_due
state = 'waiting' and is_next = 1 and not_before <= :now

-- name: part_{queue}_lost (inbox, outbox, occurrences)
state = {part_{queue}_claimed} and lease_until < {part_db_now}

-- name: part_{queue}_is_head (inbox, outbox)
case when exists (select 1 from {queue} where is_next = 1 and {part_{queue}_lane}) then 0 else 1 end

-- name: {queue}_claim (inbox, outbox)
{part_{queue}_claim}
where id in (
    select id from {queue} where {part_head_is_due}
    order by not_before, id limit :limit {part_skip_locked}
)
returning {part_{queue}_columns}

-- name: {queue}_is_due (inbox, outbox)
select exists (select 1 from {queue} where {part_head_is_due})
    or exists (select 1 from {queue} where {part_{queue}_lost})

-- name: {queue}_renew (inbox, outbox, occurrences)
update {queue} set lease_until = {part_db_now} + :lease
where id = :id and state = {part_{queue}_claimed} and attempts = :attempts

-- name: {queue}_settle (inbox, outbox, occurrences)
update {queue} set state = :state, not_before = :not_before, problem = :problem,
    {part_{queue}_settle}
where id = :id and state in ({part_{queue}_open}) and attempts = :attempts
returning {part_{queue}_columns}

-- name: {queue}_promote (inbox, outbox)
-- Mark the oldest waiting entry of a lane as its head, if none is marked.
update {queue} set is_next = 1
where id = (select min(id) from {queue} where state = 'waiting' and {part_{queue}_lane})
    and not exists (select 1 from {queue} where is_next = 1 and {part_{queue}_lane})

-- name: {queue}_find (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id > :after and {part_{queue}_filter}
order by id limit :limit

-- name: {queue}_find_by_state (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id > :after and state = :state and {part_{queue}_filter}
order by id limit :limit
