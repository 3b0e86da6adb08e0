-- Conversations of clients that name none: a keyed hash of everything said up to each answer.

create table chat_chains (
    digest text not null,
    session bigint not null,
    seq bigint not null,        -- of the answer
    at bigint not null,
    primary key (digest, session, seq)
);

create index chat_chains_session on chat_chains (session);
