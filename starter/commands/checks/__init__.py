"""What `codehub doctor` looks at: one module per dependency, each a stream of findings."""
