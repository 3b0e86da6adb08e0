"""The terminal of this machine as a chat app: live, plain and piped."""
