"""MCP servers as tools of the agent: connections, processes, pinned definitions."""
