"""Every environment variable of codehub, in one table. A bad value stops the start with one line."""

import re
import socket
from base64 import b64decode
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    DirectoryPath,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from domain.hosts import check_host_pattern
from domain.limits import Limits
from domain.model import Operation
from domain.plan import Timeouts
from domain.ttl import REPORT, TtlDefaults

# Ten years: further, the times that come out of it are beyond what PostgreSQL, Temporal or Python can tell.
_LONGEST = 10 * 365 * 86400
Seconds = Annotated[float, Field(le=_LONGEST, allow_inf_nan=False)]
WholeSeconds = Annotated[int, Field(le=_LONGEST)]
Count = Annotated[int, Field(le=2**31 - 1)]
Port = Annotated[int, Field(ge=1, le=65535)]


# Whoever sets one of these means codehub, even where it knows no such setting (docs/adr/0016).
_OWN = ("CODEHUB_", "COORDINATOR_", "RECONCILER_", "TTL_", "IDLE_", "LIMITS_", "REDIS_CHANNEL_", "GC_", "ACTIVITY_")
# Of the command line and of the tests, which read them by themselves.
_OTHERS = frozenset({"CODEHUB_TOKEN", "CODEHUB_USERNAME", "CODEHUB_CONFIG", "CODEHUB_REPORT"})
WITHOUT_MEANING: Mapping[str, str] = MappingProxyType(
    {
        "REDIS_CHANNEL_WAKE_PREFIX": "wakes go from PostgreSQL to Temporal and pass no channel of Redis",
        "IDLE_TIMER_SECONDS": "TTL_STANDBY_SECONDS counts from the last activity",
        "RECONCILER_INTERVAL": "COORDINATOR_IDLE_INTERVAL is how soon drift is noticed",
        "TTL_MANAGER_INTERVAL": "it is called TTL_INTERVAL",
    }
)


