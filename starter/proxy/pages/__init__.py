"""Pages for people, made from nothing but the state of the workspace. No other host, no file beside them."""

import secrets
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from domain.model import DesiredState, ErrorReason, Operation, Phase
from domain.recovering import ACCEPTS_LOSS
from starter.proxy.decide import PageKind, View
from starter.proxy.pages import words
from starter.proxy.waking import Limited

_FOLDER = Path(__file__).parent
_PAGE = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")
_SCRIPT = (_FOLDER / "page.js").read_text(encoding="utf-8")
_POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Rendered:
    body: bytes
    policy: str


def following(view: View) -> Rendered:
    """Also of a workspace that was just woken."""
    if view.phase is Phase.ERROR:
        content = f"<p>{words.RECOVERED}</p>"
    elif _comes_up(view):
        content = _steps(view) + f'<p class="small after">{words.OPENS}</p>'
    else:
        said = words.FOLLOWING.get(view.operation, words.DELETING)
        content = f"<p>{said}</p>"
    return _render(
        "following",
        view,
        badge=words.OPERATIONS[view.operation],
        title=view.name,
        tone="busy",
        content=f"{content}{_PROGRESS}{_actions()}",
    )


def state(kind: PageKind, view: View) -> Rendered:
    match kind:
        case PageKind.RESTORE_NEEDED:
            return _render(
                "restore_needed",
                view,
                badge="Archived",
                title=view.name,
                tone="cold",
                content="<p>Its home is in the archive. Nothing is lost: restoring brings everything back as it was. "
                "A large home takes a few minutes.</p>" + _actions(_button("start", "Restore and open")),
            )
        case PageKind.START_NEEDED:
            return _render(
                "start_needed",
                view,
                badge="Not started",
                title=view.name,
                tone="warn",
                content="<p>It was never started: its home is made when it is started for the first time.</p>"
                + _actions(_button("start", "Start and open")),
            )
        case PageKind.UNREACHABLE:
            return _render(
                "unreachable",
                view,
                badge="Not answering",
                title=view.name,
                tone="warn busy",
                content="<p>It is running, but nothing in it answers. The IDE may be starting again; this page "
                "tries on its own and opens it as soon as it does.</p>"
                '<p class="small">If this goes on, stop and start the workspace on the dashboard.</p>'
                + _actions(_button("again", "Try now", primary=False)),
            )
        case _:
            return _error(view)


def limited(limited: Limited, view: View) -> Rendered:
    places = "".join(_place(other) for other in limited.running)
    if limited.is_own:
        many = f"{limited.limit} workspace{'' if limited.limit == 1 else 's'}"
        said = f"You can have <strong>{many}</strong> running at once. Stop one, and this one is opened."
    else:
        said = f"All <strong>{limited.limit}</strong> places on this installation are taken. Try again in a while."
        said += " Stopping one of yours makes room." if places else ""
    listed = f'<ul class="places">{places}</ul>' if places else ""
    return _render(
        "limit",
        view,
        badge="No place left",
        title=view.name,
        tone="warn",
        content=f'<p>{said}</p>{listed}<p role="alert"></p>' + _actions(_button("again", "Try again", primary=False)),
    )


def not_found() -> Rendered:
    return _plain(
        "Not found",
        "There is no such workspace",
        "<p>It was deleted, or it is not yours, or the address is not right.</p>",
        tone="calm",
    )


def not_let_in(again: str) -> Rendered:
    """`again` is a URL of ours."""
    return _plain(
        "Not opened",
        "This link was good for a moment",
        "<p>It was used already, or it is too old, or this browser keeps no cookies of this site.</p>"
        f'<p class="after"><a class="button primary" href="{escape(again)}">Open it again</a></p>',
        tone="calm",
    )


def unavailable() -> Rendered:
    return _plain(
        "Not available",
        "codehub can't answer just now",
        "<p>A service that it needs does not answer. Workspaces that are open go on; try again in a moment.</p>",
        tone="warn",
    )


