-- Invariants between tables: in a sound store each statement returns no row; if it returns rows, its
-- name describes the fault.

-- name: check_two_sessions_are_current_for_one_key
select key from sessions where ended_at is null group by key having count(*) > 1

-- name: check_a_session_points_at_a_revision_that_does_not_exist
select id from sessions where not exists (
    select 1 from revisions
    where revisions.session = sessions.ref and revisions.number = sessions.revision
)

-- name: check_a_message_is_beyond_the_end_of_its_session
select sessions.id from sessions join messages on messages.place
    between (sessions.ref << 32) + sessions.last_seq + 1 and (sessions.ref << 32) + 4294967295

-- name: check_a_message_belongs_to_no_session
select distinct place >> 32 from messages where place >> 32 not in (select ref from sessions)

-- name: check_a_part_of_a_message_is_missing
select hash from message_blobs where hash not in (select hash from blobs)

-- name: check_a_message_is_missing_from_the_middle_of_its_log
-- The own log of a fork may have gaps at its beginning: the messages that it shows of a deleted
-- session were copied there.
select sessions.id from sessions join (
    select place >> 32 as session, max(place) - min(place) + 1 as expected, count(*) as found
    from messages group by 1
) logs on logs.session = sessions.ref
where expected <> found
    and sessions.ref not in (select session from revisions where made_by = 'fork')

-- name: check_the_newest_message_of_a_session_is_missing
select id from sessions
where last_seq > 0
    and ref not in (select session from revisions where made_by = 'fork')
    and not exists (select 1 from messages where place = (sessions.ref << 32) + sessions.last_seq)

-- name: check_items_of_a_conversation_wait_and_none_is_marked_as_next
select key from inbox where state in ('waiting', 'taken') group by key having max(is_next) = 0

-- name: check_deliveries_of_a_chat_wait_and_none_is_marked_as_next
select min(id) from outbox where state in ('waiting', 'sending')
group by platform, account, coalesce(chat_id, ''), coalesce(thread_id, '') having max(is_next) = 0

-- name: check_a_settled_item_is_still_marked_as_next
select id from inbox where is_next = 1 and state in ('done', 'dead')
union all
select id from outbox where is_next = 1 and state in ('sent', 'unknown', 'dead')

-- name: check_messages_of_a_session_will_never_be_indexed
select id from sessions
where last_seq > indexed_seq and ref not in (select session from unindexed)

-- name: check_the_sums_of_usage_differ_from_the_ledger
select quarter from (
    select quarter, calls, input, output from usage_sums
    union all
    select quarter, calls - lag(calls, 1, 0) over totals, input - lag(input, 1, 0) over totals,
        output - lag(output, 1, 0) over totals
    from usage_running join usage_groups on id = group_id
    where kind = 'all'
    window totals as (order by quarter)
    union all
    select {part_quarter}, -1, -input, -output from usage_kept
) calls
group by quarter having sum(calls) <> 0 or sum(input) <> 0 or sum(output) <> 0

-- name: check_the_newest_totals_of_usage_differ_from_the_running_totals
select usage_running.group_id from usage_running left join usage_newest
    on usage_newest.group_id = usage_running.group_id
    and usage_newest.quarter = usage_running.quarter and usage_newest.calls = usage_running.calls
    and usage_newest.input = usage_running.input and usage_newest.output = usage_running.output
where usage_newest.group_id is null and usage_running.quarter = (
    select max(quarter) from usage_running newest where newest.group_id = usage_running.group_id
)

-- name: check_the_running_totals_of_usage_differ_by_group
select kind from usage_groups join usage_running on group_id = id
where quarter = (select max(quarter) from usage_running where group_id = id)
group by kind
having sum(calls) <> (
    select max(calls) from usage_running join usage_groups on group_id = id where kind = 'all'
)
