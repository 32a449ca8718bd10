"""Redis or Valkey: reachable, and able to do what the activity log needs."""

from typing import Any, cast
from uuid import uuid4

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ReadOnlyError, RedisError, ResponseError

from settings import Settings
from starter.commands.checks.finding import CheckFailed, Findings, bad, latency, needed, ok
from starter.patience import address_of

_KEY_SECONDS = 60


async def check_redis(settings: Settings) -> Findings:
    url = needed(settings.redis_url, "REDIS_URL")
    redis: Redis = Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5)
    try:
        try:
            took = await latency(lambda: cast("Any", redis.ping()))
            yield ok(f"answers at {address_of(url)}", took)
            info: dict[str, Any] = await redis.info("server")
            valkey = info.get("valkey_version")
            yield ok(f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'of unknown version')}")
            yield await _zadd(redis)
        except AuthenticationError as error:
            raise CheckFailed(f"{address_of(url)}: {error}", "Correct the password in REDIS_URL.") from error
        except (RedisError, OSError) as error:
            raise CheckFailed(f"{address_of(url)}: {error}", "Start it, or correct REDIS_URL.") from error
    finally:
        await redis.aclose()


async def _zadd(redis: "Redis") -> Any:
    """Later wins, whoever comes first: what the proxies write activity with."""
    key = f"codehub:doctor:{uuid4().hex}"
    try:
        await redis.zadd(key, {"member": 2.0})
        # One that dies here leaves nothing behind for long.
        await redis.expire(key, _KEY_SECONDS)
        await redis.zadd(key, {"member": 1.0}, gt=True)
        score = await redis.zscore(key, "member")
        await redis.delete(key)
    except ReadOnlyError as error:
        return bad(f"it takes no writes: {error}", "Name the primary in REDIS_URL: this one is a replica.")
    except NoPermissionError as error:
        return bad(f"this user may not write: {error}", "Allow it all commands on the keys codehub:* (ACL SETUSER).")
    except ResponseError as error:
        if str(error).startswith(("MISCONF", "OOM")):
            return bad(f"it takes no writes: {error}", "Give it room: on its disk (MISCONF), or in its memory (OOM).")
        return bad(f"it can't do ZADD GT: {error}", "Use Redis 6.2 or newer, or Valkey.")
    if score != 2.0:
        return bad("ZADD GT let an earlier time win", "Use Redis 6.2 or newer, or Valkey.")
    return ok("takes activity (ZADD GT)")
