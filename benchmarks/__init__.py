"""What the store costs, as ratios against raw SQLite and against other stores in the same run."""
