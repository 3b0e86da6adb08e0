-- Pinned definitions of the tools of MCP servers: see records/mcp_pins.py.

-- name: mcp_pins_all
select server, accepted, seen, accepted_at from mcp_pins order by server

-- name: mcp_pins_get
select server, accepted, seen, accepted_at from mcp_pins where server = :server

-- name: mcp_pins_insert
insert into mcp_pins (server, accepted, seen, accepted_at, seen_at)
values (:server, :accepted, null, :now, :now)
on conflict (server) do nothing

-- name: mcp_pins_set_seen
update mcp_pins set seen = :seen, seen_at = :now where server = :server

-- name: mcp_pins_accept
update mcp_pins set accepted = coalesce(seen, accepted), seen = null, accepted_at = :now
where server = :server

-- name: mcp_pins_delete
delete from mcp_pins where server = :server
