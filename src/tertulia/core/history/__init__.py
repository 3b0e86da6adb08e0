"""From stored messages to a history that every model accepts."""
