"""Text: cleaning, redacting, splitting and formatting it."""
