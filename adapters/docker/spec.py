"""What the engine is asked to run: the container of a workspace, with everything that holds it in."""

from typing import Any

from adapters.docker.config import DockerConfig
from adapters.docker.labels import Labels, Role
from domain.model import OperationId, WorkspaceId
from domain.naming import volume_name

NO_RIGHTS: dict[str, Any] = {
    "Privileged": False,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
}
_LITTLE = 16 * 1024**2
NEVER_RUN: dict[str, Any] = {
    **NO_RIGHTS,
    "Memory": _LITTLE,
    "MemorySwap": _LITTLE,
    "NanoCpus": 100_000_000,
    "PidsLimit": 1,
    "NetworkMode": "none",
}
"""For containers that are only made so that the engine reaches files: should one be started, it can do nothing."""


def container_spec(
    config: DockerConfig,
    workspace_id: WorkspaceId,
    image_ref: str,
    op_id: OperationId,
    *,
    init: bool,
    host_port: int | None = None,
) -> dict[str, Any]:
    """The body of `POST /containers/create`. Without a `host_port` the engine chooses one."""
    labels = Labels(config.installation)
    port = f"{config.workspace_port}/tcp"
    limits = config.limits
    host: dict[str, Any] = {
        "Mounts": [
            {
                "Type": "volume",
                "Source": volume_name(workspace_id),
                "Target": config.workspace_home,
                # The engine makes a volume that is missing instead of failing. These labels go on such a one
                # only, so that it is known as no home, also after a crash right here.
                "VolumeOptions": {"Labels": labels.of(workspace_id, Role.STRAY, op_id)},
            }
        ],
        "NetworkMode": config.network,
        "PortBindings": {port: [{"HostIp": config.publish_host, "HostPort": str(host_port or "")}]},
        "RestartPolicy": {"Name": "no"},
        **NO_RIGHTS,
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "NanoCpus": int(limits.cpus * 1e9),
        "PidsLimit": limits.pids,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
        "Init": init,
    }
    if limits.storage is not None:
        host["StorageOpt"] = {"size": str(limits.storage)}
    return {
        "Image": image_ref,
        "Hostname": workspace_id[:12].strip("-"),
        "Labels": labels.of(workspace_id, Role.WORKSPACE, op_id),
        "ExposedPorts": {port: {}},
        "HostConfig": host,
    }
