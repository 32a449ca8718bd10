"""`/api/v1/nodes`: the Docker hosts of the installation, for admins."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from adapters.postgres.nodes import NodeEntry, Nodes
from starter.api.authentication import Admin, AdminOfIt
from starter.api.dependencies import Dependencies, Deps
from starter.api.errors import ApiError, answers, not_found

router = APIRouter(prefix="/api/v1/nodes", tags=["nodes"])

NodeName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class NodeState(StrEnum):
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    DRAINED = "drained"
    LOST = "lost"


class DrainBody(BaseModel):
    started_at: datetime
    homes: int = Field(description="How many homes there were when it began.")
    left: int = Field(description="How many are still there.")
    leaving: int = Field(description="How many of these are on their way.")
    message: str | None = Field(description="Why it does not go on.")


class NodeBody(BaseModel):
    id: UUID = Field(description="The `subject_id` of its lines in the audit log.")
    name: str
    state: NodeState
    address: str = Field(description="Where the proxy reaches its workspaces.")
    capacity: int | None = Field(description="Homes at most; null: no limit.")
    homes: int
    running: int
    in_error: int
    cpus: int
    memory: int = Field(description="Bytes.")
    registered_at: datetime
    seen_at: datetime = Field(description="When a worker of it last said that its engine answers.")
    drain: DrainBody | None

    @classmethod
    def of(cls, entry: NodeEntry) -> "NodeBody":
        fields = {name: getattr(entry, name) for name in cls.model_fields if hasattr(entry, name)}
        node = entry.node
        told = {"name": node.name, "capacity": node.capacity, "seen_at": node.seen_at}
        return cls.model_validate({**fields, **told, "state": _state(entry), "drain": _drain(entry)})


class NodeList(BaseModel):
    items: list[NodeBody]
    total: int


@router.get("", responses=answers(401, 403))
async def list_nodes(deps: Deps, _: Admin) -> NodeList:
    """All of them, by name."""
    found = [NodeBody.of(entry) for entry in await _nodes(deps).entries()]
    return NodeList(items=found, total=len(found))


@router.get("/{node}", responses=answers(401, 404))
async def get_node(node: NodeName, deps: Deps, _: AdminOfIt) -> NodeBody:
    return await _found(node, deps)


@router.post("/{node}/drain", responses=answers(401, 403, 404, 409))
async def drain_node(node: NodeName, deps: Deps, _: AdminOfIt) -> NodeBody:
    """Nothing new is placed on it, and its homes move to other nodes by way of their archives; RUNNING ones run again
    there. Ask `GET` for how far it is. 409 `only_node`."""
    others = [entry for entry in await _nodes(deps).entries() if entry.node.name != node]
    await _found(node, deps)
    if not others:
        raise ApiError(409, "only_node", "It is the only node: start a worker on another host first.")
    await _nodes(deps).drain(node)
    return await _found(node, deps)


@router.post("/{node}/uncordon", responses=answers(401, 403, 404))
async def uncordon_node(node: NodeName, deps: Deps, _: AdminOfIt) -> NodeBody:
    """Ends a drain: homes are placed on it again, and those that have not left it stay."""
    if not await _nodes(deps).uncordon(node):
        raise not_found()
    return await _found(node, deps)


@router.delete("/{node}", status_code=204, responses=answers(401, 403, 404, 409))
async def remove_node(node: NodeName, deps: Deps, _: AdminOfIt) -> None:
    """For one that will not come back. What was on it, and in no archive, is lost: its workspaces say DataLost.
    409 `node_in_use` while it answers."""
    await _found(node, deps)
    if not await _nodes(deps).remove(node):
        raise ApiError(409, "node_in_use", "It answers: drain it, and stop its worker; then it can be removed.")


def _nodes(deps: Dependencies) -> Nodes:
    return Nodes(deps.database, deps.config.node_lost_after)


async def _found(node: str, deps: Dependencies) -> NodeBody:
    entry = await _nodes(deps).get(node)
    if entry is None:
        raise not_found()
    return NodeBody.of(entry)


def _state(entry: NodeEntry) -> NodeState:
    if entry.lost:
        return NodeState.LOST
    if entry.drain_started_at is not None:
        return NodeState.DRAINING if entry.homes else NodeState.DRAINED
    return NodeState.CORDONED if entry.node.cordoned else NodeState.READY


def _drain(entry: NodeEntry) -> DrainBody | None:
    if entry.drain_started_at is None:
        return None
    return DrainBody(
        started_at=entry.drain_started_at,
        homes=max(entry.drain_homes or 0, entry.homes),
        left=entry.homes,
        leaving=entry.leaving,
        message=_obstacle(entry),
    )


def _obstacle(entry: NodeEntry) -> str | None:
    if not entry.homes:
        return None
    if entry.lost:
        return "the node has not been heard of: its homes can't leave it"
    if entry.drain_message is None and entry.in_error == entry.homes:
        return f"{entry.in_error} left in ERROR: recover or delete them"
    return entry.drain_message
