"""Every activity of the registry, run twice (PROMISE 5) and made to fail at every call (PROMISE 6)."""

import asyncio
import random
import secrets
from typing import Any

import pytest

from activities.attempt import Attempt
from domain.errors import ImagePullFailed
from domain.model import ErrorReason, Operation, Phase, WorkspaceId
from tests import report
from tests.harness.bench import Bench, TemporalBench
from tests.harness.cases import Case, Fault
from tests.harness.scenarios import SCENARIOS, Scenario
from workflows.messages import FailInput, OperateInput, ReconcileInput, StepKind

SAMPLE = 32
"""Of the several hundred cases, in an ordinary run."""
AT_ONCE = 12
LEAST_STRUCK = 0.85
"""Of the cases that are tried: in the others the call was not made that time."""


def test_no_operation_is_forgotten(direct: Bench) -> None:
    """What is registered is what is run here; GC and TTL have tests of their own beside this one."""
    assert {scenario.operation for scenario in SCENARIOS.values()} == set(Operation) - {Operation.NONE}
    assert direct.parts.operator.actuators.keys() == set(Operation) - {Operation.NONE}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_run_twice_it_leaves_the_same_world(direct: Bench, name: str) -> None:
    """PROMISE 5: reconcile, the effect itself, the whole activity, and fail; each as often as once."""
    scenario = SCENARIOS[name]
    once = await _once(direct, scenario)
    operator, reconciler = direct.parts.operator, direct.parts.operator.reconciler
    workspace = await direct.prepare(scenario, Case())

    steps = [await reconciler.reconcile(ReconcileInput(workspace)) for _ in range(2)]
    assert steps[0] == steps[1]
    step = steps[0]
    assert (step.kind, step.operation) == (StepKind.RUN, scenario.operation)

    begun = await direct.store.begin_attempt(step.op_id)
    assert begun
    attempt = Attempt(await direct.row(workspace), step.op_id, begun.number)
    for _ in range(2):
        await _act(direct, scenario, attempt)
    request = OperateInput(workspace, step.op_id)
    for _ in range(2):
        if scenario.ends_in is Phase.ERROR:
            failed = FailInput(workspace, step.op_id, ErrorReason.IMAGE_PULL_FAILED, "no such image")
            await reconciler.fail(failed)
        else:
            await operator.run(scenario.operation, request)
        assert await direct.snapshot(workspace) == once
    # Long after it is over, an attempt is delivered once more.
    for _ in range(2):
        await operator.run(scenario.operation, request)
        await reconciler.reconcile(ReconcileInput(workspace))
        assert await direct.snapshot(workspace) == once


@pytest.mark.timeout(900)
async def test_fails_before_or_after_its_effect(on_temporal: TemporalBench) -> None:
    """PROMISE 6, a sample; all of them in the full run. Through the real workflow: not done and said so, done and not
    said so, or done later than said: it ends where the run without faults ends."""
    await _all_cases(on_temporal, SAMPLE, (Fault.BEFORE, Fault.AFTER, Fault.LATE))


