"""Background programs: what an agent starts, kept known whatever happens to the gateway."""
