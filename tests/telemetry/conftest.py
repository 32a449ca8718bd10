from tests.processes.conftest import deploy

__all__ = ["deploy"]
