"""A runtime without an engine, for what is not about engines: rules, workflows and their benchmarks."""

from adapters.memory.homes import MemoryHomes
from adapters.memory.runtime import MemoryRuntime

__all__ = ["MemoryHomes", "MemoryRuntime"]
