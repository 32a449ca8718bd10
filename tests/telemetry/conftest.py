from tests.processes.conftest import deploy, launch

__all__ = ["deploy", "launch"]
