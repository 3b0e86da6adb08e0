-- What is no longer kept: see records/retention_steps.py. Each statement removes a few rows, oldest first.

-- name: inbox_remove_settled
delete from inbox where id in (
    select id from inbox {part_inbox_by_settled}
    where state in ('done', 'dead', 'gathered') and received_at < :before
    order by received_at limit :limit {part_skip_locked}
)

-- name: deleted_messages_remove
delete from deleted_messages where hash in (
    select hash from deleted_messages where at < :before order by at limit :limit {part_skip_locked}
)

-- name: outbox_remove_settled
delete from outbox where id in (
    select id from outbox {part_outbox_by_settled}
    where state in ('sent', 'unknown', 'dead') and created_at < :before
    order by created_at limit :limit {part_skip_locked}
)

-- name: occurrences_remove_settled
delete from occurrences where id in (
    select id from occurrences {part_occurrences_by_settled}
    where state in ('done', 'failed', 'skipped') and ended_at < :before
    order by ended_at limit :limit {part_skip_locked}
)

-- name: people_remove_strangers
delete from people where person in (
    select person from people {part_people_by_strangers}
    where role = 'guest' and created_at < :before
        and not exists (select 1 from sessions where sessions.person = people.person)
        and not exists (select 1 from schedules where schedules.owner = people.person)
        and not exists (select 1 from codes where codes.subject = people.person)
    order by created_at limit :limit {part_skip_locked}
)

-- name: person_ids_remove_strangers
-- Those of people whom the store does not know any more.
delete from person_ids where (platform, account, user_id) in (
    select platform, account, user_id from person_ids
    where at < :before and not exists (
        select 1 from people
        where people.platform = person_ids.platform and people.account = person_ids.account
            and people.user_id in (person_ids.user_id, person_ids.known_id)
    ) and not exists (
        select 1 from people
        where people.platform = person_ids.platform and people.account = person_ids.account
            and people.user_id_alt = person_ids.known_id
    )
    order by at limit :limit {part_skip_locked}
)

-- name: people_events_remove_strangers
-- Decisions about people whom the store does not know any more: they go with the person.
delete from people_events where id in (
    select id from people_events
    where not exists (select 1 from people where people.person = people_events.person)
    order by id limit :limit {part_skip_locked}
)

-- name: codes_remove_expired
delete from codes where hash in (
    select hash from codes where until < :before order by until limit :limit {part_skip_locked}
)
