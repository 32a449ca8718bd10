"""`codehub up`: every service it needs, supervised by one process."""
