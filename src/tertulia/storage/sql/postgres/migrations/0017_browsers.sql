-- Browsers that are signed in to the console. The cookie has the secret, this table its hash.

create table browsers (
    id bigint generated always as identity primary key,
    hash text not null unique,
    name text not null,         -- the token whose rights it has, as configured at each use
    agent text not null,        -- the program, as it calls itself
    made_at bigint not null,
    seen_at bigint not null    -- brought up to date every few minutes
);

create index browsers_name on browsers (name, id);
create index browsers_seen on browsers (seen_at);
