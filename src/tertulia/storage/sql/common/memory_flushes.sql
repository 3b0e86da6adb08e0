-- Sessions that ended by policy and whose memory flush is due: see records/queues/memory_flushes.py.

-- name: memory_flush_put
insert into flushes (session) values (:session) on conflict (session) do nothing

-- name: memory_flush_claim
update flushes set attempts = attempts + 1, lease_until = {part_db_now} + :lease,
    lease_length = :lease
where session in (
    with due as materialized (
        select session from flushes where {part_is_over}
        order by session limit :limit {part_skip_locked}
    )
    select session from due
)
returning session, attempts

-- name: memory_flush_delete
delete from flushes where session = :session
