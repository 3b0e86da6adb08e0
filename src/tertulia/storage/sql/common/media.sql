-- Files of messages; see 0015_media.

-- name: media_put
insert into blobs (hash, size, data, at) values (:hash, :size, :data, :at)
on conflict (hash) do update set at = excluded.at

-- name: media_is_linked
select exists (select 1 from message_blobs where hash = :hash)

-- name: media_put_pending
insert into pending_media (hash, at) values (:hash, {part_db_now})
on conflict (hash) do update set at = excluded.at

-- name: media_link
-- Only if the file is there: it may have been deleted meanwhile.
insert into message_blobs (place, hash)
select :place, hash from blobs where hash = :hash
on conflict (place, hash) do nothing

-- name: media_settle
delete from pending_media where hash = :hash

-- name: media_old_pending
select hash from pending_media where at <= {part_db_now} - :age order by at limit :limit

-- name: media_delete_unlinked
delete from blobs where hash = :hash
and not exists (select 1 from message_blobs where message_blobs.hash = blobs.hash)

-- name: media_old
-- Without those that still wait to be linked or sent.
select hash from blobs
where at < :before
    and not exists (select 1 from pending_media where pending_media.hash = blobs.hash)
order by at limit :limit

-- name: media_delete_old
-- Not if it was stored again meanwhile.
delete from blobs where hash = :hash and at < :before

-- name: media_unlink
delete from message_blobs where hash = :hash
