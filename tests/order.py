"""In which order tests run, and which of them in one process."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED = ("tests/nodes/", "tests/web/", "tests/proxy/", "tests/cli/test_up.py")
"""What the tests of one of these files share takes longer to set up than they take: one process runs all of a file."""
ON_THE_DEFAULT_NETWORK = (
    "tests/adapters/test_docker_hardening.py",
    "tests/adapters/test_docker_isolation.py",
    "tests/adapters/test_docker_surroundings.py",
    "tests/docs/test_firewall.py",
)
"""Those of their tests that end in [engine] share one bridge, and each has packet filter rules for it: what one of them
tries without its own would be stopped by another's. One process runs them all."""
LONG = (
    "tests/ide/",
    "tests/nodes/",
    "tests/processes/",
    "tests/harness/",
    "tests/archive/",
    "tests/web/",
    "tests/cli/",
)


class Order:
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The long ones first, so that the end of the run isn't one process at work and the others idle."""

        def turn(item: pytest.Item) -> int:
            return next((number for number, folder in enumerate(LONG) if item.nodeid.startswith(folder)), len(LONG))

        items.sort(key=turn)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> "Sharing":
        config.option.loadscopereorder = False
        return Sharing(config, log)


class Sharing(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Tests one by one, in that order, but those that share something together."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/ide/"):
            return "one image to build"
        if nodeid.startswith(ON_THE_DEFAULT_NETWORK) and nodeid.endswith("[engine]"):
            return "the engine's default network"
        return nodeid.partition("::")[0] if nodeid.startswith(SHARED) else nodeid