@pytest.mark.timeout(900)
async def test_a_zombie_does_no_harm(on_temporal: TemporalBench) -> None:
    """PROMISE 6: an attempt that is taken for dead, and goes on after another one has finished the operation and the
    workspace has moved on."""
    await _all_cases(on_temporal, SAMPLE // 2, (Fault.ZOMBIE,))


@pytest.mark.full
@pytest.mark.timeout(7200)
async def test_every_call_of_every_activity_fails(on_temporal: TemporalBench) -> None:
    """PROMISE 6, all of them."""
    await _all_cases(on_temporal, None, tuple(Fault))


async def _all_cases(bench: TemporalBench, sample: int | None, faults: tuple[Fault, ...]) -> None:
    expected = {name: await _free_of_faults(bench, scenario) for name, scenario in SCENARIOS.items()}
    combinations = [
        (name, point, fault)
        for name, (_, _, free) in expected.items()
        for point in free.points
        for fault in faults
        if _applies(bench, SCENARIOS[name], free, point, fault)
    ]
    seed = secrets.randbits(32)
    dice = random.Random(seed)
    chosen = dice.sample(combinations, min(sample or len(combinations), len(combinations)))
    places = asyncio.Semaphore(AT_ONCE)
    struck, wrong = [], []

    async def run(name: str, point: str, fault: Fault) -> None:
        case = Case(point, fault)
        async with places:
            workspace = await _run(bench, SCENARIOS[name], case)
        struck.append(case.struck)
        end, moved_on, _ = expected[name]
        wanted = moved_on if fault is Fault.ZOMBIE else _with_its_own_failure(end, SCENARIOS[name], case)
        found = await bench.snapshot(workspace)
        if _comparable(found, fault) != _comparable(wanted, fault):
            wrong.append(f"{name}, {point} {fault}:\n   {found}\n   {wanted}")

    await asyncio.gather(*(run(*case) for case in chosen))
    print(f"seed {seed}: {len(chosen)} of {len(combinations)} cases, {sum(struck)} struck")  # noqa: T201
    assert not wrong, f"seed {seed}: " + "\n".join(wrong)
    if sample is None:
        report.save("faults", {"possible": len(combinations), "tried": len(chosen), "struck": sum(struck)})
    # A call that one run makes and another does not, because something else was faster, is no case.
    assert sum(struck) >= LEAST_STRUCK * len(struck)


def _applies(bench: Bench, scenario: Scenario, free: Case, point: str, fault: Fault) -> bool:
    """Only an attempt can be taken for dead."""
    if fault is Fault.LATE:
        return bench.cases.can_be_late(point)
    return fault is not Fault.ZOMBIE or (scenario.ends_in is not Phase.ERROR and point in free.of_attempts)


async def _free_of_faults(bench: TemporalBench, scenario: Scenario) -> tuple[Any, Any, Case]:
    """Where it ends, where it ends once it has moved on, and the case with the calls on the way to the first."""
    case = Case()
    workspace = await _run(bench, scenario, case)
    end = await bench.snapshot(workspace)
    moved = await _run(bench, scenario, Case(fault=Fault.ZOMBIE))
    return end, await bench.snapshot(moved), case


async def _run(bench: TemporalBench, scenario: Scenario, case: Case) -> WorkspaceId:
    workspace = await bench.prepare(scenario, case)
    await bench.wake(workspace)
    await bench.until(workspace, scenario.ends_in)
    case.counting = False
    final = scenario.ends_in
    if case.fault is Fault.ZOMBIE and scenario.afterwards:
        await bench.want(workspace, scenario.afterwards)
        await bench.drive(workspace)
        final = Phase(scenario.afterwards)
    if case.struck and case.fault in {Fault.LATE, Fault.ZOMBIE}:
        case.released.set()
        await asyncio.wait_for(case.done.wait(), 60)
        # Several sweeps: each would be a chance to get it wrong.
        await asyncio.sleep(2.5)
        await bench.until_put_right(workspace, final)
    return workspace


def _with_its_own_failure(end: dict[str, Any], scenario: Scenario, case: Case) -> dict[str, Any]:
    """A start that was made to fail is a failed attempt, too: where the operation fails in the end, it is counted."""
    starts = case.point is not None and case.point.startswith("runtime.start")
    if not (case.struck and starts and scenario.ends_in is Phase.ERROR and case.fault in {Fault.BEFORE, Fault.LATE}):
        return end
    reason, count = end["errors"]
    return {**end, "errors": (reason, count + 1)}


def _comparable(found: dict[str, Any], fault: Fault) -> dict[str, Any]:
    if fault in {Fault.BEFORE, Fault.AFTER}:
        return found
    # Putting right what was done late may take further operations; none of them failed.
    return {**found, "log": {outcome for _, outcome, *_ in found["log"]}, "accessed": None}


async def _once(direct: Bench, scenario: Scenario) -> dict[str, Any]:
    workspace = await direct.prepare(scenario, Case())
    step = await direct.parts.operator.reconciler.step(workspace)
    if scenario.ends_in is Phase.ERROR:
        failed = FailInput(workspace, step.op_id, ErrorReason.IMAGE_PULL_FAILED, "no such image")
        await direct.parts.operator.reconciler.fail(failed)
    else:
        await direct.parts.operator.run(step.operation, OperateInput(workspace, step.op_id))
    return await direct.snapshot(workspace)


async def _act(direct: Bench, scenario: Scenario, attempt: Attempt) -> None:
    act = direct.parts.operator.actuators[scenario.operation]
    if scenario.ends_in is Phase.ERROR:
        with pytest.raises(ImagePullFailed):
            await act(attempt)
    else:
        await act(attempt)
