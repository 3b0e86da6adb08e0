-- Newcomers: sessions that came from another system, so that each comes once.

create table newcomers (
    name text primary key,      -- what the session is called where it came from
    session integer not null,
    taken integer not null,     -- how many of its messages are here
    digest text not null,       -- of those messages, one after the other
    last_seq integer not null,  -- where the log ended when they were written
    is_complete integer not null,
    at integer not null
) strict, without rowid;

create index newcomers_session on newcomers (session);
