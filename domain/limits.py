"""How many workspaces may be RUNNING at once (SPEC 11)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    max_running_per_user: int = 2
    max_running_global: int = 100
