"""What the shell offers after `codehub --install-completion`."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.api.world import Api, Person
from tests.cli.console import Cli

COMPLETED = """
source "$HOME/.bashrc"
read -ra COMP_WORDS <<< "$LINE"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_codehub_completion codehub
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
async def shell(cli: Cli) -> Cli:
    """Of somebody who has installed it."""
    place = Path(sys.executable).parent
    installed = cli.having(PATH=f"{place}{os.pathsep}{os.environ['PATH']}")
    told = await bash(installed, "codehub --install-completion; exit $?")
    assert "bash completion installed" in told
    return installed


async def bash(cli: Cli, script: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script, env=cli.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b""), err.decode()
    return out.decode().strip()


async def offered(shell: Cli, line: str) -> list[str]:
    return (await bash(shell.having(LINE=line), COMPLETED)).split()


async def test_names_and_commands_are_offered(shell: Cli, api: Api, alice: Person) -> None:
    """Of the workspaces that begin so; and nothing at all, silently, where it can't know."""
    for name in ("demo", "draft", "other"):
        await alice.workspace(name)
    assert sorted(await offered(shell, "codehub start d")) == ["demo", "draft"]
    assert await offered(shell, "codehub arch") == ["archive"]
    assert "--standby-ttl" in await offered(shell, "codehub create x --st")
    assert await offered(shell, "codehub create x --state st") == ["standby"]
    assert await offered(shell.having(CODEHUB_URL="http://127.0.0.1:1"), "codehub start d") == []


async def test_owners_and_their_workspaces_are_offered_to_admins(shell: Cli, api: Api, alice: Person) -> None:
    """To others nothing, silently: it is not theirs to know who else there is."""
    await alice.workspace("draft")
    assert await offered(shell, "codehub explain --owner al") == []
    await (await api.person("root", is_admin=True)).workspace("demo")
    await shell.login(api.url, "root")
    assert await offered(shell, "codehub explain --owner al") == ["alice"]
    assert await offered(shell, "codehub explain --owner alice d") == ["draft"]
    assert await offered(shell, "codehub explain d") == ["demo"]
