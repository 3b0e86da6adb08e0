"""Where background programs run: this machine, SSH or Docker."""
