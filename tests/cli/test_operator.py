"""`codehub gc` and `codehub verify` on a real database and a real store."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from activities.bucket import OWNER_KEY
from activities.gc import RUN_KEY
from adapters.postgres.database import Database, open_database
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.archive import FORMAT_VERSION, ArchiveMeta
from domain.model import OperationId, WorkspaceId
from domain.naming import archive_key, meta_key
from tests.cli.console import Cli
from tests.conftest import S3

BODY = b"an archive, as far as its checksum is concerned" * 1000


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url)
    for number, name in enumerate(("alice", "bob"), 1):
        await opened.execute(
            "INSERT INTO users (id, username, password_hash) VALUES ($1, $2, '')", UUID(int=number), name
        )
    yield opened
    await opened.close()


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as opened:
        yield opened


@pytest.fixture
def operator(nobody: Cli, database_url: str, s3: S3) -> Cli:
    return nobody.having(
        DATABASE_URL=database_url,
        S3_ENDPOINT=s3.endpoint,
        S3_ACCESS_KEY=s3.access_key,
        S3_SECRET_KEY=s3.secret_key,
        S3_BUCKET=s3.bucket,
    )


async def archived(database: Database, store: S3ArchiveStore, name: str, owner: int = 1) -> str:
    """A workspace with an archive; returns its key."""
    workspace_id, op_id = WorkspaceId(str(uuid4())), OperationId(str(uuid4()))
    key = archive_key(workspace_id, op_id)
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, archive_key)"
        " VALUES ($1, $2, $3, 'i', 'ARCHIVED', 'ARCHIVED', $4)",
        workspace_id,
        UUID(int=owner),
        name,
        key,
    )
    meta = ArchiveMeta(
        format_version=FORMAT_VERSION,
        workspace_id=workspace_id,
        archive_op_id=op_id,
        sha256=hashlib.sha256(BODY).hexdigest(),
        size=len(BODY),
        raw_size=len(BODY),
        entries=1,
        codehub_version="0",
        created_at=datetime.now(UTC),
    )
    await store.write(key, BODY)
    await store.write(meta_key(key), meta.model_dump_json().encode())
    return key


async def test_gc(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    """A dry run says what it finds and changes nothing; a run collects what has been an orphan for long enough."""
    wanted = await archived(database, store, "kept")
    operation = await database.fetchval(
        "INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)"
        " SELECT gen_random_uuid(), id, 'ARCHIVING', 'STANDBY', now() FROM workspaces RETURNING id::text"
    )
    orphan = archive_key(WorkspaceId(str(uuid4())), OperationId(operation))
    await store.write(orphan, b"12345")
    dry = await operator("gc", "--dry-run")
    assert (dry.code, orphan in dry.out, wanted in dry.out) == (0, True, False)
    assert await store.read(RUN_KEY) is None
    first = await operator("gc", "--json")
    assert (first.json["orphans"], first.json["deleted"]) == (1, 0)
    assert "1 waits until" in (await operator("gc")).out
    assert "1 waits until" in (await operator("gc", "--dry-run")).out
    assert "would delete 1 object (5 B)" in (await operator.having(GC_DELAY="0")("gc", "--dry-run")).out
    last = await operator.having(GC_DELAY="0")("gc")
    assert "1 deleted (5 B)" in last.out
    assert (await store.size(orphan), await store.size(wanted)) == (None, len(BODY))


async def test_gc_names_all_of_them_to_a_script(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    """A person is shown the first ones and how many more there are."""
    workspace_id = WorkspaceId(str(uuid4()))
    keys = {archive_key(workspace_id, OperationId(str(uuid4()))) for _ in range(205)}
    for key in keys:
        await store.write(key, b"x")
    report = (await operator("gc", "--dry-run", "--json")).json
    assert set(report["keys"]) == keys
    shown = (await operator("gc", "--dry-run")).out
    assert (sum(key in shown for key in keys), "… and 5 more" in shown) == (200, True)


async def test_gc_after_a_restore_waits_for_a_person(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    """--accept-restored is that person; even then every orphan has its full time before it."""
    await store.write(RUN_KEY, b"41")
    orphan = archive_key(WorkspaceId(str(uuid4())), OperationId(str(uuid4())))
    await store.write(orphan, b"x")
    eager = operator.having(GC_DELAY="0")
    held = await eager("gc")
    assert (held.code, "--accept-restored" in held.out) == (0, True)
    assert (await eager("gc", "--json")).json["held"] is True
    assert (await operator("gc", "--accept-restored", "--json")).json["held"] is False
    assert await store.size(orphan) == 1
    assert "never heard of" not in (await operator("gc")).out
    assert (await eager("gc", "--json")).json["deleted"] == 1


async def test_gc_accepts_before_the_first_run_too(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    await store.write(RUN_KEY, b"41")
    report = (await operator("gc", "--accept-restored", "--json")).json
    assert (report["held"], await store.read(RUN_KEY)) == (False, b"42")


async def test_gc_leaves_the_bucket_of_another_alone(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    await store.write(OWNER_KEY, b"theirs")
    told = await operator("gc")
    assert ("another installation (theirs)" in told.out, "S3_BUCKET" in told.out) == (True, True)


async def test_verify_finds_what_is_bad(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    """Intact, changed, shortened, without its .meta, gone: each is told, and any that is not intact is exit 1."""
    keys = {name: await archived(database, store, name) for name in ("fine", "flipped", "short", "bare", "gone")}
    await store.write(keys["flipped"], BODY[:-1] + b"X")
    await store.write(keys["short"], BODY[:-1])
    await store.delete([meta_key(keys["bare"]), keys["gone"]])
    told = await operator("verify", "--json")
    assert told.code == 1
    assert {item["name"]: item["outcome"] for item in told.json["items"]} == {
        "fine": "intact",
        "flipped": "corrupted",
        "short": "corrupted",
        "bare": "corrupted",
        "gone": "lost",
    }
    people = await operator("verify")
    assert people.code == 1
    assert "✓ alice/fine" in people.out
    assert f"({keys['flipped']})" in people.out
    assert "1 of 5 archives are intact" in people.out
    assert (await operator("verify", "fine")).code == 0
    assert (await operator("verify", "flipped")).code == 1


async def test_verify_one(operator: Cli, database: Database, store: S3ArchiveStore) -> None:
    """By name or id; a name that two users have is ambiguous."""
    assert (await operator("verify")).out == "There is no archive to verify.\n"
    mine, theirs = await archived(database, store, "demo", 1), await archived(database, store, "demo", 2)
    ambiguous = await operator("verify", "demo")
    assert ambiguous.code == 2
    for words in ("alice/demo", "bob/demo", mine[:36], theirs[:36]):
        assert words in ambiguous.err
    one = await operator("verify", theirs[:36], "--json")
    assert [item["owner"] for item in one.json["items"]] == ["bob"]
    assert (await operator("verify", theirs[:5])).code == 3
    assert (await operator("verify", "nothing")).code == 3


async def test_what_is_missing_is_named(nobody: Cli, operator: Cli, empty_database_url: str) -> None:
    for command in ("gc", "verify"):
        assert "DATABASE_URL is not set" in (await nobody(command)).err
        assert "S3_ENDPOINT" in (await operator.having(S3_ENDPOINT="")(command)).err
        away = await operator.having(S3_ENDPOINT="http://127.0.0.1:1")(command)
        bare = await operator.having(DATABASE_URL=empty_database_url)(command)
        assert (bare.code, "codehub migrate" in bare.err) == (1, True)
        gone = await operator.having(DATABASE_URL="postgresql://u@127.0.0.1:1/x")(command)
        assert gone.code == 1
        assert "Traceback" not in away.err + bare.err + gone.err
