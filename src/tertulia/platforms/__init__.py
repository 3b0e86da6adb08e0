"""Chat apps and their adapters. They use only the core and the errors; the gateway runs them."""
