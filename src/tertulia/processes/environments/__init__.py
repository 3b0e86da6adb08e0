"""Environments for background programs: the local machine, SSH and Docker."""
