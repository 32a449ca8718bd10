"""Logins at image registries. An engine has none of its own: whoever asks it to pull hands one on."""

import structlog
from docker.auth import encode_header, load_config, resolve_repository_name
from docker.errors import DockerException

log = structlog.get_logger()


def login_for(reference: str) -> str | None:
    """As a header takes it; None where there is none. Found as the worker finds it, in the file that `docker login`
    writes (in DOCKER_CONFIG, else in ~/.docker), or by the credential helper that this names."""
    try:
        registry, _ = resolve_repository_name(reference)
        found = load_config().resolve_authconfig(registry)
    except DockerException as error:
        # Most images need none.
        log.warning("registry_login_not_read", image=reference, error=str(error))
        return None
    return encode_header(found).decode() if found else None
