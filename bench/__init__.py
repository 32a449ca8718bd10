"""Benchmarks: every row a ratio to its floor, measured in the same run, interleaved. `make bench`."""
