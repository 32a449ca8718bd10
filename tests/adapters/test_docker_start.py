"""STARTING and STOPPING on a real engine: what was there before, what goes wrong on the way."""

import asyncio
from typing import Any

import pytest
from docker import APIClient

from adapters.docker.containers import Containers
from domain.errors import ActionFailed, DataLost
from domain.model import OperationId, WorkspaceId
from domain.naming import container_name, volume_name
from domain.observation import ContainerState, Presence, Resources
from tests.adapters.docker_world import DockerWorld, eventually, new_operation, new_workspace
from tests.harness.scenarios import home

pytestmark = pytest.mark.docker

OP = OperationId("op-1")
DOCKER_INIT_MISSING = (
    "Docker: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container "
    'process: error during container init: error mounting "/run/docker-init" to rootfs at "/sbin/docker-init": '
    "stat /run/docker-init: no such file or directory: unknown"
)
"""What an engine says that has none."""
NO_CHAIN = (
    "Docker: driver failed programming external connectivity on endpoint ws-1: (iptables failed: iptables --wait "
    "-t nat -A DOCKER -p tcp -d 127.0.0.1 --dport 33170 -j DNAT: iptables: No chain/target/match by that name."
)
"""What it says while another one that starts makes the chains anew that they share."""
SERVE = "exec httpd -f -p 0.0.0.0:8080 -h /home/coder"

SLOWLY = ("nc", "-ll", "-p", "8080", "-e", "/bin/sh", "-c", "sleep 3; printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'")


async def test_home_outlives_the_container(world: DockerWorld, ws: WorkspaceId) -> None:
    """What the image's user writes is there after stop and start; nothing else is."""
    await world.runtime.start(ws, world.image, OP)
    assert world.inside(ws, "echo kept > /home/coder/file && echo lost > /tmp/file") == (0, "")
    await world.runtime.stop(ws)
    await world.runtime.start(ws, world.image, new_operation())
    assert world.inside(ws, "cat /home/coder/file; ls /tmp") == (0, "kept\n")


