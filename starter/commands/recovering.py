"""`codehub recover`."""

from starter.commands.arriving import check_timeout, tell
from starter.commands.asking import Yes, confirm
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed
from starter.commands.names import Name, Owner, find, path, titled
from starter.commands.options import AsJson, Timeout, Token, Url, Wait, reached
from starter.commands.refusals import with_context
from starter.commands.screen import Workspace


@examples(
    "codehub explain demo",
    "codehub recover demo --wait",
    "codehub recover demo --yes",
    "codehub recover demo --owner alice",
)
def recover(
    name: Name,
    owner: Owner = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Take a workspace out of ERROR: it goes on from what is there. `codehub explain` says what to mend first.

    After DataLost this accepts the loss: it asks first, and says what is given up.
    """
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        found = find(server, name, owner)
        if found["error_reason"] == "DataLost" and not yes:
            confirm(
                f"{titled(found)} is in ERROR, DataLost. {loss(found)}",
                f"Accept the loss and recover {titled(found)}?",
                "Nothing was changed.",
            )
        try:
            ws = server.post(f"{path(found)}/recover")
        except CommandFailed as error:
            raise with_context(server, error, found) from error
        tell(server, ws, ws["desired_state"], wait=wait, timeout=timeout, as_json=as_json)


def loss(ws: Workspace) -> str:
    """What is given up by recovering from DataLost."""
    archive = ws["conditions"].get("storage.archive_ready", {})
    gone = "Its home vanished, and codehub did not remove it. If it can still be brought back, do that first."
    if ws["archive_key"] is None:
        return f"{gone} Recovering gives up everything that was in it: it goes on with an empty one."
    if archive.get("reason") == "ArchiveAbsent":
        return f"{gone} Its archive is gone too: until that is back, recovering leads to the same error."
    return f"{gone} Recovering gives up everything since its last archive: it goes on from there."
