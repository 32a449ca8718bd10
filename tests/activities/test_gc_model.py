"""PROMISE 20 against an oracle: GC itself, on PostgreSQL and a store in memory, through random lives of workspaces."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from activities.gc import RUN_KEY, GarbageCollector
from adapters.archive_store import OpenUpload, SmallObject, StoredObject
from adapters.postgres.database import Database
from adapters.postgres.garbage import Garbage
from workflows.messages import GcInput

HOUR = timedelta(hours=1)
DELAY, RESTORED_DELAY = 5, 20
"""Hours. Every step takes one."""
STEPS_PER_RUN = 8
OWN = "codehub/"

_SAVE = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, phase, desired_state, deleted_at, error_reason, operation,
    op_id, op_started_at, archive_op_id, archive_key, home_ctx)
VALUES ($1, $2, $1::uuid::text, 'i', $3, CASE $3 WHEN 'DELETED' THEN 'DELETED' ELSE 'ARCHIVED' END,
    CASE $3 WHEN 'DELETED' THEN now() END, CASE $3 WHEN 'ERROR' THEN 'Timeout' END, $4,
    CASE $4 WHEN 'NONE' THEN NULL ELSE $5::uuid END, CASE $4 WHEN 'NONE' THEN NULL ELSE now() END, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET phase = EXCLUDED.phase, desired_state = EXCLUDED.desired_state,
    deleted_at = EXCLUDED.deleted_at, error_reason = EXCLUDED.error_reason, operation = EXCLUDED.operation,
    op_id = EXCLUDED.op_id, op_started_at = EXCLUDED.op_started_at, archive_op_id = EXCLUDED.archive_op_id,
    archive_key = EXCLUDED.archive_key, home_ctx = EXCLUDED.home_ctx
"""
_LOG = """
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, finished_at, outcome)
VALUES ($1, $2, 'ARCHIVING', 'STANDBY', now(), now(), 'SUCCEEDED') ON CONFLICT DO NOTHING
"""


@dataclass
class Life:
    """A workspace, as its row tells it."""

    id: str
    phase: str = "STANDBY"
    operation: str = "NONE"
    op: str | None = None
    """archive_op_id."""
    key: str | None = None
    restoring: str | None = None
    marker: str | None = None

    def key_of(self, op: str) -> str:
        return f"{self.id}/{op}/home.tar.zst"

    def wants(self, key: str) -> bool:
        """SPEC 3.9, in words of its own."""
        if self.phase == "DELETED":
            return False
        named = {self.key, self.restoring, self.marker, self.key_of(self.op) if self.op else None}
        return self.phase == "ERROR" or key.removesuffix(".meta") in named


@dataclass
class Model:
    """The world, the store among it, and what GC has to do to it."""

    database: Database
    chance: random.Random
    now: int = 0
    lives: dict[str, Life] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)
    """Operations in the log, and whose they are."""
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Upload id → key and hour."""
    since: dict[str, int] = field(default_factory=dict)
    """The oracle's memory: from which run on it was an orphan."""
    saved_at: int = 0

    def new(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128)))

    def wanted(self, key: str) -> bool:
        life = self.lives.get(key.split("/", maxsplit=1)[0])
        return key.startswith(OWN) or (life is not None and life.wants(key))

    def put(self, key: str) -> None:
        self.objects |= {key: b"home", f"{key}.meta": b"meta"}

    def live(self) -> None:
        """An hour in the life of one of them."""
        self.now += 1
        if len(self.lives) < 5 or self.chance.random() < 0.05:
            born = self.new()
            self.lives[born] = Life(born)
        life = self.chance.choice([one for one in self.lives.values() if one.phase != "DELETED"])
        self.changed.add(life.id)
        if life.operation != "NONE" and life.op:
            self._end(life, life.op)
        elif self.chance.random() < 0.05:
            life.phase = "DELETED"
        elif self.chance.random() < 0.1:
            # From after a backup, or of a workspace that this database never had.
            self.put(life.key_of(self.new()) if self.chance.random() < 0.5 else Life(self.new()).key_of(self.new()))
        elif life.phase == "ARCHIVED" and self.chance.random() < 0.3:
            life.restoring, life.marker = life.key, None
        elif life.phase == "ARCHIVED":
            life.phase, life.op, life.restoring, life.marker = "STANDBY", None, None, life.key
        else:
            self._begin(life)

    def _begin(self, life: Life) -> None:
        life.op = self.new()
        life.phase, life.operation = "STANDBY", "ARCHIVING"
        self.known[life.op] = life.id
        self.uploads[self.new()] = (life.key_of(life.op), self.now)

    def _end(self, life: Life, op: str) -> None:
        life.operation = "NONE"
        if self.chance.random() < 0.5:
            self.put(life.key_of(op))
        if life.key_of(op) in self.objects and self.chance.random() < 0.7:
            life.phase, life.key, life.marker = "ARCHIVED", life.key_of(op), None
            self.uploads = {id_: one for id_, one in self.uploads.items() if one[0] != life.key}
        else:
            life.phase = self.chance.choice(["ERROR", "STANDBY"])

    async def save(self) -> None:
        """As the database has it by now."""
        rows = [
            (one.id, UUID(int=1), one.phase, one.operation, one.op, one.key, _home(one))
            for one in map(self.lives.__getitem__, self.changed)
        ]
        async with self.database.transaction() as connection:
            await connection.executemany(_SAVE, rows)
            await connection.executemany(_LOG, [(op, id_) for op, id_ in self.known.items() if id_ in self.changed])
            passed = (self.now - self.saved_at) * HOUR
            await connection.execute("UPDATE gc_orphans SET first_seen_at = first_seen_at - $1::interval", passed)
        self.saved_at = self.now
        self.changed.clear()

    async def somebody_wants_one_again(self) -> None:
        """While GC is at work: it has looked at everything, and has deleted nothing yet."""
        orphans = sorted(key for key in self.since if not key.endswith(".meta") and key in self.objects)
        if orphans and self.chance.random() < 0.3:
            key = self.chance.choice(orphans)
            life = self.lives.get(key.split("/")[0])
            if life is not None and life.phase in {"ARCHIVED", "STANDBY"}:
                life.key = key
                self.changed.add(life.id)
                await self.save()

    def see(self) -> None:
        """A run has looked at everything."""
        orphans = [key for key in self.objects if not self.wanted(key)]
        self.since = {key: self.since.get(key, self.now) for key in orphans}

    def doomed(self) -> set[str]:
        """What that run has to delete: exactly this."""
        old = {key for key, since in self.since.items() if self.now - since >= self._delay(key)}
        gone = {key for key in old if not self.wanted(key)}
        self.since = {key: since for key, since in self.since.items() if key not in old}
        return gone

    def stale(self) -> set[str]:
        """Uploads that it has to end."""
        under_way = {one.key_of(one.op) for one in self.lives.values() if one.operation == "ARCHIVING" and one.op}
        return {id_ for id_, (key, hour) in self.uploads.items() if self.now - hour > DELAY and key not in under_way}

    def _delay(self, key: str) -> int:
        return DELAY if key.split("/")[1] in self.known else RESTORED_DELAY


