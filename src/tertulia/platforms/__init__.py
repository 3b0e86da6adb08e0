"""The chat apps. They know the core and the errors, and nothing knows them but the gateway."""
