"""The bridge network that all workspaces of an installation are on, each alone: one of its own, or the engine's."""

import asyncio
import hashlib
from typing import Any

import structlog

from adapters.docker.config import ENGINES_NETWORK, DockerConfig
from adapters.docker.engine import Engine
from adapters.docker.failures import NotThere
from adapters.docker.firewall import Firewall
from adapters.docker.labels import Labels, Role
from adapters.docker.surroundings import Neighbours, Surroundings
from domain.errors import ActionFailed

log = structlog.get_logger()

RECHECK_SECONDS = 60.0
"""How long a network that was seen is taken for granted; one that is gone is noticed earlier, by a start."""
TRIES = 20
TRY_PAUSE = 0.1
ICC = "com.docker.network.bridge.enable_icc"
BRIDGE = "com.docker.network.bridge.name"


async def closed_bridge(engine: Engine) -> str:
    """Of the engine's default network: its settings are the engine's, and hold as long as it runs."""
    found: dict[str, Any] = await engine.look(lambda api: api.inspect_network(ENGINES_NETWORK))
    options = found["Options"]
    if options.get(ICC) != "false" or found["EnableIPv6"] or not options.get(BRIDGE):
        raise ActionFailed(
            "On the engine's default network workspaces could reach each other: start dockerd with --icc=false and "
            "without --ipv6, or set WORKSPACE_NETWORK=own"
        )
    return str(options[BRIDGE])


class Network:
    def __init__(
        self, engine: Engine, config: DockerConfig, aside: Engine | None = None, neighbours: Neighbours | None = None
    ) -> None:
        """`aside` is asked for what a sweep needs, so that it does not wait behind starts."""
        self.name = config.network
        # The engine allows two networks of one name, but not two of one bridge: fixing the bridge's name makes
        # it the engine that refuses the second of two workers. The kernel takes 15 characters.
        self.bridge = f"ch-{hashlib.sha256(self.name.encode()).hexdigest()[:10]}"
        self._is_the_engines = config.engines_network
        self._engine, self._aside = engine, aside or engine
        self._labels = Labels(config.installation)
        self._surroundings = Surroundings(config, neighbours)
        self._firewall = Firewall(self.bridge, config.installation)
        self._lock = asyncio.Lock()
        self._fresh_until = 0.0

    async def ensure(self) -> None:
        """There is a network, and its rules are in place."""
        now = asyncio.get_running_loop().time
        if now() < self._fresh_until:
            return
        async with self._lock:
            if now() < self._fresh_until:
                return
            if self._is_the_engines:
                self._firewall.bridge = await closed_bridge(self._engine)
            else:
                await self._ensure_network()
            await self._filter()
            self._fresh_until = now() + RECHECK_SECONDS

    async def isolate(self) -> None:
        """The rules are in place, also where somebody has just taken them away. Raises ActionFailed."""
        async with self._lock:
            if self._is_the_engines:
                self._firewall.bridge = await closed_bridge(self._aside)
            failure = await self._filter()
        if failure is not None:
            raise ActionFailed(failure)

    def forget(self) -> None:
        """Look again at the next start."""
        self._fresh_until = 0.0

    async def remove(self) -> None:
        """For an installation that goes away; refused by the engine while a workspace runs on it."""
        async with self._lock:
            self.forget()
            if self._is_the_engines:
                self._firewall.bridge = await closed_bridge(self._engine)
            else:
                for found in await self._ours():
                    await self._remove(found["Id"])
            await self._engine.compute(self._firewall.remove)

    async def _filter(self) -> str | None:
        self._firewall.closed = await self._surroundings.look()
        return await self._aside.compute(self._firewall.ensure)

    async def _remove(self, network_id: str) -> None:
        try:
            await self._engine.act(lambda api: api.remove_network(network_id))
        except NotThere:
            return
        log.info("network_removed", network=self.name)

    async def _ensure_network(self) -> None:
        refusal: ActionFailed | None = None
        for _ in range(TRIES):
            if await self._ours():
                return
            try:
                await self._create()
            except ActionFailed as error:
                # Refused, most likely because another worker was faster; then it shows up at once.
                refusal = error
                await asyncio.sleep(TRY_PAUSE)
            else:
                log.info("network_created", network=self.name, bridge=self.bridge)
                return
        raise ActionFailed(f"Network {self.name} can't be made: {refusal}") from refusal

    async def _ours(self) -> list[dict[str, Any]]:
        # The engine's filter takes a part of the name for the name.
        found = await self._engine.look(lambda api: api.networks(names=[self.name]))
        same = [network for network in found if network["Name"] == self.name]
        if any(not self._labels.owns(network["Labels"], Role.NETWORK, None) for network in same):
            raise ActionFailed(
                f"Network {self.name} exists, but is not of this codehub installation: remove it, or name another"
            )
        return same

    async def _create(self) -> None:
        await self._engine.act(
            lambda api: api.create_network(
                self.name,
                driver="bridge",
                check_duplicate=True,
                enable_ipv6=False,
                labels=self._labels.of_network(),
                options={BRIDGE: self.bridge, ICC: "false"},
            )
        )
