-- Statements that several queues share: see records/queues/base.py. `{queue}` is the table, and the
-- line of the name lists the tables: `{queue}_renew (inbox, outbox)` makes inbox_renew and outbox_renew.
-- Each queue defines, in its own file:
--   part_…_columns   the columns of an entry
--   part_…_claimed   the state of a claimed entry
--   part_…_claim_also   the columns that claiming sets besides
--   part_…_open      the states of an entry that can be settled
--   part_…_settle    the columns that settling sets besides state, not_before and problem
--   part_…_lane      the condition for entries of one lane; `is_next` marks its head (0003_queues)
--   part_…_paused    the condition for entries that wait for the end of a pause
-- and each dialect, in dialect.sql, how it is made to use an index: part_…_by_due and so on.

-- name: part_{queue}_claim (inbox, outbox, occurrences)
update {queue} set state = {part_{queue}_claimed}, attempts = attempts + 1,
    {part_{queue}_claim_also}
    lease_until = {part_db_now} + :lease, lease_length = :lease

-- name: part_head_is_due
state = 'waiting' and is_next = 1 and paused_at = 0

-- name: part_is_ours
-- An entry of a terminal belongs to its node, as long as that shows signs of life.
(node is null or node = cast(:node as text) or not exists (
    select 1 from nodes where name = node
        and seen_at > {part_db_now} - :node_life and seen_at < {part_db_now} + :node_life
))

-- name: part_{queue}_paused (inbox, outbox)
state = 'waiting' and is_next = 1 and paused_at <> 0

-- name: part_is_over
-- A lease is over after its time. It is over too if it ends later than it could: the clock was set
-- back. A holder that lives has by then renewed it, unless the clock was set back by less than it.
(lease_until < {part_db_now} or lease_until > {part_db_now} + 2 * lease_length)

-- name: part_{queue}_lost (inbox, outbox, occurrences)
state = {part_{queue}_claimed} and {part_is_over}

-- name: {queue}_wake (inbox, outbox, occurrences)
-- End the pauses that are over, and those that a clock which was set back would make longer: they
-- began later than now. `future` is some time after now, since the clocks of two nodes differ.
update {queue} set paused_at = 0 where id in (
    select id from (
        select id from {queue} {part_{queue}_by_pause}
        where {part_{queue}_paused} and not_before <= :now
        order by not_before limit :limit {part_skip_locked}
    ) ended
    union all
    select id from (
        select id from {queue} {part_{queue}_by_pause_begin}
        where {part_{queue}_paused} and paused_at > :future
        order by paused_at limit :limit {part_skip_locked}
    ) early
)

-- name: part_{queue}_is_head (inbox, outbox)
case when exists (select 1 from {queue} where is_next = 1 and {part_{queue}_lane}) then 0 else 1 end

-- name: {queue}_claim (outbox)
-- `materialized`, as in every claim: else PostgreSQL may run the inner query again for each row of the
-- table, and take as many entries as there are, whatever the limit.
{part_{queue}_claim}
where id in (
    with due as materialized (
        select id from {queue} {part_{queue}_by_due}
        where {part_head_is_due} and {part_is_ours}
        order by id limit :limit {part_skip_locked}
    )
    select id from due
)
returning {part_{queue}_columns}

-- name: {queue}_is_due (outbox)
-- Not `exists`: PostgreSQL then expects to meet a due entry soon, and reads the table.
select (
    select id from {queue} {part_{queue}_by_due}
    where {part_head_is_due} and {part_is_ours} order by id limit 1
) is not null
    or {part_{queue}_is_woken}
    or exists (select 1 from {queue} {part_{queue}_by_lease} where {part_{queue}_lost})

-- name: part_{queue}_is_woken (inbox, outbox, occurrences)
(
    select id from {queue} {part_{queue}_by_pause}
    where {part_{queue}_paused} and not_before <= :now order by not_before limit 1
) is not null or (
    select id from {queue} {part_{queue}_by_pause_begin}
    where {part_{queue}_paused} and paused_at > :future order by paused_at limit 1
) is not null

-- name: {queue}_renew (inbox, outbox, occurrences)
update {queue} set lease_until = {part_db_now} + :lease, lease_length = :lease
where id = :id and state = {part_{queue}_claimed} and attempts = :attempts

-- name: {queue}_settle (inbox, outbox, occurrences)
update {queue} set state = :state, not_before = :not_before, paused_at = :paused_at,
    problem = :problem,
    {part_{queue}_settle}
where id = :id and state in ({part_{queue}_open}) and attempts = :attempts
returning {part_{queue}_columns}

-- name: {queue}_settled (inbox, outbox, occurrences)
-- The entry, if who claimed it has settled it so.
select {part_{queue}_columns} from {queue}
where id = :id and state = :state and attempts = :attempts

-- name: {queue}_promote (inbox, outbox)
-- Mark the oldest waiting entry of a lane as its head, if none is marked.
update {queue} set is_next = 1
where id = (select min(id) from {queue} where state = 'waiting' and {part_{queue}_lane})
    and not exists (select 1 from {queue} where is_next = 1 and {part_{queue}_lane})

-- name: {queue}_find (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id > :after
order by id limit :limit

-- name: {queue}_find_by_state (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id > :after and state = :state
order by id limit :limit

-- name: part_only_state
-- A range instead of `state = …`: only the index on the state has this order, so that PostgreSQL
-- cannot read the table from its end in the hope to meet the state soon.
state >= :state and state <= :state

-- name: part_{queue}_to_review (inbox, outbox)
-- The newest of each state that needs a look; no message of the inbox is unknown. Ranges instead of
-- `state = …`: see part_only_state.
id in (
    select id from (
        select id from {queue} where state >= 'unknown' and state <= 'unknown'
        order by state desc, id desc limit :limit
    ) unknown_ones
    union all
    select id from (
        select id from {queue} where state >= 'dead' and state <= 'dead'
        order by state desc, id desc limit :limit
    ) dead_ones
    union all
    select id from (
        select id from {queue} where state >= 'waiting' and state <= 'waiting'
        order by state desc, id desc limit :limit
    ) waiting_ones
    union all
    select id from (
        select id from {queue} where state >= {part_{queue}_claimed} and state <= {part_{queue}_claimed}
        order by state desc, id desc limit :limit
    ) claimed_ones
)

-- name: part_problem
-- The beginning of a problem: what fits into an entry of an index.
coalesce(substr(problem, 1, 200), '')

-- name: {queue}_count (inbox, outbox)
-- Counted up to the limit only, in an index: no entry is read.
select count(*) from (
    select 1 from {queue} where {part_only_state} order by state, id limit :limit
) counted

-- name: {queue}_by_id (inbox, outbox)
select {part_{queue}_columns} from {queue} where id = :id

-- name: {queue}_newest_entries (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id < :before
order by id desc limit :limit

-- name: {queue}_newest_by_state (inbox, outbox)
select {part_{queue}_columns} from {queue}
where id < :before and {part_only_state}
order by state desc, id desc limit :limit
