"""Exit codes and error JSON that scripts can use."""

import asyncio
import subprocess
import sys
import time

import pytest

from domain.limits import Limits
from starter.api.dependencies import ApiConfig
from tests.api.world import Api, Person, serving
from tests.cli.console import COMMAND, Cli
from tests.cli.forker import ROOT


async def test_each_failure_has_its_code(cli: Cli, api: Api, alice: Person, nobody: Cli) -> None:
    busy, broken = await alice.workspace("busy"), await alice.workspace("broken")
    await api.busy(busy, "STOPPING")
    await api.row(broken, phase="ERROR", error_reason="DataLost")
    for code, name, words in (
        (2, "invalid", ("create", "a\nb")),
        (2, "usage", ("create", "x", "--standby-ttl", "soon")),
        (2, "usage", ("stop", "busy", "--timeout", "3s")),
        (3, "not_found", ("stop", "nothing")),
        (4, "operation_running", ("start", "busy")),
        (4, "operation_running", ("rm", "busy", "--yes")),
        (4, "in_error", ("start", "broken")),
        # It is wanted there already: no change for the server, and yet nothing will happen.
        (4, "in_error", ("stop", "broken")),
        (4, "name_taken", ("create", "busy")),
        (4, "not_in_error", ("recover", "busy")),
        (6, "unauthenticated", ("ls", "--token", "chub_wrong")),
        (7, "unreachable", ("ls", "--url", "http://127.0.0.1:1", "--token", "chub_x")),
    ):
        failed = await cli(*words, "--json")
        assert (failed.code, failed.out, failed.error["code"]) == (code, "", name), words
        plain = await cli(*words)
        assert plain.code == code
        assert plain.err.startswith("codehub: ")
        assert plain.err.count("\n") == 1, plain.err
    assert "STOPPING" in (await cli("start", "busy")).err
    assert "DataLost" in (await cli("start", "broken")).err


async def test_a_limit(nobody: Cli, database_url: str) -> None:
    config = ApiConfig(default_image="i", limits=Limits(max_running_per_user=1))
    async with serving(database_url, config) as api:
        await api.person("alice")
        await nobody.login(api.url, "alice")
        assert (await nobody("create", "first")).code == 0
        refused = await nobody("create", "second", "--json")
        assert (refused.code, refused.error["code"]) == (5, "limit_per_user")
        assert "codehub stop first" in refused.error["message"]
        assert (await nobody("rename", "first", "my first")).code == 0
        assert "codehub stop 'my first'" in (await nobody("create", "second")).err


async def test_not_logged_in(nobody: Cli) -> None:
    refused = await nobody("ls")
    assert (refused.code, "codehub login --url http://127.0.0.1:8000" in refused.err) == (6, True)


async def test_what_is_no_codehub(nobody: Cli) -> None:
    """A page, another status, a redirect, an answer that breaks off: one line each, and no token goes elsewhere."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode())
        writer.write(replies[-1])
        await writer.drain()
        writer.close()

    asked: list[str] = []
    replies: list[bytes] = []
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for reply, code, words in (
            (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", 7, "not codehub"),
            (b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n", 1, "418"),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 7, "503"),
            (b"HTTP/1.1 308 X\r\nLocation: https://elsewhere/\r\nContent-Length: 0\r\n\r\n", 1, "https://elsewhere/"),
            (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", 7, "broke"),
            (b"nonsense\r\n\r\n", 7, "broke"),
            (b"", 7, "broke"),
        ):
            replies.append(reply)
            refused = await nobody("ls", "--url", url, "--token", "chub_x")
            assert (refused.code, words in refused.err) == (code, True), refused
            assert "Traceback" not in refused.err
    assert len(asked) == 4 + 3 * 3


async def test_a_create_whose_answer_is_lost_makes_one_workspace(nobody: Cli, api: Api, alice: Person) -> None:
    """The connection breaks after the server has done it: asked again with the same key, it answers the same."""
    token = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
    host, port = api.url.removeprefix("http://").split(":")
    lost: list[bytes] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(host, int(port))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-l")
            )
            upstream.write(head + await reader.readexactly(length))
            answer = await upstream_reader.readuntil(b"\r\n\r\n")
            if len(lost) < 2:
                lost.append(answer)
                return
            writer.write(answer + await upstream_reader.read(65536))
            await writer.drain()
        finally:
            upstream.close()
            writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = await nobody("create", "demo", "--url", url, "--token", token, "--json")
    assert made.code == 0, made.err
    listed = (await alice("GET", "/api/v1/workspaces")).json
    assert [ws["id"] for ws in listed["items"]] == [made.json["id"]]
    assert len(lost) == 2


async def test_output_that_nobody_reads_is_no_crash(cli: Cli, alice: Person) -> None:
    async with cli.running("ls", "--json") as process:
        assert process.stdout
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert process.stderr
        assert b"Traceback" not in await process.stderr.read()


def test_help_teaches(nobody: Cli) -> None:
    """Every command has an example, and the exit codes are told."""
    told = subprocess.run([*COMMAND, "--help"], env=nobody.env, cwd=ROOT, capture_output=True, text=True, check=True)
    for code in ("3  there is no such workspace", "9  --wait: the time is over"):
        assert code in told.stdout
    code = (
        "from starter.cli import COMMANDS; print([n for g in COMMANDS.values() for n, c in g.items()"
        " if 'Examples:' not in (c.__doc__ or '')])"
    )
    without = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert without.stdout.strip() == "['worker', 'api', 'migrate']"


@pytest.mark.parametrize("module", ["pydantic.main", "rich", "asyncio", "temporalio", "aiohttp", "fastapi", "requests"])
def test_a_client_loads_nothing_heavy(nobody: Cli, module: str) -> None:
    """What the start of `codehub ls` costs is the interpreter and the command line's parser. (Typer loads pydantic for
    a command's values, but not before.)"""
    code = f"import sys; import starter.cli; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_it_starts_fast(nobody: Cli) -> None:
    """Processor time, which others on this machine don't add to."""
    code = (
        "import os, subprocess, sys; subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL);"
        "used = os.times(); print(used.children_user + used.children_system)"
    )
    began = time.monotonic()
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code, *COMMAND, "ls"],
                env=nobody.env,
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for _ in range(3)
    ]
    assert min(times) < 0.8, (times, time.monotonic() - began)
