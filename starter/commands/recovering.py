"""`codehub recover`."""

from starter.commands.arriving import check_timeout, tell
from starter.commands.asking import Yes, confirm
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed
from starter.commands.names import Name, Owner, find, path, titled
from starter.commands.options import AsJson, Timeout, Token, Url, Wait, reached
from starter.commands.refusals import with_context
from starter.commands.screen import Workspace
from starter.commands.server import Server


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

    After DataLost and ContainerWithoutVolume this accepts a loss: it asks first, and says what it goes on with and what
    is given up.
    """
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        found = find(server, name, owner)
        if not yes:
            _asked(server, found)
        try:
            ws = server.post(f"{path(found)}/recover")
        except CommandFailed as error:
            raise with_context(server, error, found) from error
        tell(server, ws, ws["desired_state"], wait=wait, timeout=timeout, as_json=as_json)


def _asked(server: Server, ws: Workspace) -> None:
    """What it goes on with is looked up now: what was lost may have been brought back meanwhile."""
    told = server.get(f"{path(ws)}/explain")
    accepts = told.get("recovering")
    if accepts is None:
        return
    given_up = f" Given up: {_lower(accepts['gives_up'])}" if accepts["gives_up"] else ""
    confirm(
        f"{titled(ws)} is in ERROR, {told['error_reason']}. {told['because']} {accepts['goes_on']}{given_up}",
        f"{'Accept the loss and recover' if given_up else 'Recover'} {titled(ws)}?",
        "Nothing was changed.",
    )


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
