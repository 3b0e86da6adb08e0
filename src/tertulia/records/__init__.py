"""The verbs. Each public call is one transaction."""
