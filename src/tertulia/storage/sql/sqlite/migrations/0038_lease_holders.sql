-- Which process holds a lease: one of the same machine can tell that it has ended, and need not wait.

-- The process that took the lease last (process_identity.py); kept when the lease is given back.
alter table sessions add column lease_holder text;
-- The process of the node.
alter table nodes add column process text;
