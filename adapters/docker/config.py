"""What the Docker runtime can be told."""

import re
from dataclasses import dataclass

GIB = 1024**3
LINK_LOCAL = "169.254.0.0/16"
"""Where clouds keep their metadata service, with the machine's credentials in it."""
ENGINES_NETWORK = "bridge"
"""The default network's name. It is the only bridge on which a container costs the engine no name server."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one workspace may use."""

    memory: int = 2 * GIB
    """Bytes; there is no swap on top."""
    cpus: float = 2.0
    pids: int = 512
    storage: int | None = None
    """Bytes outside the home. Only storage drivers with quotas take it (overlay2 on xfs with pquota)."""


@dataclass(frozen=True, slots=True)
class DockerConfig:
    installation: str
    """Names this codehub on the engine: what carries another name, or none, is never touched."""
    docker_host: str | None = None
    """None: DOCKER_HOST, or the engine's usual socket."""
    workspace_port: int = 8080
    workspace_home: str = "/home/coder"
    stop_grace_seconds: int = 5
    publish_host: str = "127.0.0.1"
    """Address of this machine on which the workspaces' ports are published."""
    limits: Limits = Limits()
    call_timeout: float = 10.0
    """Seconds for a call that only looks."""
    work_timeout: float = 60.0
    """Seconds for a call that changes something: an engine under load takes its time to start a container."""
    probe_timeout: float = 5.0
    """Seconds within which a ready workspace answers. One limit for a start and for whoever looks whether it is done:
    what the one accepts and the other does not would never be started."""
    pool_size: int = 32
    """Calls to the engine at one time."""
    network_name: str | None = None
    """None: `codehub-{installation}`."""
    engines_network: bool = False
    """Workspaces are on the engine's default network instead, which must be closed between containers."""
    marker: str | None = None
    """Names the volume that tells the node's engine from others; None: any engine will do."""
    blocked_networks: tuple[str, ...] = (LINK_LOCAL,)
    """Networks that workspaces can't reach, name servers in them excepted."""
    services: tuple[tuple[str, int], ...] = ()
    """Host and port of what codehub itself uses: closed to workspaces where it is off the internet."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.installation):
            raise ValueError(
                f"installation {self.installation!r}: use letters, digits, '.', '_' and '-', "
                "starting with a letter or digit"
            )

    @property
    def network(self) -> str:
        return ENGINES_NETWORK if self.engines_network else self.network_name or f"codehub-{self.installation}"
