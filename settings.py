"""Every environment variable of codehub, in one table. A bad value stops the start with one line."""

import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from domain.limits import Limits
from domain.model import Operation
from domain.plan import Timeouts
from domain.ttl import TtlDefaults

Seconds = float


class SettingsError(Exception):
    """A setting is wrong or missing; the message is one line that names it, its value and what would be right."""


class Settings(BaseModel):
    """The names are those of the environment, in lower case."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    codehub_data: Path = Field(Path(".codehub"), description="where `codehub up` keeps everything")
    codehub_host: str = Field("127.0.0.1", description="address the API listens on")
    codehub_port: int = Field(8000, ge=1, le=65535, description="port of API, proxy and dashboard")
    codehub_admin_password: SecretStr | None = Field(
        None, min_length=8, description="password of `admin` at first start; generated when unset"
    )

    database_url: str | None = Field(None, description="PostgreSQL; embedded when unset")
    database_pool_size: int = Field(10, ge=2, le=500, description="connections per process")
    redis_url: str | None = Field(None, description="Redis or Valkey; embedded when unset")
    s3_endpoint: str | None = Field(None, description="S3 endpoint; embedded when unset")
    s3_access_key: str = Field("", description="S3 access key")
    s3_secret_key: SecretStr = Field(SecretStr(""), description="S3 secret key")
    s3_bucket: str = Field("codehub", min_length=3, max_length=63, description="bucket of the archives")
    s3_region: str = Field("us-east-1", description="S3 region")
    temporal_address: str | None = Field(None, description="host:port of Temporal; embedded when unset")
    temporal_namespace: str = Field("default", min_length=1, description="Temporal namespace")
    temporal_tls: bool = Field(False, description="TLS to Temporal")
    temporal_api_key: SecretStr | None = Field(None, description="API key (Temporal Cloud); implies TLS")
    temporal_ui_url: str | None = Field(None, description="where people reach the Temporal UI, for links")
    docker_host: str | None = Field(None, description="Docker Engine; the reachable one when unset")

    workspace_image: str = Field("codehub-ide:latest", min_length=1, description="image of new workspaces")
    workspace_port: int = Field(8080, ge=1, le=65535, description="port the image's entrypoint listens on")
    workspace_home: str = Field("/home/coder", pattern=r"^/.+", description="home directory inside the container")
    workspace_memory_mb: int = Field(2048, ge=16, description="memory limit of a workspace, MiB")
    workspace_cpus: float = Field(2.0, gt=0, description="CPU limit of a workspace")
    workspace_pids: int = Field(512, ge=16, description="process limit of a workspace")
    stop_grace_seconds: int = Field(5, ge=0, le=600, description="between SIGTERM and SIGKILL")

    coordinator_node_id: str = Field(default_factory=socket.gethostname, min_length=1, description="who holds the lock")
    coordinator_lock_id: int = Field(12345, description="advisory lock of the leader")
    coordinator_retry_interval: Seconds = Field(5, gt=0, description="between tries to lead, s")
    coordinator_idle_interval: Seconds = Field(15, gt=0, description="observer's sweep, s")
    coordinator_active_interval: Seconds = Field(1, gt=0, description="look again while waiting, s")
    coordinator_active_duration: Seconds = Field(30, ge=0, description="how long after a wake, s")
    coordinator_safety_interval: Seconds = Field(3600, gt=0, description="an idle workflow's own timer, s")

    reconciler_max_retries: int = Field(3, ge=1, le=20, description="failed attempts that make an ERROR")
    reconciler_retry_backoff: Seconds = Field(2, gt=0, description="before the second attempt, s; doubles, jittered")
    reconciler_patience: Seconds = Field(
        30, ge=0, description="how long an attempt waits for an engine or a store that does not answer, s"
    )
    reconciler_provisioning_timeout: Seconds = Field(300, gt=0, description="PROVISIONING, s")
    reconciler_create_empty_archive_timeout: Seconds = Field(300, gt=0, description="CREATE_EMPTY_ARCHIVE, s")
    reconciler_restoring_timeout: Seconds = Field(1800, gt=0, description="RESTORING, s")
    reconciler_starting_timeout: Seconds = Field(300, gt=0, description="STARTING, s")
    reconciler_archiving_timeout: Seconds = Field(1800, gt=0, description="ARCHIVING, s")
    reconciler_stopping_timeout: Seconds = Field(300, gt=0, description="STOPPING, s")
    reconciler_deleting_timeout: Seconds = Field(300, gt=0, description="DELETING, s")

    archive_max_transfers: int = Field(4, ge=1, description="archives and restores at once per worker")
    archive_stall_seconds: Seconds = Field(60, gt=0, description="a transfer that moves nothing for this long fails, s")

    ttl_interval: Seconds = Field(60, gt=0, description="between ticks of the TTL runner, s")
    ttl_standby_seconds: int = Field(600, ge=0, description="idle RUNNING goes to STANDBY after, s; 0: never")
    ttl_archive_seconds: int = Field(1800, ge=0, description="STANDBY goes to ARCHIVED after, s; 0: never")
    activity_flush_interval: Seconds = Field(30, gt=0, description="between the proxy's reports of activity, s")

    redis_channel_sse_prefix: str = Field("codehub:sse:", min_length=1, description="channels of live events")

    gc_interval: Seconds = Field(14400, gt=0, description="between runs of GC, s")
    gc_delay: Seconds = Field(7200, ge=0, description="how long an archive must have been an orphan, s")
    gc_restored_delay: Seconds = Field(
        7 * 86400, ge=0, description="nothing is deleted after the database went back, s"
    )

    limits_max_running_per_user: int = Field(2, ge=0, description="RUNNING workspaces of one user")
    limits_max_running_global: int = Field(100, ge=0, description="RUNNING workspaces in all")

    trusted_proxies: str = Field(
        "", description="addresses and networks of reverse proxies whose X-Forwarded-* headers count, by commas"
    )
    session_ttl_seconds: int = Field(14 * 86400, gt=0, description="life of a login session, s")

    worker_max_concurrent_workflow_tasks: int = Field(8, ge=2, description="more stalls two cores when many wake")
    worker_max_concurrent_activities: int = Field(100, ge=1, description="operations at once per worker")
    worker_max_cached_workflows: int = Field(2000, ge=0, description="about 50 KB each")
    worker_sticky_timeout: Seconds = Field(3, gt=0, description="how long a dead worker's workflows wait for it, s")
    worker_drain_seconds: Seconds = Field(8, ge=0, description="how long SIGTERM lets operations finish, s")

    log_format: Literal["console", "json", "auto"] = Field("auto", description="auto: console on a terminal")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="least level")

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: str | None) -> str | None:
        return _has_scheme(value, "postgresql", "postgres")

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: str | None) -> str | None:
        return _has_scheme(value, "redis", "rediss", "unix")

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        for part in value.split(","):
            if part.strip():
                ip_network(part.strip())
        return value

    @field_validator("s3_endpoint")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return _has_scheme(value, "http", "https")

    @field_validator("docker_host")
    @classmethod
    def _is_docker(cls, value: str | None) -> str | None:
        return _has_scheme(value, "unix", "tcp", "http", "https", "ssh", "npipe")

    @field_validator("temporal_address")
    @classmethod
    def _is_host_and_port(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", value):
            raise ValueError("host:port would be right, such as 127.0.0.1:7233")
        return value

    @property
    def limits(self) -> Limits:
        return Limits(self.limits_max_running_per_user, self.limits_max_running_global)

    @property
    def ttl(self) -> TtlDefaults:
        return TtlDefaults(
            standby=timedelta(seconds=self.ttl_standby_seconds),
            archive=timedelta(seconds=self.ttl_archive_seconds),
            lag=timedelta(seconds=self.activity_flush_interval),
        )

    @property
    def timeouts(self) -> Timeouts:
        return {
            operation: timedelta(seconds=getattr(self, f"reconciler_{operation.lower()}_timeout"))
            for operation in Operation
            if operation is not Operation.NONE
        }


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Empty values count as unset, so that `NAME= codehub up` means the default."""
    given = {name.lower(): value for name, value in environment.items() if value and name == name.upper()}
    try:
        return Settings.model_validate({name: given[name] for name in Settings.model_fields if name in given})
    except ValidationError as error:
        raise SettingsError(_line(error, given)) from None


def required(settings: Settings, *names: str) -> None:
    """Stop with one line when a process that embeds nothing lacks an address."""
    for name in names:
        if getattr(settings, name) is None:
            raise SettingsError(
                f"{name.upper()} is not set: `codehub up` runs its own, everything else needs its address"
            )


def _has_scheme(value: str | None, *schemes: str) -> str | None:
    if value is not None and not value.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        raise ValueError(f"a URL that starts with {' or '.join(f'{scheme}://' for scheme in schemes)} would be right")
    return value


def _line(error: ValidationError, given: Mapping[str, str]) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    field = Settings.model_fields[name]
    value = "(hidden)" if "SecretStr" in str(field.annotation) or "://" in given[name] else repr(given[name])
    wanted = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name.upper()}={value} is not right: {field.description}; wanted: {wanted}"
