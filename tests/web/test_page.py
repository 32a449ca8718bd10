"""The page itself: what is served, to whom, and what a browser is told to refuse."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import starter.web
from tests.api.world import Api, serving

ASSETS = Path(starter.web.__file__).parent / "assets"


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    async with serving(database_url) as api:
        yield api


class _Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [value for name in ("src", "href") if (value := given.get(name))]
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)


async def test_everybody_gets_the_page_and_all_its_parts(api: Api) -> None:
    """Without a session, from this host alone, with nothing inline; and every part is there, of the right kind."""
    page = await api("GET", "/")
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    links = _Links(page.body.decode())
    assert links.inline == []
    assert all(link.startswith("/assets/") for link in links.found)
    for link in links.found:
        part = await api("GET", link)
        assert part.status == 200, link
        kind = part.headers["Content-Type"].partition(";")[0]
        assert kind == {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[link.rpartition(".")[2]]
    served = {link.rpartition("/")[2] for link in links.found}
    assert {path.name for path in ASSETS.iterdir()} == served


async def test_a_browser_is_told_to_refuse_everything_else(api: Api) -> None:
    """No inline script or style, no other host, no frame around it, and no text that becomes markup."""
    policy = (await api("GET", "/")).headers["Content-Security-Policy"]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == ["'self'"]
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["require-trusted-types-for"] == ["'script'"]
    assert "unsafe" not in policy


async def test_parts_are_kept_and_never_stale(api: Api) -> None:
    """Their address changes with them: a browser keeps them for good, and asks for the page each time."""
    page = await api("GET", "/")
    assert page.headers["Cache-Control"] == "no-cache"
    link = next(link for link in _Links(page.body.decode()).found if link.endswith("main.js"))
    part = await api("GET", link, Accept_Encoding="identity")
    assert "immutable" in part.headers["Cache-Control"]
    assert part.body == (ASSETS / "main.js").read_bytes()
    small = await api("GET", link, Accept_Encoding="gzip")
    assert small.headers["Content-Encoding"] == "gzip"
    assert (await api("GET", "/assets/other/main.js")).status == 404
    assert (await api("HEAD", "/")).body == b""


async def test_an_address_that_leads_nowhere(api: Api) -> None:
    """A person gets a page with a way home, from this host alone; a program gets JSON, and so does everybody below
    what is for programs."""
    page = await api("GET", "/nonsense", Accept="text/html,*/*")
    assert (page.status, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "Accept" in page.headers["Vary"]
    links = _Links(page.body.decode())
    assert links.inline == []
    assert "/" in links.found
    for link in links.found:
        assert (await api("GET", link)).status == 200, link
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for method, path, wanted in (
        ("GET", "/nonsense", "*/*"),
        ("POST", "/nonsense", "text/html"),
        ("GET", "/api/v1/nonsense", "text/html"),
        ("GET", "/assets/other/main.js", "text/html"),
    ):
        answer = await api(method, path, Accept=wanted)
        assert (answer.status, answer.code) == (404, "not_found"), path


def test_data_never_becomes_markup() -> None:
    """What users write is text: no part knows a way from text to markup or to code, and none names another host."""
    ways = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc")
    for path in ASSETS.glob("*.js"):
        text = path.read_text()
        assert not ways.search(text), path.name
        assert set(re.findall(r"https?://[^\s'\"]+", text)) <= {"http://www.w3.org/2000/svg"}, path.name
