"""Deterministic orchestration; may import domain and temporalio."""
