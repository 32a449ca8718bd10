"""judge, decide and apply over every combination of row and observation that the CHECK constraints let exist."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from domain.apply import apply
from domain.judge import Judgement, judge
from domain.model import (
    LEVELS,
    DesiredState,
    ErrorReason,
    HomeContext,
    Operation,
    OperationId,
    Phase,
    Workspace,
)
from domain.observation import ContainerState, Observation, Presence
from domain.plan import PLANS, Action, Decision, decide, plan
from tests.domain.rows import (
    DELETED_AT,
    EARLIER,
    NOW,
    OLD_KEY,
    OP,
    OWN_KEY,
    REMOVING,
    RESTORED,
    RESTORING,
    formerly,
    row,
    seen,
    violated_checks,
)

NEW_OP = OperationId("op-new")
ARCHIVES = frozenset({Operation.ARCHIVING, Operation.CREATE_EMPTY_ARCHIVE})
REACHES = {
    Operation.PROVISIONING: Phase.STANDBY,
    Operation.RESTORING: Phase.STANDBY,
    Operation.STARTING: Phase.RUNNING,
    Operation.STOPPING: Phase.STANDBY,
    Operation.ARCHIVING: Phase.ARCHIVED,
    Operation.CREATE_EMPTY_ARCHIVE: Phase.ARCHIVED,
}
OBSERVATIONS = tuple(
    seen(volume, container, archive) for container, volume, archive in product(ContainerState, Presence, Presence)
)
ERRORS = (None, ErrorReason.TIMEOUT, ErrorReason.DATA_LOST, ErrorReason.CONTAINER_WITHOUT_VOLUME)


def test_every_combination_has_exactly_one_sound_decision() -> None:
    """PROMISE 1: phase × operation × desired_state × deleted × error × former conditions × home_ctx ×
    archive_key × observation: exactly one decision, that crosses no more than one level and mixes no up and down."""
    count = 0
    for ws in rows():
        for observation in OBSERVATIONS:
            judgement = judge(ws, observation, NOW)
            decision = decide(ws, judgement, observation, NOW)
            wrong = flaw(ws, observation, judgement, decision)
            assert wrong is None, f"{wrong}\n{decision}\n{judgement}\n{observation}\n{ws}"
            count += 1
    assert count >= 290_000, "the combinations were not all there"


def test_every_decision_makes_a_row_that_can_be_saved() -> None:
    """PROMISE 1: what a decision makes of any row keeps every CHECK, and never has an operation in ERROR."""
    for ws in rows(phases=(Phase.PENDING, Phase.ERROR)):
        for observation in OBSERVATIONS:
            judgement = judge(ws, observation, NOW)
            decision = decide(ws, judgement, observation, NOW)
            after = apply(ws, judgement, decision, observation, NOW, NEW_OP, "n1")
            assert not violated_checks(after), (violated_checks(after), decision, observation, ws)


def rows(phases: tuple[Phase, ...] = tuple(Phase)) -> Iterator[Workspace]:
    """Pruned by the CHECK constraints of `workspaces` (tests.domain.rows.violated_checks), and by archive_key being
    saved before home_ctx names it and never cleared."""
    formers = [
        formerly(volume=volume, container=container, archive=OLD_KEY if archive else None)
        for volume, container, archive in product((False, True), repeat=3)
    ]
    for phase, operation, desired, error, key in product(
        phases, Operation, DesiredState, ERRORS, (None, OWN_KEY, OLD_KEY)
    ):
        for home_ctx, changed_at in product((HomeContext(), RESTORING, RESTORED, REMOVING), (EARLIER, NOW)):
            if changed_at is NOW and not (error and desired is DesiredState.DELETED):
                continue  # only tells an error of the deletion from one of before
            ws = row(
                operation,
                phase=phase,
                desired_state=desired,
                deleted_at=DELETED_AT if desired is DesiredState.DELETED else None,
                error_reason=error,
                phase_changed_at=changed_at,
                archive_key=key,
                archive_op_id=OP if operation in ARCHIVES or key == OWN_KEY else None,
                home_ctx=home_ctx,
            )
            named = key if home_ctx != REMOVING else key == OWN_KEY
            if not violated_checks(ws) and (named or home_ctx == HomeContext()):
                yield from (replace(ws, conditions=former) for former in formers)


def flaw(ws: Workspace, observation: Observation, judgement: Judgement, decision: Decision) -> str | None:
    """What is wrong with a decision, as a sentence."""
    action, operation = decision.action, decision.operation
    if (action in {Action.CLAIM, Action.RESUME, Action.FAIL}) != (operation is not Operation.NONE):
        return "an action without its operation, or an operation without its action"
    if (action is Action.FAIL) != (decision.reason is not None):
        return "a failure without a reason, or a reason without a failure"
    if decision.completed is not Operation.NONE and decision.completed is not ws.operation:
        return "another operation than the one in flight is complete"
    if action in {Action.RESUME, Action.FAIL} and (operation is not ws.operation or decision.completed != "NONE"):
        return "an operation is resumed or failed that is not in flight"
    if (action is Action.GONE) != (judgement.phase is Phase.DELETED):
        return "gone is what is deleted"
    if action is Action.CLAIM:
        return _flaw_of_claim(ws, observation, judgement, decision)
    return None


def _flaw_of_claim(ws: Workspace, observation: Observation, judgement: Judgement, decision: Decision) -> str | None:
    phase, operation = judgement.phase, decision.operation
    if decision.completed is not ws.operation:
        return "a second operation next to the one in flight"
    if not observation.resources.known:
        return "a step without knowing what is there"
    if operation is Operation.PROVISIONING and (ws.archive_key or observation.resources.volume is not Presence.ABSENT):
        return "an empty home where there is one"
    if operation is Operation.RESTORING and observation.archive is not Presence.PRESENT:
        return "a restore without its archive"
    if _reads_home(ws, operation) and observation.resources.container is not ContainerState.ABSENT:
        return "an archive of a home in use"
    if (operation is Operation.DELETING) != (ws.deleted_at is not None):
        return "a deletion that nobody asked for, or something else instead of it"
    if operation is Operation.ARCHIVING and not _reads_home(ws, operation):
        return None if phase is Phase.ARCHIVED is Phase(ws.desired_state) else "the rest of a volume taken for a home"
    return None if operation is Operation.DELETING else _flaw_of_step(phase, ws.desired_state, operation)


def _reads_home(ws: Workspace, operation: Operation) -> bool:
    """ARCHIVING that goes on with a removal reads nothing any more."""
    return operation is Operation.ARCHIVING and ws.home_ctx.removing is None


@cache
def _flaw_of_step(phase: Phase, desired: DesiredState, operation: Operation) -> str | None:
    if phase not in LEVELS or Phase(desired) not in LEVELS:
        return "a step from or to somewhere off the ladder"
    start, end, goal = LEVELS[phase], LEVELS[REACHES[operation]], LEVELS[Phase(desired)]
    if (phase, operation) == (Phase.STANDBY, Operation.STOPPING):
        # What is left of a container goes first: the level is the same, the way is down or at its end.
        return None if goal <= start else "down on the way up"
    if not (start < end <= goal or goal <= end < start):
        return "not towards the desired state, or beyond it"
    between = [level for level in LEVELS.values() if min(start, end) < level < max(start, end)]
    # PROVISIONING makes STANDBY out of nothing: there is no archive on the way.
    if between and operation is not Operation.PROVISIONING:
        return "more than one level at once"
    return None


def test_plans_lead_up_or_down_one_level() -> None:
    """PROMISE 1: the table itself: no plan goes past its goal, turns round, or skips a level."""
    for (phase, desired), operation in PLANS.items():
        assert _flaw_of_step(phase, desired, operation) is None, (phase, desired, operation)
    for phase, desired in product(LEVELS, DesiredState):
        assert (plan(phase, desired) is Operation.NONE) == (phase.value == desired.value)
