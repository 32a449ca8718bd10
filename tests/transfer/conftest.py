from tests.archive.fixtures import archives, docker_runtime, s3_config, volumes

__all__ = ["archives", "docker_runtime", "s3_config", "volumes"]
