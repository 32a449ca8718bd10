"""Docker, S3, PostgreSQL and Redis behind small interfaces; SQL lives only here; may import domain."""