def internal() -> Rendered:
    return _plain(
        "Error", "Something went wrong", "<p>It is not your fault. The log of codehub has it.</p>", tone="danger"
    )


_PROGRESS = (
    '<div class="bar unknown" role="progressbar" aria-label="Progress"><i></i></div>'
    '<p class="facts"><span id="bytes"></span><span id="since"></span></p>'
)


def _error(view: View) -> Rendered:
    reason = view.error_reason or ErrorReason.RETRY_EXCEEDED
    what, advice = words.REASONS[reason]
    # What it goes on with, and what is given up, is said and asked there.
    lossy = f'<a class="button primary" href="/#/workspaces/{view.id}">Recover on the dashboard</a>'
    recover = lossy if reason in ACCEPTS_LOSS else _button("recover", "Recover")
    return _render(
        "error",
        view,
        badge="Error",
        title=view.name,
        tone="danger",
        content=f"<p>It stopped and waits for you.</p>"
        f'<div class="reason"><b>{reason}</b>{escape(what)}</div>'
        f'<p class="after">{escape(advice)}</p><p role="alert"></p>' + _actions(recover),
    )


def _steps(view: View) -> str:
    home = "Restore its home" if view.phase is Phase.ARCHIVED else "Make its home"
    steps = [("home", home), ("start", "Start"), ("open", "Open")]
    if view.phase in {Phase.STANDBY, Phase.RUNNING}:
        steps[0] = ("home", "Home is here")
    now = {Phase.STANDBY: 1, Phase.RUNNING: 2}.get(view.phase, 0)
    items = "".join(
        f'<li data-step="{key}" class="{"done" if at < now else "now" if at == now else ""}">{text}</li>'
        for at, (key, text) in enumerate(steps)
    )
    return f'<ol class="steps">{items}</ol>'


def _comes_up(view: View) -> bool:
    down = {Operation.STOPPING, Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE, Operation.DELETING}
    return view.operation not in down and view.desired_state is not DesiredState.DELETED


def _place(view: View) -> str:
    at_rest = "running" if view.phase is Phase.RUNNING else "about to start"
    note = at_rest if view.operation is Operation.NONE else words.OPERATIONS[view.operation].lower()
    # While an operation runs, its desired_state can't be changed.
    button = (
        f'<button class="button slim" data-do="stop" data-id="{view.id}">Stop</button>'
        if view.operation is Operation.NONE
        else ""
    )
    return f'<li><a href="/w/{view.id}/">{escape(view.name)}</a><small>{note}</small>{button}</li>'


def _button(does: str, text: str, *, primary: bool = True) -> str:
    return f'<button class="button{" primary" if primary else ""}" data-do="{does}">{text}</button>'


def _actions(*buttons: str) -> str:
    return f'<div class="actions">{"".join(buttons)}<a class="button" href="/">Dashboard</a></div>'


def _render(kind: str, view: View, *, badge: str, title: str, content: str, tone: str = "") -> Rendered:
    """The page knows which state it shows: when that is not the state any more, it loads again."""
    shown = f"{view.phase} {view.operation} {view.desired_state} {view.error_reason or ''}"
    return _whole(kind, view.id, shown, badge, title, content, tone)


def _plain(badge: str, title: str, content: str, tone: str) -> Rendered:
    return _whole("plain", "", "", badge, title, content + _actions(), tone)


def _whole(kind: str, id_: str, shown: str, badge: str, title: str, content: str, tone: str) -> Rendered:
    nonce = secrets.token_urlsafe(16)
    page = _PAGE.substitute(
        title=escape(f"{title} · codehub"),
        nonce=nonce,
        style=_STYLE,
        script=_SCRIPT,
        tone=tone,
        kind=kind,
        id=escape(id_),
        state=shown,
        content=f'<p class="badge" aria-live="polite">{badge}</p><h1>{escape(title)}</h1>{content}',
    )
    return Rendered(page.encode(), _POLICY.format(nonce=nonce))
