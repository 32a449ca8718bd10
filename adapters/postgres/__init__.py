"""PostgreSQL: every SQL statement of codehub is in this package."""
