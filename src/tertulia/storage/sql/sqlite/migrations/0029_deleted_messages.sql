-- Messages that were deleted with their session. A platform or a program may send one again; only a
-- hash of what identifies it is kept, as long as settled messages are.

create table deleted_messages (
    hash text primary key,
    at integer not null
) strict, without rowid;

create index deleted_messages_at on deleted_messages (at);