_KINDS: Mapping[str, str] = MappingProxyType(
    {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
)
_BOUNDS: Mapping[str, str] = MappingProxyType({"minimum": "from", "exclusiveMinimum": "above", "maximum": "up to"})


class SettingsError(Exception):
    """A setting is wrong or missing; the message is one line that names it, its value and what would be right."""


class Settings(BaseModel):
    """The names are those of the environment, in lower case."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    codehub_data: Path = Field(Path(".codehub"), description="where `codehub up` keeps everything")
    codehub_host: str = Field("127.0.0.1", description="address the API listens on")
    codehub_port: Port = Field(8000, description="port of API, proxy and dashboard")
    codehub_url: str | None = Field(None, description="where people reach codehub; needed with WORKSPACE_HOST_PATTERN")
    codehub_admin_password: SecretStr | None = Field(
        None,
        min_length=8,
        description="password of `admin`, who is made when there is no admin yet; "
        "unset, `codehub up` makes one up and `codehub api` makes no admin",
    )

    database_url: str | None = Field(None, description="PostgreSQL; embedded when unset")
    database_pool_size: int = Field(10, ge=2, le=500, description="connections per process")
    redis_url: str | None = Field(None, description="Redis or Valkey; embedded when unset")
    s3_endpoint: str | None = Field(None, description="S3 endpoint; embedded when unset")
    s3_access_key: str = Field("", description="S3 access key")
    s3_secret_key: SecretStr = Field(SecretStr(""), description="S3 secret key")
    s3_bucket: str = Field("codehub", description="bucket of the archives")
    s3_region: str = Field("us-east-1", description="S3 region")
    s3_ca_bundle: FilePath | None = Field(None, description="file of the CA that signed the S3 endpoint's certificate")
    s3_directory: DirectoryPath | None = Field(
        None,
        description="where a store on this machine keeps its data, if it does not flush what it has taken: then codehub"
        " does, before a volume goes (set for the embedded one)",
    )
    temporal_address: str | None = Field(None, description="host:port of Temporal; embedded when unset")
    temporal_namespace: str = Field("default", min_length=1, description="Temporal namespace")
    temporal_tls: bool = Field(False, description="TLS to Temporal; the settings below imply it")
    temporal_tls_ca: FilePath | None = Field(None, description="file of the CA that signed Temporal's certificate")
    temporal_tls_cert: FilePath | None = Field(None, description="file of our certificate, where Temporal asks for one")
    temporal_tls_key: FilePath | None = Field(None, description="file of our certificate's key")
    temporal_tls_server_name: str | None = Field(None, description="name in Temporal's certificate, if another")
    temporal_payload_keys: SecretStr | None = Field(
        None, description="encrypts what Temporal stores: 32 bytes in base64; by commas, the first one encrypts"
    )
    temporal_api_key: SecretStr | None = Field(None, description="API key (Temporal Cloud); implies TLS")
    temporal_ui_url: str | None = Field(None, description="where people reach the Temporal UI, for links")
    docker_host: str | None = Field(None, description="Docker Engine; the reachable one when unset")

    workspace_image: str = Field("codehub-ide:latest", min_length=1, description="image of new workspaces")
    workspace_port: Port = Field(8080, description="port the image's entrypoint listens on")
    workspace_home: str = Field("/home/coder", pattern=r"^/.+", description="home directory inside the container")
    workspace_memory_mb: Count = Field(2048, ge=16, description="memory limit of a workspace, MiB")
    workspace_cpus: float = Field(2.0, gt=0, le=4096, description="CPU limit of a workspace")
    workspace_pids: Count = Field(512, ge=16, description="process limit of a workspace")
    workspace_network: Literal["own", "engine"] = Field(
        "own", description="own, or the engine's default network: faster starts, for a dockerd with --icc=false"
    )
    workspace_blocked_networks: str = Field(
        "",
        description="networks that workspaces can't reach, by commas, such as 10.0.0.0/8; name servers excepted",
    )
    workspace_host_pattern: str | None = Field(
        None, description="host names of workspaces, such as {id}.ws.example.com; unset: all below /w/ of one host"
    )
    stop_grace_seconds: int = Field(5, ge=0, le=600, description="between SIGTERM and SIGKILL")

    coordinator_node_id: str = Field(default_factory=socket.gethostname, min_length=1, description="who holds the lock")
    coordinator_lock_id: int = Field(12345, ge=-(2**63), le=2**63 - 1, description="advisory lock of the leader")
    coordinator_retry_interval: Seconds = Field(5, gt=0, description="between tries to lead, s")
    coordinator_idle_interval: Seconds = Field(15, gt=0, description="drift is noticed within; sweeps every 4/5, s")
    coordinator_active_interval: Seconds = Field(1, gt=0, description="look again while waiting, s")
    coordinator_active_duration: Seconds = Field(30, ge=0, description="how long after a wake, s")
    coordinator_safety_interval: Seconds = Field(14400, gt=0, description="an idle workflow's own timer, s")

    node_address: str = Field(
        "127.0.0.1", description="address of this host on which its workspaces' ports are published for the proxy"
    )
    node_capacity: Count = Field(0, ge=0, description="homes that are placed on this host at most; 0: no limit")
    node_lost_seconds: float = Field(
        15, ge=3, le=300, description="a host that was not heard of for longer is lost, where there are several, s"
    )
    node_drain_at_once: Count = Field(4, ge=1, description="homes that leave drained hosts at a time")

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

    archive_max_transfers: Count = Field(4, ge=1, description="archives at once per worker, and restores")
    archive_stall_seconds: Seconds = Field(60, gt=0, description="a transfer that moves nothing for this long fails, s")

    ttl_interval: Seconds = Field(60, gt=0, description="between ticks of the TTL runner, s")
    ttl_standby_seconds: WholeSeconds = Field(600, ge=0, description="idle RUNNING goes to STANDBY after, s; 0: never")
    ttl_archive_seconds: WholeSeconds = Field(1800, ge=0, description="STANDBY goes to ARCHIVED after, s; 0: never")
    activity_flush_interval: Seconds = Field(30, gt=0, description="between the proxy's reports of activity, s")

    proxy_page_timeout: Seconds = Field(
        60, gt=0, description="a page of a workspace that does not begin within this is said to be unreachable, s"
    )

    redis_channel_sse_prefix: str = Field("codehub:sse:", min_length=1, description="channels of live events")

    gc_interval: Seconds = Field(14400, gt=0, description="between runs of GC, s")
    gc_delay: Seconds = Field(7200, ge=0, description="how long an archive must have been an orphan, s")
    gc_restored_delay: Seconds = Field(
        7 * 86400, ge=0, description="nothing is deleted after the database went back, s"
    )

    limits_max_running_per_user: Count = Field(2, ge=0, description="RUNNING workspaces of one user")
    limits_max_running_global: Count = Field(100, ge=0, description="RUNNING workspaces in all")

    trusted_proxies: str = Field(
        "", description="addresses and networks of reverse proxies whose X-Forwarded-* headers count, by commas"
    )
    audit_kept_days: int = Field(365, ge=1, le=_LONGEST // 86400, description="how long the audit log is kept, days")
    session_ttl_seconds: WholeSeconds = Field(14 * 86400, gt=0, description="life of a login session, s")

    worker_max_concurrent_workflow_tasks: Count = Field(8, ge=2, description="more stalls two cores when many wake")
    worker_max_concurrent_activities: Count = Field(100, ge=1, description="operations at once per worker")
    worker_max_cached_workflows: Count = Field(2000, ge=0, description="about 50 KB each")
    worker_sticky_timeout: Seconds = Field(3, gt=0, description="how long a dead worker's workflows wait for it, s")
    worker_drain_seconds: Seconds = Field(8, ge=0, description="how long SIGTERM lets operations finish, s")

    metrics_host: str = Field("127.0.0.1", description="address of METRICS_PORT")
    metrics_port: Port | None = Field(None, description="port of /metrics and /health of this process; none when unset")
    metrics_token: SecretStr | None = Field(
        None, min_length=16, description="bearer token for /metrics; at the API's own address an admin's will do, too"
    )

    otel_exporter_otlp_endpoint: str | None = Field(
        None, description="OTLP/HTTP collector that gets traces; none are made when unset"
    )

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

    @field_validator("trusted_proxies", "workspace_blocked_networks")
    @classmethod
    def _are_networks(cls, value: str) -> str:
        _networks(value)
        return value

    @field_validator("s3_endpoint", "otel_exporter_otlp_endpoint", "codehub_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        _has_scheme(value, "http", "https")
        if value is not None and urlsplit(value).port == 0:
            raise ValueError("a port from 1 to 65535 would be right")
        return value

    @field_validator("s3_bucket")
    @classmethod
    def _is_bucket(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", value):
            raise ValueError("3 to 63 of a-z, 0-9, '-' and '.' would be right, such as codehub-archives")
        return value

    @field_validator("workspace_host_pattern")
    @classmethod
    def _is_host_pattern(cls, value: str | None, given: ValidationInfo) -> str | None:
        if value is not None:
            check_host_pattern(value, given.data.get("codehub_url"))
        return value

    @field_validator("docker_host")
    @classmethod
    def _is_docker(cls, value: str | None) -> str | None:
        return _has_scheme(value, "unix", "tcp", "http", "https", "ssh", "npipe")

    @field_validator("temporal_address")
    @classmethod
    def _is_host_and_port(cls, value: str | None) -> str | None:
        if value is None:
            return None
        host, _, port = value.rpartition(":")
        if re.search(r"[\s/]|^$", host) or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise ValueError("host:port would be right, such as 127.0.0.1:7233")
        return value

    @field_validator("temporal_payload_keys")
    @classmethod
    def _are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        payload_keys(value)
        return value

    @field_validator("node_address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if ip_address(value).is_unspecified:
            raise ValueError("one address of this host would be right: the proxy has to know where to go")
        return value

    @property
    def blocked_networks(self) -> tuple[str, ...]:
        return _networks(self.workspace_blocked_networks)

    @property
    def node_lost_after(self) -> timedelta:
        return timedelta(seconds=self.node_lost_seconds)

    @property
    def limits(self) -> Limits:
        return Limits(self.limits_max_running_per_user, self.limits_max_running_global)

    @property
    def ttl(self) -> TtlDefaults:
        return TtlDefaults(
            standby=timedelta(seconds=self.ttl_standby_seconds),
            archive=timedelta(seconds=self.ttl_archive_seconds),
            lag=timedelta(seconds=self.activity_flush_interval) + REPORT,
        )

    @property
    def timeouts(self) -> Timeouts:
        return {
            operation: timedelta(seconds=getattr(self, f"reconciler_{operation.lower()}_timeout"))
            for operation in Operation
            if operation is not Operation.NONE
        }


def _networks(value: str) -> tuple[str, ...]:
    return tuple(str(ip_network(part.strip())) for part in value.split(",") if part.strip())


def payload_keys(given: SecretStr | None) -> tuple[bytes, ...]:
    try:
        keys = [
            b64decode(part, validate=True) for part in (given.get_secret_value() if given else "").split(",") if part
        ]
    except ValueError:
        keys = [b""]
    if any(len(key) != 32 for key in keys):
        raise ValueError("32 bytes in base64 would be right, such as `openssl rand -base64 32` makes")
    return tuple(keys)


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Empty values count as unset, so that `NAME= codehub up` means the default."""
    given = {name.lower(): value for name, value in environment.items() if value and name == name.upper()}
    try:
        return Settings.model_validate({name: given[name] for name in Settings.model_fields if name in given})
    except ValidationError as error:
        raise SettingsError(_line(error, given)) from None


def without_effect(environment: Mapping[str, str]) -> dict[str, str]:
    """What is set as if it were a setting of codehub, and why it does nothing."""
    return {
        name: WITHOUT_MEANING.get(name) or _unknown(name)
        for name, value in sorted(environment.items())
        if value and name.startswith(_OWN) and name.lower() not in Settings.model_fields and name not in _OTHERS
    }


def _unknown(name: str) -> str:
    meant = get_close_matches(name.lower(), Settings.model_fields, n=1, cutoff=0.8)
    return f"codehub has no such setting{f': is {meant[0].upper()} meant?' if meant else ''}"


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
    wanted = _kind(name) or problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name.upper()}={value} is not right: {field.description}; wanted: {wanted}"


def _kind(name: str) -> str | None:
    """What a number or a switch may be: pydantic says how the reading of it failed."""
    schema = Settings.model_json_schema()["properties"][name]
    for kind in schema.get("anyOf", [schema]):
        if kind.get("type") in _KINDS:
            bounds = [f" {words} {kind[bound]}" for bound, words in _BOUNDS.items() if bound in kind]
            return _KINDS[kind["type"]] + "".join(bounds)
    return None