@dataclass
class MemoryStore:
    """What GC needs of a store."""

    model: Model

    async def read(self, key: str) -> bytes | None:
        return self.model.objects.get(key)

    async def write(self, key: str, body: bytes) -> None:
        """The run's number is written when everything was looked at, and nothing deleted yet: here the oracle looks,
        too. At the end of the listing would be too early: GC asks for the rows of its last batch after that, and
        somebody who comes in between is one whom it has seen.
        """
        self.model.objects[key] = body
        if key == RUN_KEY:
            self.model.see()
            await self.model.somebody_wants_one_again()

    async def replace(self, key: str, body: bytes, former: SmallObject | None) -> bool:
        return self.model.objects.setdefault(key, body) == body and former is None

    async def list_objects(self) -> AsyncIterator[StoredObject]:
        for key in sorted(self.model.objects):
            yield StoredObject(key, 4, datetime.now(UTC))

    async def delete(self, keys: list[str]) -> dict[str, str]:
        for key in keys:
            del self.model.objects[key]
        return {}

    async def list_uploads(self) -> AsyncIterator[OpenUpload]:
        for id_, (key, hour) in list(self.model.uploads.items()):
            yield OpenUpload(key, id_, datetime.now(UTC) - (self.model.now - hour - 0.5) * HOUR)

    async def abort(self, upload: OpenUpload) -> None:
        del self.model.uploads[upload.upload_id]


async def collected(model: Model, gc: GarbageCollector) -> None:
    """One run of GC did exactly what the oracle says."""
    await model.save()
    before, uploads = set(model.objects), set(model.uploads) - model.stale()
    await gc.collect(GcInput())
    after = {key for key in model.objects if not key.startswith(OWN)}
    assert after == {key for key in before if not key.startswith(OWN)} - model.doomed(), f"hour {model.now}"
    assert set(model.uploads) == uploads, f"hour {model.now}"


@pytest.mark.parametrize("steps", [2000, pytest.param(10_000, marks=pytest.mark.full)])
async def test_model(database: Database, steps: int) -> None:
    """PROMISE 20: never what is referred to, protected, or an orphan for less than its delay; and every other, also
    when somebody comes to want one while a run is at work."""
    model = Model(database, random.Random(20))
    gc = GarbageCollector(
        Garbage(database),
        MemoryStore(model),  # type: ignore[arg-type]
        "ours",
        delay=DELAY * HOUR,
        restored_delay=RESTORED_DELAY * HOUR,
        batch=50,
    )
    deleted = 0
    for _ in range(steps):
        model.live()
        if model.chance.random() < 1 / STEPS_PER_RUN:
            before = len(model.objects)
            await collected(model, gc)
            deleted += before - len(model.objects)
    assert deleted > steps / 10, "the model hardly made anything to delete"
    for _ in range(2):
        await collected(model, gc)
        model.now += RESTORED_DELAY
    model.chance = random.Random(1)
    await collected(model, gc)
    assert all(model.wanted(key) for key in model.objects)


def _home(life: Life) -> dict[str, str]:
    named = {"restoring": life.restoring, "restore_marker": life.marker}
    return {name: key for name, key in named.items() if key is not None}
