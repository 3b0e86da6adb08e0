-- MCP servers: the definitions of their tools that the owner accepted, and those last seen.

create table mcp_pins (
    server text primary key,
    accepted text not null,              -- the definitions by name, as JSON
    seen text,                           -- null: the same
    accepted_at integer not null,
    seen_at integer not null
) strict, without rowid;
