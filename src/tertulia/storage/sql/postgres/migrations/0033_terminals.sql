-- Several terminals on one store: each gets the answers to what was typed in it.

-- The node in whose terminal it was typed; no other node claims it while that one lives.
alter table inbox add column node text;
-- The node in whose terminal it is to be shown.
alter table outbox add column node text;
