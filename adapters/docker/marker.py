"""What tells an engine's data from any other's: a volume that was made when its node was registered.

An engine may keep its id without its data (before version 23 the id is kept elsewhere): started without its disk, it
would answer as the one it was, and show no home at all.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import NotThere
from adapters.docker.labels import MARKER, Labels, Role
from domain.errors import ActionFailed, Unreachable


class Marker:
    def __init__(self, engine: Engine, config: DockerConfig) -> None:
        self._engine = engine
        self._name = config.marker
        self._labels = Labels(config.installation)
        self.registered: str | None = None
        """What it has to say; None: the node is not registered yet, and nothing is known of its engine."""

    async def ensure(self) -> str:
        """What it says. Made where there is none: on an engine that is not the node's, it says something else."""
        name, labels = self._name or "", {**self._labels.of_node(), MARKER: str(uuid4())}
        await self._engine.act(lambda api: api.create_volume(name, driver="local", labels=labels))
        # Not by the answer: an engine that was restarted tells no labels of one that was there.
        said = await self._read(name)
        if said is None:
            raise ActionFailed(f"volume {name} exists, but is not of this codehub installation: remove or rename it")
        return said

    async def confirm(self) -> None:
        """Raises Unreachable where this is not the data that holds the node's homes: what is missing here is elsewhere.
        Without a name for it nobody asks."""
        if self._name is None:
            return
        if self.registered is None:
            raise Unreachable(f"the engine at {self._engine.where} is not registered as this node's yet")
        if await self._read(self._name) != self.registered:
            raise Unreachable(
                f"the engine at {self._engine.where} is not the one that this node's homes are on, or runs without its "
                f"data: the volume {self._name} is not there, or is another's"
            )

    async def _read(self, name: str) -> str | None:
        try:
            return self._said(await self._engine.look(lambda api: api.inspect_volume(name)))
        except NotThere:
            return None

    def _said(self, found: Mapping[str, Any]) -> str | None:
        labels = found.get("Labels")
        return labels.get(MARKER) if labels and self._labels.owns(labels, Role.NODE, None) else None
