-- Newcomers: sessions that came from another system, so that each comes once.

create table newcomers (
    name text collate "C" primary key,      -- what the session is called where it came from
    session bigint not null,
    taken bigint not null,      -- how many of its messages are here
    digest text not null,       -- of those messages, one after the other
    last_seq bigint not null,   -- where the log ended when they were written
    is_complete bigint not null,
    at bigint not null
);

create index newcomers_session on newcomers (session);
