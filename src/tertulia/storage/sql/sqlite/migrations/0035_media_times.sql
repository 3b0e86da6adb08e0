-- When a file of a message was stored last, by the clock of the store; null for other blobs. The
-- retention of files reads it. A file of before gets the time of the newest message that links it.

alter table blobs add column at integer;

update blobs set at = coalesce(
    (
        select max(messages.at) from message_blobs
        join messages on messages.place = message_blobs.place
        where message_blobs.hash = blobs.hash
    ),
    (select at from pending_media where pending_media.hash = blobs.hash),
    0
) where hash like 'media:%';

create index blobs_at on blobs (at) where at is not null;
