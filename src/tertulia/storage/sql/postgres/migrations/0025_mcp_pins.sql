-- MCP servers: the definitions of their tools that the owner accepted, and those last seen.

create table mcp_pins (
    server text collate "C" primary key,
    accepted text not null,              -- the definitions by name, as JSON
    seen text,                           -- null: the same
    accepted_at bigint not null,
    seen_at bigint not null
);
