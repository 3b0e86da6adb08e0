-- name: part_overriding_numbers
overriding system value

-- name: copy_continue_numbers
select
    setval(pg_get_serial_sequence('sessions', 'ref'), (select coalesce(max(ref), 0) + 1 from sessions), false),
    setval(pg_get_serial_sequence('usage_kept', 'id'), (select coalesce(max(id), 0) + 1 from usage), false),
    setval(pg_get_serial_sequence('inbox', 'id'), (select coalesce(max(id), 0) + 1 from inbox), false),
    setval(pg_get_serial_sequence('outbox', 'id'), (select coalesce(max(id), 0) + 1 from outbox), false),
    setval(pg_get_serial_sequence('memories', 'id'), (select coalesce(max(id), 0) + 1 from memories), false),
    setval(pg_get_serial_sequence('schedules', 'id'), (select coalesce(max(id), 0) + 1 from schedules), false),
    setval(pg_get_serial_sequence('occurrences', 'id'), (select coalesce(max(id), 0) + 1 from occurrences), false),
    setval(pg_get_serial_sequence('approval_grants', 'id'), (select coalesce(max(id), 0) + 1 from approval_grants), false),
    setval(pg_get_serial_sequence('people_events', 'id'), (select coalesce(max(id), 0) + 1 from people_events), false)
