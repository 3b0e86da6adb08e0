-- Files of messages. Their bytes are blobs named `media:HASH`, which their messages link.

-- Files that no message links yet: they are fetched before the turn, or wait to be sent.
create table pending_media (
    hash text primary key,
    at integer not null         -- by the clock of the database
) strict, without rowid;

create index pending_media_at on pending_media (at);
