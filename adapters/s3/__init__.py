"""Archives in an S3 store."""
