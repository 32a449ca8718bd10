"""What people and clients touch: API, proxy, dashboard, command line, embedded services."""
