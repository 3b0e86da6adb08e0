-- name: part_view
select sessions.ref, sessions.last_seq, sessions.turns, revisions.number, revisions.ranges,
    revisions.made_by, revisions.made_from, revisions.start_seq, revisions.summary_seq,
    revisions.after_log, revisions.after_seq, {part_person_zone}
from sessions join revisions
    on revisions.session = sessions.ref and revisions.number = sessions.revision

-- name: transcript_view
{part_view} where sessions.id = :id /* row lock */

-- name: transcript_view_of
{part_view} where sessions.ref = :ref /* row lock */

-- name: transcript_views
-- Without a lock: it is only read.
select sessions.id, sessions.ref, sessions.last_seq, sessions.turns, revisions.number,
    revisions.ranges, revisions.made_by, revisions.made_from, revisions.start_seq,
    revisions.summary_seq, revisions.after_log, revisions.after_seq, {part_person_zone}
from sessions join revisions
    on revisions.session = sessions.ref and revisions.number = sessions.revision
where {part_session_ids}

-- name: revision_insert
insert into revisions (
    session, number, ranges, made_by, made_from, start_seq, at, summary_seq, after_log, after_seq,
    actor
) values (
    :session, :number, :ranges, :made_by, :made_from, :start_seq, :now, :summary_seq, :after_log,
    :after_seq, :actor
)

-- name: revision_newest
select max(number) from revisions where session = :session

-- name: revision_close
update revisions set closed_seq = :seq where session = :session and number = :number

-- name: session_set_revision
update sessions set revision = :number, version = version + 1 where ref = :session

-- name: revision_get
select number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq, after_log,
    after_seq, actor
from revisions where session = :session and number = :number

-- name: revisions_of
select number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq, after_log,
    after_seq
from revisions where session = :session order by number

-- name: revisions_page
select number, ranges, made_by, made_from, start_seq, closed_seq, at, summary_seq, after_log,
    after_seq, actor
from revisions where session = :session and number < :before order by number desc limit :limit

-- name: revision_set_ranges
update revisions set ranges = :ranges,
    after_log = case when after_log = :old then :session else after_log end
where session = :session and number = :number

-- name: revisions_delete
delete from revisions where session = :session

-- name: borrowing_insert
insert into borrowings (log, session) values (:log, :session) on conflict (log, session) do nothing

-- name: borrowers_of
select session from borrowings where log = :log

-- name: borrower_ids
-- A fork has the key of its parent, hence the same person and platform.
select sessions.id from borrowings join sessions on sessions.ref = borrowings.session
where borrowings.log = :log order by borrowings.session desc

-- name: borrowings_delete
delete from borrowings where log = :session or session = :session
