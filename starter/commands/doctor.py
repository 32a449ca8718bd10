"""`codehub doctor`."""

from typing import TYPE_CHECKING

import typer

from starter.commands.examples import examples
from starter.commands.guarded import only_warnings, operating
from starter.commands.options import AsJson
from starter.commands.screen import err, out, print_json, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from settings import Settings
    from starter.commands.checks.finding import Finding, Findings

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


@examples(
    "codehub doctor",
    "CODEHUB_DATA=/srv/codehub codehub doctor",
    "codehub doctor --json | jq '.parts[].findings[] | select(.status != \"ok\")'",
)
def doctor(as_json: AsJson = False) -> None:
    """Check all that codehub needs, and say how to mend it.

    Each service: whether it can be reached, its version, how fast it answers, and whether codehub may do there what
    it has to. Exit 1 if something is wrong. Looks at the settings of this environment, or at the `codehub up` that
    runs in CODEHUB_DATA.
    """
    import asyncio
    import logging

    with operating(as_json=as_json) as settings:
        # What libraries and adapters have to say about a broken service is said here, once and better.
        only_warnings(logging.CRITICAL)
        found = asyncio.run(_examine(settings, quiet=as_json))
    counts = {status: sum(one.status == status for part in found.values() for one in part) for status in _MARKS}
    if as_json:
        print_json({"ok": not counts["failed"], "parts": [_part(name, part) for name, part in found.items()]})
    else:
        _conclude(counts)
    if counts["failed"]:
        raise typer.Exit(1)


async def _examine(settings: "Settings", *, quiet: bool) -> "dict[str, list[Finding]]":
    """All at once; told in their order, each as soon as it is known."""
    import asyncio

    from starter.commands.checks.finding import collected

    tasks = {name: asyncio.create_task(collected(check(settings))) for name, check in _checks().items()}
    found: dict[str, list[Finding]] = {}
    for name, task in tasks.items():
        if quiet:
            found[name] = await task
            continue
        with err().status(f"{name} …"):
            found[name] = await task
        _tell(name, found[name])
    return found


def _checks() -> "dict[str, Callable[[Settings], Findings]]":
    from starter.commands.checks.docker import check_docker
    from starter.commands.checks.machine import check_api, check_disk, check_settings
    from starter.commands.checks.postgres import check_leader, check_postgres
    from starter.commands.checks.redis import check_redis
    from starter.commands.checks.s3 import check_s3
    from starter.commands.checks.temporal import check_temporal

    return {
        "settings": check_settings,
        "disk": check_disk,
        "PostgreSQL": check_postgres,
        "Redis": check_redis,
        "S3": check_s3,
        "Temporal": check_temporal,
        "Docker": check_docker,
        "leader": check_leader,
        "API": check_api,
    }


def _tell(name: str, findings: "list[Finding]") -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    made.add_column(width=10, no_wrap=True)
    made.add_column(width=1)
    made.add_column(overflow="fold")
    for number, finding in enumerate(findings):
        mark, colour = _MARKS[finding.status]
        took = f"  {finding.milliseconds:.1f} ms" if finding.milliseconds is not None else ""
        message = Text.assemble(finding.message, (took, "dim"))
        made.add_row(Text(name if number == 0 else "", style="bold"), Text(mark, style=colour), message)
        if finding.advice:
            made.add_row("", "", Text(f"→ {finding.advice}", style=colour if finding.status == "failed" else ""))
    put(made)


def _conclude(counts: dict[str, int]) -> None:
    from rich.text import Text

    if counts["failed"]:
        text = Text(f"\n{counts['failed']} found wrong, {counts['warning']} to look at.", style="bold red")
    elif counts["warning"]:
        text = Text(f"\nAll that is needed works; {counts['warning']} to look at.", style="yellow")
    else:
        text = Text("\nAll is well.", style="green")
    out().print(text)


def _part(name: str, findings: "list[Finding]") -> "dict[str, object]":
    return {
        "part": name,
        "findings": [
            {
                "status": finding.status,
                "message": finding.message,
                "advice": finding.advice,
                "latency_ms": round(finding.milliseconds, 3) if finding.milliseconds is not None else None,
            }
            for finding in findings
        ],
    }
