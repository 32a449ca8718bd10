"""docker-py's clients, on connections that many threads can share."""

import socket
from dataclasses import dataclass
from typing import Any, Self

from docker import APIClient
from docker.transport import UnixHTTPAdapter
from docker.transport.unixconn import UnixHTTPConnection, UnixHTTPConnectionPool
from docker.utils import kwargs_from_env
from requests.adapters import HTTPAdapter

from adapters.docker.config import DockerConfig

DEFAULT_HOST = "unix:///var/run/docker.sock"
UNIX = "unix://"
ANY_VERSION = "1.41"
"""Only to make a client that does not ask the engine for its version while it is being made."""


@dataclass(frozen=True, slots=True)
class Clients:
    """docker-py has one timeout per client, so there is one for each kind of call."""

    look: APIClient
    work: APIClient

    @classmethod
    def connect(cls, config: DockerConfig, environment: dict[str, str]) -> Self:
        asking = _client(config, environment, ANY_VERSION, config.call_timeout)
        try:
            version = asking.version(api_version=False)["ApiVersion"]
        finally:
            asking.close()
        return cls(
            look=_client(config, environment, version, config.call_timeout),
            work=_client(config, environment, version, config.work_timeout),
        )

    def close(self) -> None:
        self.look.close()
        self.work.close()


def _client(config: DockerConfig, environment: dict[str, str], version: str, timeout: float) -> APIClient:
    arguments: dict[str, Any] = {"base_url": DEFAULT_HOST, **kwargs_from_env(environment)}
    api = APIClient(**arguments, version=version, timeout=timeout)  # type: ignore[arg-type] # takes floats
    host = arguments["base_url"]
    if host.startswith(UNIX):
        api.mount("http+docker://", _SharedSocket(host.removeprefix(UNIX), timeout, config.pool_size))
    elif api.base_url.startswith(("http://", "https://")):
        api.mount(api.base_url, HTTPAdapter(pool_maxsize=config.pool_size))
    # No proxy and no .netrc stands between us and the engine, and looking for them takes time in every call. And a
    # REQUESTS_CA_BUNDLE that is meant for others would be believed before DOCKER_CERT_PATH.
    api.trust_env = False
    return api


class _SharedSocket(UnixHTTPAdapter):
    """docker-py keeps a pool of connections per URL, 25 at most, and closes the oldest while it may be in use:
    with many containers that breaks calls at random. One socket needs one pool."""

    def __init__(self, path: str, timeout: float, size: int) -> None:
        self._shared = _Pool("http+docker://localhost", path, timeout, size)  # type: ignore[arg-type] # takes floats
        super().__init__(f"http+unix://{path}")

    def get_connection(self, url: Any, proxies: Any = None) -> Any:  # noqa: ARG002
        return self._shared

    def close(self) -> None:
        super().close()
        self._shared.close()


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        return _Connection(self.base_url, self.socket_path, self.timeout)  # type: ignore[arg-type]


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        """As docker-py's, which forgets the socket when nobody listens."""
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(self.timeout)
            connecting.connect(self.unix_socket)
        except BaseException:
            connecting.close()
            raise
        self.sock = connecting
