"""Redis or Valkey: activity and live events."""
