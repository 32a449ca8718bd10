"""`codehub gc`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.examples import examples
from starter.commands.guarded import operating
from starter.commands.options import AsJson
from starter.commands.screen import print_json, say
from starter.commands.words import size, took

if TYPE_CHECKING:
    from settings import Settings
    from workflows.messages import GcReport


@examples(
    "codehub gc --dry-run",
    "codehub gc",
)
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would find.")] = False,
    accept_restored: Annotated[
        bool,
        typer.Option(
            "--accept-restored",
            help="The database was restored from a backup, and it is right: collect again what it does not know.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Collect garbage now: archives that nobody needs.

    Archives that nothing refers to any more, and broken-off uploads; in this process. An archive goes only when it
    has been an orphan for GC_DELAY (two hours). Needs DATABASE_URL and S3_ENDPOINT, or a `codehub up` that runs in
    CODEHUB_DATA.
    """
    import asyncio

    with operating(as_json=as_json) as settings:
        report, owner = asyncio.run(_collect(settings, dry_run=dry_run, accept_restored=accept_restored))
    if as_json:
        print_json(asdict(report))
        return
    for line in _told(report, owner, settings):
        say(line)


async def _collect(settings: "Settings", *, dry_run: bool, accept_restored: bool) -> "tuple[GcReport, str | None]":
    """The report, and whose bucket it is where it is not ours."""
    from activities.bucket import Bucket
    from adapters.postgres.installation import installation_id
    from starter.commands.stores import opened
    from worker import garbage_collector
    from workflows.messages import GcInput

    async with opened(settings) as (database, archives):
        installation = await installation_id(database)
        collector = garbage_collector(settings, database, archives, installation)
        report = await collector.collect(GcInput(dry_run=dry_run, accept_restored=accept_restored))
        owner = await Bucket(archives, installation).owner()
        return report, None if owner == installation else owner


def _told(report: "GcReport", owner: str | None, settings: "Settings") -> list[str]:
    if owner is not None:
        told = f"The bucket {settings.s3_bucket} is that of another installation ({owner}): nothing was touched."
        return [f"{told} Give each installation a bucket of its own (S3_BUCKET)."]
    lines = [f"{report.listed} objects, {report.orphans} of them orphans."]
    if report.held:
        lines.append(
            "The database is older than the store, as after a restore from a backup: nothing was deleted. "
            "When you are sure that it is right: codehub gc --accept-restored"
        )
    elif report.unknown:
        lines.append(
            f"{report.unknown} of them were made by operations that the database has never heard of, as after a "
            f"restore from a backup: they are kept for {took(settings.gc_restored_delay)}. When you are sure that "
            "nobody needs them: codehub gc --accept-restored"
        )
    if report.dry_run:
        lines += [f"  {key}" for key in report.keys]
        if report.orphans > len(report.keys):
            lines.append(f"  … and {report.orphans - len(report.keys)} more")
        lines.append(
            f"A dry run: nothing was changed. An orphan goes once it has been one for {took(settings.gc_delay)}."
        )
        return lines
    lines.append(
        f"{report.deleted} deleted ({size(report.deleted_bytes)}), {report.aborted_uploads} broken-off uploads ended."
    )
    waiting = report.orphans - report.unknown - report.deleted
    if waiting > 0 and not report.held:
        lines.append(f"{waiting} wait until they have been orphans for {took(settings.gc_delay)}.")
    return lines
