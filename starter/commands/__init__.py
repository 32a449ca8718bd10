"""What the `codehub` command does, one noun per file. Heavy imports stay inside functions: `codehub ls` starts fast."""
