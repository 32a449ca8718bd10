"""A person at the API, who keeps a history of what they asked for and what they were told."""

import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from domain.model import DesiredState, WorkspaceId
from tests.harness.history import Command, History, Outcome

WORKSPACES = "/api/v1/workspaces"


@dataclass
class Person:
    client: aiohttp.ClientSession
    url: str
    history: History = field(default_factory=History)
    limited: int = 0
    """Commands that were refused because as many workspaces as may be RUNNING were."""

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.client.request(method, self.url + path, json=body) as answer:
            return answer.status, None if answer.status == 204 else await answer.json()

    async def log_in(self, username: str, password: str) -> None:
        status, body = await self.ask("POST", "/api/v1/login", {"username": username, "password": password})
        assert status == 200, body

    async def look(self, workspace: WorkspaceId) -> dict[str, Any]:
        status, body = await self.ask("GET", f"{WORKSPACES}/{workspace}")
        assert status == 200, body
        return dict(body)

    async def create(
        self, name: str, desired: DesiredState = DesiredState.RUNNING, image: str | None = None
    ) -> WorkspaceId:
        workspace = await self.try_to_create(name, desired, image)
        assert workspace
        return workspace

    async def try_to_create(self, name: str, desired: DesiredState, image: str | None = None) -> WorkspaceId | None:
        sent = time.monotonic()
        wanted = {"name": name, "desired_state": desired} | ({"image_ref": image} if image else {})
        try:
            status, body = await self.ask("POST", WORKSPACES, wanted)
        except (aiohttp.ClientError, TimeoutError):
            return None
        self.limited += status == 429
        if status != 201:
            return None
        workspace = WorkspaceId(body["id"])
        self.history.note(workspace, "desired_state", desired, sent)
        return workspace

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> Outcome:
        with self.history.asking(workspace, "desired_state", desired) as command:
            return await self._told(command, "PATCH", f"{WORKSPACES}/{workspace}", {"desired_state": desired})

    async def remember(self, workspace: WorkspaceId, memo: str) -> Outcome:
        with self.history.asking(workspace, "memo", memo) as command:
            return await self._told(command, "PATCH", f"{WORKSPACES}/{workspace}", {"memo": memo})

    async def delete(self, workspace: WorkspaceId) -> Outcome:
        with self.history.asking(workspace, "desired_state", DesiredState.DELETED) as command:
            return await self._told(command, "DELETE", f"{WORKSPACES}/{workspace}")

    async def write(self, workspace: WorkspaceId, endpoint: str, name: str, text: str) -> Outcome:
        """A file of the home, through the workspace itself."""
        with self.history.asking(workspace, f"file {name}", text) as command:
            try:
                async with self.client.post(f"http://{endpoint}/cgi-bin/put?{name}", data=text) as answer:
                    said = await answer.text()
            except (aiohttp.ClientError, TimeoutError):
                return command.outcome
            # Another workspace may have the port by now; it has its own history.
            command.answer(Outcome.DONE if (answer.status, said) == (200, "ok\n") else Outcome.UNKNOWN)
            return command.outcome

    async def _told(self, command: Command, method: str, path: str, body: Any = None) -> Outcome:
        try:
            status, _ = await self.ask(method, path, body)
        except (aiohttp.ClientError, TimeoutError):
            return command.outcome
        self.limited += status == 429
        if status < 300:
            command.answer(Outcome.DONE)
        elif status in {404, 409, 422, 429}:
            command.answer(Outcome.REFUSED)
        return command.outcome
