"""`codehub verify`."""

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.examples import examples
from starter.commands.failure import CommandFailed
from starter.commands.guarded import operating
from starter.commands.options import AsJson
from starter.commands.screen import print_json, say
from starter.commands.words import size, took

if TYPE_CHECKING:
    from settings import Settings
    from starter.commands.inspection import Inspected


@examples(
    "codehub verify",
    "codehub verify demo",
    "codehub verify --json | jq '.items[] | select(.outcome != \"intact\")'",
)
def verify(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Only this workspace: its name, id, or how its id begins (6 characters)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the archives again, and compare their checksums.

    Every byte of them, as the store gives it. Exit 1 if one is bad. For an administrator: it works on the database
    and the store, of all users. Needs DATABASE_URL and S3_ENDPOINT, or a `codehub up` that runs in CODEHUB_DATA.
    """
    import asyncio
    import time

    began = time.monotonic()
    with operating(as_json=as_json) as settings:
        found = asyncio.run(_verify(settings, name, quiet=as_json))
    bad = [one for one in found if one.outcome != "intact"]
    if as_json:
        print_json({"items": [one.as_dict() for one in found], "total": len(found)})
    elif not found:
        say("There is no archive to verify.")
    else:
        read = f"{size(sum(one.size for one in found))} packed, in {took(time.monotonic() - began)}"
        say(f"{len(found) - len(bad)} of {len(found)} archives are intact ({read}).")
    if bad:
        raise typer.Exit(1)


async def _verify(settings: "Settings", name: str | None, *, quiet: bool) -> "list[Inspected]":
    from starter.commands.inspection import Inspection, inspect, wanted
    from starter.commands.reading import Reading
    from starter.commands.stores import opened

    found = []
    async with opened(settings) as (database, archives):
        inspections: list[Inspection] = await wanted(database, name)
        if name is not None and not inspections:
            raise CommandFailed(f"{name} has no archive.")
        with Reading(len(inspections), quiet=quiet) as reading:
            for inspection in inspections:
                reading.begin(inspection.title)
                one = await inspect(database, archives, inspection, reading)
                found.append(one)
                if not quiet:
                    reading.tell(_line(one))
    return found


def _line(one: "Inspected") -> str:
    match one.outcome:
        case "intact":
            return f"✓ {one.title}  {one.message or f'{size(one.size)} packed'}"
        case "unknown":
            return f"! {one.title}  {one.message}"
    return f"✗ {one.title}  {one.outcome}: {one.message} ({one.archive_key})"
