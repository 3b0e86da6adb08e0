-- Tool calls that a person has to allow: see records/approvals.py.

-- name: part_approval_columns
code, batch, session, turn, session_id, key, call_id, tool, arguments, digest, requester, origin,
message_id, target, asked_in, is_once_only, state, scope, reason, answered_by, asked_at, expires_at

-- name: approval_insert
insert into approvals (
    code, batch, session, turn, session_id, key, call_id, tool, arguments, digest, requester, origin,
    message_id, target, asked_in, is_once_only, state, asked_at, expires_at
) values (
    :code, :batch, :session, :turn, :session_id, :key, :call_id, :tool, :arguments, :digest,
    :requester, :origin, :message_id, :target, :asked_in, :is_once_only, 'pending', :now,
    {part_db_now} + :lifetime
)

-- name: approval_get
select {part_approval_columns} from approvals where code = :code

-- name: approvals_of_batch
select {part_approval_columns} from approvals where batch = :batch order by code

-- name: approvals_find
select {part_approval_columns} from approvals
where state = 'pending' and expires_at > {part_db_now}
    and (cast(:person as text) is null or requester = :person)
order by expires_at, code limit :limit

-- name: approval_answer
-- The first answer counts, and only while the turn still waits for it.
update approvals set state = :state, scope = :scope, reason = :reason, answered_by = :person,
    answered_at = :now
where code = :code and digest = :digest and state = 'pending' and expires_at > {part_db_now}
    and exists (
        select 1 from sessions join turns on turns.session = sessions.ref
        where sessions.ref = approvals.session and sessions.id = approvals.session_id
            and sessions.ended_at is null and sessions.open_turn = approvals.turn
            and turns.number = approvals.turn and turns.state = 'waiting'
    )
returning {part_approval_columns}

-- name: approvals_use
update approvals set state = 'used'
where batch = :batch and state = 'approved'
returning call_id, digest

-- name: approvals_close
-- Those of a turn that no longer waits.
update approvals set state = :state, reason = :reason, answered_at = :now
where session = :session and state in ('pending', 'approved')
returning {part_approval_columns}

-- name: approvals_due
select {part_approval_columns} from approvals
where state = 'pending' and expires_at <= {part_db_now}
order by expires_at, code limit :limit

-- name: approval_is_due
select 1 from approvals
where code = :code and state = 'pending' and expires_at <= {part_db_now}

-- name: approvals_delete
delete from approvals where session = :session

-- name: approvals_remove_settled
delete from approvals where code in (
    select code from approvals
    where state not in ('pending', 'approved') and asked_at < :before
    order by asked_at limit :limit {part_skip_locked}
)

-- name: grant_insert
insert into approval_grants (person, session_id, tool, command, granted_at, granted_by)
select :person, :session_id, :tool, :command, :now, :granted_by
where not exists (
    select 1 from approval_grants
    where person = :person and tool = :tool
        and coalesce(session_id, '') = coalesce(cast(:session_id as text), '')
        and coalesce(command, '') = coalesce(cast(:command as text), '')
)

-- name: grants_of
select id, person, tool, command, session_id from approval_grants
where person = :person
    and (session_id is null or cast(:session_id as text) is null or session_id = :session_id)
order by id

-- name: grant_delete
delete from approval_grants where id = :id and (cast(:person as text) is null or person = :person)

-- name: grants_delete_of_session
delete from approval_grants where session_id = :session_id

-- name: inbox_delete_resumes
delete from inbox where arrival in (
    select 'approval:' || batch from approvals where session = :session
) returning key
