-- Conversations of clients that name none: a keyed hash of everything said up to each answer.

create table chat_chains (
    digest text not null,
    session integer not null,
    seq integer not null,       -- of the answer
    at integer not null,
    primary key (digest, session, seq)
) strict, without rowid;

create index chat_chains_session on chat_chains (session);
