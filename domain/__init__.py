"""Pure rules: no I/O, no clock, no randomness; may import the standard library and pydantic only."""
