"""Background programs that agents start and that survive a crash of the gateway."""
