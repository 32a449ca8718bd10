"""`codehub doctor` on installations that are documented, and well: it says so."""

import pytest

from settings import load_settings
from starter.commands.checks.docker import check_docker
from starter.commands.checks.finding import Status, collected
from tests.cli.console import Cli
from tests.cli.test_doctor import findings
from tests.processes.conftest import Deploy, deploy
from tests.processes.process import until

__all__ = ["deploy"]

pytestmark = pytest.mark.docker


@pytest.mark.timeout(400)
async def test_an_api_beside_a_named_node(
    deploy: Deploy, nobody: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody polls for a node `local` that there is not, and the API's own machine has no engine: all is well. A node
    whose worker is missing is named."""
    deployment = await deploy()
    await deployment.worker("b")
    async with deployment.person() as person:
        port = person.url.rpartition(":")[2]
        env = {name: value for name, value in deployment.env.items() if name != "DOCKER_HOST"} | {"CODEHUB_PORT": port}
        doctor = nobody.having(**env)

        async def is_well() -> bool:
            """The first worker takes a moment to lead."""
            return (await doctor("doctor", "--json")).code == 0

        await until(is_well, 60, (await doctor("doctor")).out)

        nowhere = f"unix://{tmp_path_factory.mktemp('no-engine')}/docker.sock"
        monkeypatch.setattr("adapters.docker.engine.DEFAULT_HOST", nowhere)
        monkeypatch.setattr("adapters.docker.connect.DEFAULT_HOST", nowhere)
        (told,) = await collected(check_docker(load_settings(env)))
        assert (told.status, "with the nodes (b)" in told.message) == (Status.OK, True), told
        (named,) = await collected(check_docker(load_settings({**env, "DOCKER_HOST": nowhere})))
        assert named.status is Status.FAILED, "one that was named has to answer"

        await deployment.database.execute(
            "INSERT INTO nodes (name, engine_id, address) VALUES ('c', 'another engine', '127.0.0.1')"
        )
        (missing,) = findings(await doctor("doctor", "--json"), "Temporal")["failed"]
        assert missing["message"] == "no worker takes operations from the queue node-c"
        assert "codehub worker --node c" in missing["advice"]
