"""What the routes work with, put together once by the server (or a test)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, cast

from fastapi import Depends, Request

from adapters.postgres.accounts import Accounts
from adapters.postgres.audit import Audit
from adapters.postgres.catalog import Catalog
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.lockout import Lockout, LockoutPolicy
from adapters.postgres.sessions import ApiTokens, Sessions
from adapters.redis.activity import ActivityLog
from adapters.redis.events import EventBus
from domain.errors import MAX_RETRIES
from domain.limits import Limits
from domain.plan import DEFAULT_TIMEOUTS, Timeouts
from domain.ttl import TtlDefaults
from starter.api.forwarded import TrustedProxies
from starter.api.hub import Hub
from starter.api.logins import Logins
from starter.api.passwords import Passwords
from starter.api.wakes import Waker, Wakes

Check = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ApiConfig:
    default_image: str
    coordinator_lock_id: int = 12345
    session_ttl: timedelta = timedelta(days=14)
    limits: Limits = field(default_factory=Limits)
    max_retries: int = MAX_RETRIES
    lockout: LockoutPolicy = field(default_factory=LockoutPolicy)
    trusted_proxies: TrustedProxies = field(default_factory=TrustedProxies)
    check_deadline: float = 2.0
    ttl: TtlDefaults = field(default_factory=TtlDefaults)
    timeouts: Timeouts = field(default_factory=lambda: DEFAULT_TIMEOUTS)
    audit_kept: timedelta = timedelta(days=365)
    node_lost_after: timedelta = timedelta(seconds=15)
    temporal_ui_url: str | None = None
    """Where the workflows of our namespace are listed."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    config: ApiConfig
    database: Database
    passwords: Passwords
    wakes: Wakes
    checks: Mapping[str, Check]
    watched: Mapping[str, Check]
    accounts: Accounts
    sessions: Sessions
    tokens: ApiTokens
    logins: Logins
    desired_states: DesiredStates
    catalog: Catalog
    audit: Audit
    hub: Hub | None = None
    """Live events; None without Redis."""
    activity: ActivityLog | None = None


def assemble(
    config: ApiConfig,
    database: Database,
    waker: Waker,
    passwords: Passwords,
    checks: Mapping[str, Check] | None = None,
    bus: EventBus | None = None,
    watched: Mapping[str, Check] | None = None,
) -> Dependencies:
    """`checks` are what /health/ready asks besides PostgreSQL, by name; `watched` is what the API works without, and
    admins want to know of."""
    accounts = Accounts(database)
    sessions = Sessions(database)
    desired_states = DesiredStates(database, config.limits)
    catalog = Catalog(database, desired_states)
    return Dependencies(
        config=config,
        database=database,
        passwords=passwords,
        wakes=Wakes(waker),
        checks=checks or {},
        watched=watched or {},
        accounts=accounts,
        sessions=sessions,
        tokens=ApiTokens(database),
        logins=Logins(accounts, sessions, Lockout(database, config.lockout), passwords, config.session_ttl),
        desired_states=desired_states,
        catalog=catalog,
        audit=Audit(database, config.audit_kept),
        hub=Hub(bus, catalog) if bus is not None else None,
        activity=ActivityLog(bus.redis) if bus is not None else None,
    )


async def _dependencies(request: Request) -> Dependencies:
    return cast("Dependencies", request.app.state.dependencies)


Deps = Annotated[Dependencies, Depends(_dependencies)]
