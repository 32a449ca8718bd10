"""What the outside may know of a process: metrics and traces. No workspace ids in labels; nothing that is secret."""
