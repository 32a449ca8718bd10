from tests.integration.conftest import archives, docker_runtime

__all__ = ["archives", "docker_runtime"]
