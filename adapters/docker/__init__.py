"""The Docker runtime: workspaces as containers and volumes of one Docker engine."""

from adapters.docker.config import DockerConfig, Limits
from adapters.docker.engine import EngineInfo
from adapters.docker.runtime import DockerRuntime

__all__ = ["DockerConfig", "DockerRuntime", "EngineInfo", "Limits"]
