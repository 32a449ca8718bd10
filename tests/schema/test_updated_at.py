"""By `updated_at` a save knows whether the row is still the one that was judged: whatever it goes by has to move it."""

import re

from adapters.postgres.database import Database

LEFT_OUT = {
    "id": "never changes",
    "owner_user_id": "never changes",
    "image_ref": "never changes",
    "created_at": "never changes",
    "phase_changed_at": "changes with phase",
    "updated_at": "is it",
    "conditions": "observed: whoever looks again sees it again",
    "observed_at": "observed; a sweep that clears it must not void what is being judged",
    "endpoint": "observed",
    "last_access_at": "told every minute, and never written back: the later one stays",
    "in_use_at": "told every minute, and never written by a save",
    "move_to": "never written back, only cleared: whoever drains the node asks again",
}


async def test_every_column_moves_it_or_is_known_not_to(database: Database) -> None:
    """A new column is in the trigger, or here with a reason."""
    trigger = await database.fetchval("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'workspaces_touch'")
    rows = await database.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'workspaces'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    columns = {row["attname"] for row in rows}
    for side in ("old", "new"):
        moving = set(re.findall(rf"\b{side}\.(\w+)", trigger))
        assert columns - moving == LEFT_OUT.keys()
        assert not moving & LEFT_OUT.keys()
