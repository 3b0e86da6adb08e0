-- Browsers that are signed in to the console. The cookie has the secret, this table its hash.

create table browsers (
    id integer primary key autoincrement,
    hash text not null unique,
    name text not null,         -- the token whose rights it has, as configured at each use
    agent text not null,        -- the program, as it calls itself
    made_at integer not null,
    seen_at integer not null    -- brought up to date every few minutes
) strict;

create index browsers_name on browsers (name, id);
create index browsers_seen on browsers (seen_at);
