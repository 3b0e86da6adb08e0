-- Of a table without statistics the planner expects that hardly any session is current. To read the
-- whole index of the current ones then costs as much as to look up a key, and in a new store every turn
-- has read all current sessions. The condition on `ref` always holds; only statements that repeat it can
-- use the index.

drop index sessions_active;
create index sessions_active on sessions (platform, updated_at, ref)
where ended_at is null and ref > 0;
