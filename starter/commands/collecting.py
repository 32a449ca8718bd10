"""`codehub gc`."""

from dataclasses import asdict, replace
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

SHOWN = 200
"""A person does not read more; --json has all of them."""


@examples(
    "codehub gc --dry-run",
    "codehub gc",
)
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
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
        # In this process, a report may be as long as it is.
        collector = replace(garbage_collector(settings, database, archives, installation), named=None)
        report = await collector.collect(GcInput(dry_run=dry_run, accept_restored=accept_restored))
        owner = await Bucket(archives, installation).owner()
        return report, None if owner == installation else owner


def _told(report: "GcReport", owner: str | None, settings: "Settings") -> list[str]:
    if owner is not None:
        told = f"The bucket {settings.s3_bucket} is that of another installation ({owner}): nothing was touched."
        return [f"{told} Give each installation a bucket of its own (S3_BUCKET)."]
    lines = [f"{_count(report.listed, 'object')} in the bucket (an archive has several), {report.orphans} orphaned."]
    if report.held:
        lines.append(
            "The database is older than the store, as after a restore from a backup: nothing is deleted. "
            "When you are sure that it is right: codehub gc --accept-restored"
        )
    elif report.unknown:
        lines.append(
            f"{report.unknown} of them were made by operations that the database has never heard of, as after a "
            f"restore from a backup: they are kept for {took(settings.gc_restored_delay)}. When you are sure that "
            "nobody needs them: codehub gc --accept-restored"
        )
    if report.dry_run:
        return [*lines, *_foreseen(report, settings)]
    lines.append(
        f"{report.deleted} deleted ({size(report.deleted_bytes)}), "
        f"{_count(report.aborted_uploads, 'broken-off upload')} ended."
    )
    if report.refused:
        lines += [f"The store would not delete {report.refused} (a hold, or a rule on the bucket):"]
        lines += _shown(report.refused_keys)
    waiting = report.orphans - report.unknown - report.deleted - report.refused
    if waiting > 0 and not report.held:
        lines.append(_waiting(waiting, settings))
    return lines


def _foreseen(report: "GcReport", settings: "Settings") -> list[str]:
    due, uploads = set(report.due_keys), _count(report.stale_uploads, "broken-off upload")
    lines = [f"A run now would delete {_count(report.due, 'object')} ({size(report.due_bytes)}) and end {uploads}."]
    lines += _shown([f"delete  {key}" for key in report.due_keys])
    lines += _shown([f"end     {key}" for key in report.upload_keys])
    if later := [key for key in report.keys if key not in due]:
        # What else they wait for was said above.
        plain = not report.held and not report.unknown
        lines += [_waiting(len(later), settings) if plain else f"{len(later)} more would wait:", *_shown(later)]
    return [*lines, "A dry run: nothing was changed."]


def _waiting(count: int, settings: "Settings") -> str:
    words = "waits until it has been an orphan" if count == 1 else "wait until they have been orphans"
    return f"{count} {words} for {took(settings.gc_delay)}."


def _shown(lines: list[str]) -> list[str]:
    more = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [f"  {line}" for line in lines[:SHOWN] + more]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
