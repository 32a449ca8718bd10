"""Deliberate mistakes that the tests must find."""