async def test_a_start_asks_no_more_than_it_has_to(
    world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the home is there, also once the container holds it: nothing is known by then that the engine would not say
    by itself. Only one that keeps silent is looked at."""
    await world.runtime.ensure_network()
    calls: list[str] = []
    for name in ("inspect_volume", "inspect_container", "create_container_from_config", "start"):
        _note(monkeypatch, name, calls)
    await world.runtime.start(ws, world.image, OP)
    while calls.count("start") > 1:
        # Refused at first: the port is somebody else's on this machine, or its packet filter was being reloaded.
        await world.runtime.stop(ws)
        calls.clear()
        await world.runtime.start(ws, world.image, new_operation())
    assert calls[:4] == ["inspect_volume", "create_container_from_config", "inspect_volume", "start"]
    assert set(calls[4:]) <= {"inspect_container"}


async def test_its_image_has_gone_since(world: DockerWorld, ws: WorkspaceId) -> None:
    """What runs needs it no more: the attempt that comes after the one that died finds it running."""
    image = world.image_running("/bin/sh", "-c", SERVE)
    await world.runtime.start(ws, image, OP)
    running = _id(world, ws)
    world.api.remove_image(image, force=True)
    world._images.remove(image)
    await world.runtime.start(ws, image, OP)
    assert _id(world, ws) == running


async def test_volume_lost_between_look_and_create(
    world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine makes an empty volume then: DataLost, and neither it nor the container stays."""
    create = Containers.create

    async def late(self: Containers, *arguments: Any) -> str:
        world.drop_volume(ws)
        made = await create(self, *arguments)
        assert world.volume(ws), "the engine made none: the race can't happen any more"
        return made

    monkeypatch.setattr(Containers, "create", late)
    with pytest.raises(DataLost):
        await world.runtime.start(ws, world.image, OP)
    assert world.volume(ws) is None
    assert world.container(ws) is None


async def test_crash_right_after_the_engine_made_a_volume(world: DockerWorld) -> None:
    """What it made by itself is no home for the next start, nor for an observer."""
    ws = new_workspace()
    await world.runtime._containers.create(ws, world.image, OP)
    assert world.volume(ws)
    assert await world.runtime.observe(ws, probe=True) == Resources(ContainerState.STOPPED)
    with pytest.raises(DataLost):
        await world.runtime.start(ws, world.image, OP)
    assert world.volume(ws) is None
    assert world.container(ws) is None


async def test_provisioning_after_such_a_crash(world: DockerWorld) -> None:
    """The volume that the engine made by itself is replaced by a home."""
    ws = new_workspace()
    await world.runtime._containers.create(ws, world.image, OP)
    await world.runtime.create_volume(ws, OP)
    assert await world.runtime.observe(ws, probe=True) == Resources(volume=Presence.PRESENT)


async def test_container_left_by_the_same_operation(world: DockerWorld, ws: WorkspaceId) -> None:
    """An attempt that died between create and start is carried on, not undone."""
    left = await world.runtime._containers.create(ws, world.image, OP)
    await world.runtime.start(ws, world.image, OP)
    assert _id(world, ws) == left


async def test_container_left_by_another_operation(world: DockerWorld, ws: WorkspaceId) -> None:
    """What another operation left unstarted is replaced."""
    left = await world.runtime._containers.create(ws, world.image, new_operation())
    await world.runtime.start(ws, world.image, OP)
    assert _id(world, ws) != left


async def test_another_worker_was_faster(world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is taken between look and create: what the other one started is kept, and there is one."""
    create = Containers.create
    other = world.another()

    async def late(self: Containers, *arguments: Any) -> str:
        monkeypatch.setattr(Containers, "create", create)
        await other.start(ws, world.image, OP)
        return await create(self, *arguments)

    monkeypatch.setattr(Containers, "create", late)
    await world.runtime.start(ws, world.image, OP)
    await other.close()
    assert len(world.mine()["containers"]) == 1
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_another_image(world: DockerWorld, ws: WorkspaceId) -> None:
    """The image that was asked for runs."""
    other = world.image_running("/bin/sh", "-c", SERVE)
    await world.runtime.start(ws, other, OP)
    await world.runtime.start(ws, world.image, OP)
    found = world.container(ws)
    assert found
    assert found["Config"]["Image"] == world.image


async def test_container_that_is_not_ours(world: DockerWorld, ws: WorkspaceId) -> None:
    """A container that merely has the name is absent, never touched, and in the way."""
    made = world.api.create_container(world.image, name=container_name(ws))
    world.api.start(made["Id"])
    try:
        for _ in range(2):
            assert await world.runtime.observe(ws, probe=True) == Resources(volume=Presence.PRESENT)
            await world.runtime.stop(ws)
            with pytest.raises(ActionFailed, match="not of this codehub installation"):
                await world.runtime.start(ws, world.image, OP)
        found = world.container(ws)
        assert found
        assert (found["Id"], found["State"]["Running"]) == (made["Id"], True)
    finally:
        world.api.remove_container(made["Id"], force=True)


async def test_volume_that_is_not_ours(world: DockerWorld) -> None:
    """A volume that merely has the name is absent, never touched, and in the way."""
    ws = new_workspace()
    world.api.create_volume(volume_name(ws), labels={"whose": "somebody"})
    try:
        for _ in range(2):
            assert await world.runtime.observe(ws, probe=True) == Resources()
            for call in (
                world.runtime.create_volume(ws, OP),
                world.runtime.start(ws, world.image, OP),
                world.runtime.remove_volume(ws),
            ):
                with pytest.raises(ActionFailed, match="not of this codehub installation"):
                    await call
        found = world.volume(ws)
        assert found
        assert found["Labels"] == {"whose": "somebody"}
        assert world.container(ws) is None
    finally:
        world.drop_volume(ws)


@pytest.mark.parametrize("direct", [True, False])
async def test_volume_that_was_not_finished(world: DockerWorld, direct: bool) -> None:
    """An engine that was killed while it made one has forgotten whose it is. It is in nobody's way; but what holds
    anything is somebody's, whatever it lacks."""
    ws, homes = new_workspace(), world.runtime.homes(direct=direct)
    for clear in (homes.discard, lambda ws: world.runtime.create_volume(ws, OP), world.runtime.remove_volume):
        world.api.create_volume(volume_name(ws))
        await clear(ws)
        assert not (found := world.volume(ws)) or found["Labels"]["codehub.workspace"] == ws
        await world.runtime.remove_volume(ws)
    world.api.create_volume(volume_name(ws))
    try:
        async with homes.write(ws, OP) as sink:
            await sink.extract([home()])
        for call in (homes.discard(ws), world.runtime.create_volume(ws, OP), world.runtime.remove_volume(ws)):
            with pytest.raises(ActionFailed, match="not of this codehub installation"):
                await call
        assert world.volume(ws)
    finally:
        world.drop_volume(ws)


async def test_container_that_exits(world: DockerWorld, ws: WorkspaceId) -> None:
    """The error says how it ended and what it said last, in few words."""
    talk = "for i in $(seq 200); do echo line $i of its long story; done; echo boom; exit 3"
    image = world.image_running("/bin/sh", "-c", f"exec >&2; {talk}")
    for _ in range(2):
        with pytest.raises(ActionFailed, match="exit code 3") as caught:
            await world.runtime.start(ws, image, OP)
        assert "boom" in str(caught.value)
        assert len(str(caught.value)) < 700
    await world.runtime.start(ws, world.image, OP)


async def test_container_that_needs_too_much_memory(world: DockerWorld, ws: WorkspaceId) -> None:
    """Killed for its memory is said as such."""
    image = world.image_running("/bin/sh", "-c", "x=0123456789; while true; do x=$x$x; done")
    with pytest.raises(ActionFailed, match="64 MiB of memory"):
        await world.runtime.start(ws, image, OP)


async def test_command_that_is_not_there(world: DockerWorld, ws: WorkspaceId) -> None:
    """An image that can't be run fails the action, and leaves no container in the way of the next."""
    image = world.image_running("/no/such/program")
    with pytest.raises(ActionFailed):
        await world.runtime.start(ws, image, OP)
    await world.runtime.start(ws, world.image, OP)


async def test_started_means_that_it_answers(world: DockerWorld, ws: WorkspaceId) -> None:
    """Docker's proxy takes connections at once; the workspace is ready when it answers, not before."""
    image = world.image_running("/bin/sh", "-c", f"while [ ! -e /home/coder/go ]; do sleep 0.05; done; {SERVE}")
    starting = asyncio.ensure_future(world.runtime.start(ws, image, OP))
    await eventually(lambda: bool((found := world.container(ws)) and found["State"]["Running"]), seconds=60)
    seen = await world.runtime.observe(ws, probe=True)
    assert seen.container is ContainerState.UNREADY
    assert seen.endpoint
    assert not starting.done()
    world.inside(ws, "touch /home/coder/go")
    async with asyncio.timeout(60):
        await starting
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_one_that_takes_its_time_to_answer(world: DockerWorld, ws: WorkspaceId) -> None:
    """What a start takes for ready is ready for whoever looks after it: else it would never be started."""
    slow = world.image_running(*SLOWLY)
    await world.runtime.start(ws, slow, OP)
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_start_that_is_given_up(world: DockerWorld, ws: WorkspaceId) -> None:
    """A deadline ends a start that gets nowhere; what runs then is seen, and can be stopped."""
    image = world.image_running("/bin/sh", "-c", "sleep 1000")
    with pytest.raises(TimeoutError):
        await _started_until_it_runs(world, ws, image)
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.UNREADY
    await world.runtime.stop(ws)
    assert world.container(ws) is None


async def _started_until_it_runs(world: DockerWorld, ws: WorkspaceId, image: str) -> None:
    """How long that takes is the machine's business; the deadline comes half a second later."""

    async def end(deadline: asyncio.Timeout) -> None:
        await eventually(lambda: bool((found := world.container(ws)) and found["State"]["Running"]), seconds=60)
        deadline.reschedule(asyncio.get_running_loop().time() + 0.5)

    async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as tasks:
        tasks.create_task(end(deadline))
        await world.runtime.start(ws, image, OP)


async def test_start_cancelled_at_any_moment(world: DockerWorld, ws: WorkspaceId) -> None:
    """Once a cancelled start has ended, nothing more happens at the engine; the next start gets there."""
    for delay in (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4):
        starting = asyncio.ensure_future(world.runtime.start(ws, world.image, OP))
        await asyncio.wait({starting}, timeout=delay)
        starting.cancel()
        await asyncio.wait({starting})
        left = world.container(ws)
        await world.runtime.observe(ws, probe=True)
        now = world.container(ws)
        assert (left and left["State"]["Status"]) == (now and now["State"]["Status"]), delay
        await world.runtime.start(ws, world.image, OP)
        await world.runtime.stop(ws)


async def test_stop_waits_for_its_end(world: DockerWorld, ws: WorkspaceId) -> None:
    """SIGTERM comes first, and the workspace has the grace to save what it has."""
    save = "trap 'sleep 0.5; echo saved > /home/coder/file; exit' TERM"
    image = world.image_running("/bin/sh", "-c", f"{save}; httpd -f -p 8080 & while true; do sleep 0.05; done")
    patient = world.another(stop_grace_seconds=60)
    try:
        await patient.start(ws, image, OP)
        await patient.stop(ws)
    finally:
        await patient.close()
    await world.runtime.start(ws, world.image, OP)
    assert world.inside(ws, "cat /home/coder/file") == (0, "saved\n")


async def test_stop_of_one_that_does_not_listen(world: DockerWorld, ws: WorkspaceId) -> None:
    """After the grace it is killed."""
    image = world.image_running("/bin/sh", "-c", "trap '' TERM; httpd -f -p 8080 & while true; do sleep 1; done")
    await world.runtime.start(ws, image, OP)
    async with asyncio.timeout(world.config.stop_grace_seconds + 5):
        await world.runtime.stop(ws)
    assert world.container(ws) is None
    assert world.volume(ws)


async def test_stops_side_by_side(world: DockerWorld, ws: WorkspaceId) -> None:
    """All of them succeed."""
    await world.runtime.start(ws, world.image, OP)
    await asyncio.gather(*(world.runtime.stop(ws) for _ in range(5)))
    assert world.container(ws) is None


async def test_paused(world: DockerWorld, ws: WorkspaceId) -> None:
    """A paused container answers nobody: it counts as stopped and is replaced by a start."""
    await world.runtime.start(ws, world.image, OP)
    world.api.pause(container_name(ws))
    stopped = Resources(ContainerState.STOPPED, Presence.PRESENT)
    assert await world.runtime.observe(ws, probe=True) == stopped
    assert await world.runtime.observe_all() == {ws: stopped}
    await world.runtime.start(ws, world.image, OP)
    assert (await world.runtime.observe(ws, probe=True)).container is ContainerState.READY


async def test_engine_without_docker_init(world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on an engine that has no init program goes on without."""
    act = world.runtime._engine.act
    refused: list[str] = []

    async def act_without_init(call: Any) -> Any:
        found = world.container(ws)
        started = found and found["State"]["Status"] == "created" and found["HostConfig"]["Init"]
        if started and not refused:
            refused.append(DOCKER_INIT_MISSING)
            raise ActionFailed(DOCKER_INIT_MISSING)
        return await act(call)

    monkeypatch.setattr(world.runtime._engine, "act", act_without_init)
    await world.runtime.start(ws, world.image, OP)
    found = world.container(ws)
    assert found
    assert refused
    assert found["HostConfig"]["Init"] is False


async def test_packet_filter_that_is_being_reloaded(
    world: DockerWorld, ws: WorkspaceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, for a moment: what is wrong is not the container. Where it lasts, that is said."""
    run, refusals = Containers.run, 2

    async def refused(self: Containers, container_id: str) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise ActionFailed(NO_CHAIN)
        await run(self, container_id)

    monkeypatch.setattr(Containers, "run", refused)
    await world.runtime.start(ws, world.image, OP)
    assert refusals == -1
    await world.runtime.stop(ws)
    refusals = 1000
    monkeypatch.setattr("adapters.docker.starting.FILTER_SECONDS", 0.1)
    with pytest.raises(ActionFailed, match="No chain"):
        await world.runtime.start(ws, world.image, OP)
    assert world.container(ws) is None


def _note(monkeypatch: pytest.MonkeyPatch, name: str, calls: list[str]) -> None:
    call = getattr(APIClient, name)

    def noted(self: APIClient, *arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return call(self, *arguments, **named)

    monkeypatch.setattr(APIClient, name, noted)


def _id(world: DockerWorld, ws: WorkspaceId) -> str:
    found = world.container(ws)
    assert found
    return str(found["Id"])
