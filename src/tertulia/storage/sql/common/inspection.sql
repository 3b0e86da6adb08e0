-- Counts of the content of a store, for its operators.

-- name: inspection_counts
select
    (select count(*) from sessions where ended_at is null),
    (select count(*) from sessions where ended_at is not null),
    (select count(*) from messages),
    (select count(*) from people),
    (select count(*) from usage)

-- name: inspection_undelivered
select
    (select count(*) from outbox where state = 'dead'),
    (select count(*) from outbox where state = 'unknown'),
    (select count(*) from inbox where state = 'dead')

-- name: inspection_unindexed
select cast(coalesce(sum(last_seq - indexed_seq), 0) as bigint)
from unindexed join sessions on sessions.ref = unindexed.session
