"""What to do next with a step, from what is known about its allocation. Pure functions only.

Absence and "unknown" are never success; only proof of an end ends a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .runner.spec import Exit

# What the scheduler says of an allocation. The local scheduler knows RUNNING, COMPLETED, FAILED,
# CANCELLED and TIMEOUT; the others are what schedulers of clusters add.
ALIVE = frozenset(
    "PENDING RUNNING REQUEUED SUSPENDED COMPLETING CONFIGURING RESIZING STOPPED".split()
)
INTERRUPTED = frozenset("FAILED TIMEOUT PREEMPTED NODE_FAIL BOOT_FAIL DEADLINE REVOKED".split())


@dataclass(frozen=True, slots=True)
class Progress:
    """What the earlier allocations of a step came to."""

    restores: int = 0  # continuations so far
    newest: int = 0  # newest generation when the allocation began, 0: none
    stalled: int = 0  # allocations in a row without a newer generation


@dataclass(frozen=True, slots=True)
class Limits:
    max_restores: int
    other_nodes: bool = False  # is there another node to go to?


@dataclass(frozen=True, slots=True)
class Wait:
    """Alive, or nothing certain is known."""


@dataclass(frozen=True, slots=True)
class Succeed:
    pass


@dataclass(frozen=True, slots=True)
class Continue:
    """A new allocation of the same step. `generation` 0: from the start."""

    generation: int
    why: str
    progress: Progress
    elsewhere: bool = False  # not on the node of the last allocation


@dataclass(frozen=True, slots=True)
class Adopt:
    """Another runner works on the step: follow that one."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell Snakemake. `keep`: the generations stay for a later run."""

    message: str
    keep: bool = True


Action = Wait | Succeed | Continue | Adopt | Fail

HELD = 97  # exit status of a runner that found another one at work

# Two: one allocation may be unlucky (a node that died before its first checkpoint).
MOST_STALLED = 2


def decide(
    state: str,
    status: int | None,
    exit_record: Exit | None,
    newest: int,
    progress: Progress,
    limits: Limits,
) -> Action:
    """The next action for an opted-in step.

    Args:
        state: what the scheduler says, first word only ("CANCELLED by 0" is "CANCELLED").
        status: exit status of the runner, None if it is not known.
        exit_record: what the runner of *this* allocation left, None if nothing.
        newest: number of the newest published generation, 0 if none.
        progress: as it was when the allocation began.
    """
    if state in ALIVE:
        return Wait()
    if exit_record is not None and exit_record.reason == "ended":
        return _ended(exit_record)
    if exit_record is None and status == HELD and state in INTERRUPTED:
        return Adopt()  # it leaves no record, for the directory is the other runner's
    if state == "OUT_OF_MEMORY":
        return Fail("the allocation ran out of memory")
    if state == "CANCELLED":
        return Fail("the allocation was cancelled")
    if state == "COMPLETED" and exit_record is None:
        return Fail("the allocation completed, but its runner left no exit record")
    if state not in INTERRUPTED and state != "COMPLETED":
        return Wait()
    if exit_record is not None:
        return _stopped(exit_record, newest, progress, limits)
    return _go_on(f"the allocation ended ({state}) without a word", newest, progress, limits)


def decide_plain(state: str, status: int | None) -> Action:
    """The next action for a step that is not opted in: no runner, no generations."""
    if state == "COMPLETED":
        return Succeed()
    if state in ALIVE or (state not in INTERRUPTED and state not in ("CANCELLED", "OUT_OF_MEMORY")):
        return Wait()
    return Fail(_status_text(status) if status is not None else f"the allocation ended ({state})")


def _ended(record: Exit) -> Action:
    if record.rc == 0:
        return Succeed()
    if not isinstance(record.rc, int):
        return Fail("the step ended, but its exit status is not known")
    if record.signal:
        return Fail(_status_text(-record.signal), keep=False)
    return Fail(_status_text(record.rc), keep=False)


def _stopped(record: Exit, newest: int, progress: Progress, limits: Limits) -> Action:
    said = f": {record.message}" if record.message else ""
    match record.reason:
        case "held":
            return Adopt()
        case "uncheckpointable":
            return Fail(f"the step cannot be checkpointed{said}")
        case "wrong_node" if not limits.other_nodes:
            return Fail(f"the checkpoint cannot be restored on this machine{said}")
        case "wrong_node":
            return _elsewhere(f"wrong node{said}", newest, progress, limits)
        case "failed":
            return _go_on(f"the runner could not work{said}", newest, progress, limits)
        case "limit":
            return _go_on("the allocation reached its time limit", newest, progress, limits)
        case _:
            return _go_on(f"the allocation was terminated{said}", newest, progress, limits)


def _elsewhere(why: str, newest: int, progress: Progress, limits: Limits) -> Action:
    """Nothing ran, so nothing stalled; but it counts as a continuation, so that it ends."""
    if progress.restores >= limits.max_restores:
        return _too_many(why, limits)
    onward = replace(progress, restores=progress.restores + 1)
    return Continue(newest, why, onward, elsewhere=True)


def _go_on(why: str, newest: int, progress: Progress, limits: Limits) -> Action:
    stalled = 0 if newest > progress.newest else progress.stalled + 1
    if stalled >= MOST_STALLED:
        return Fail(
            f"{why}; {stalled} allocations in a row sealed no newer generation, so another one "
            "would not help: give allocations more time, or checkpoint more often"
        )
    if progress.restores >= limits.max_restores:
        return _too_many(why, limits)
    return Continue(newest, why, Progress(progress.restores + 1, newest, stalled))


def _too_many(why: str, limits: Limits) -> Fail:
    return Fail(f"{why}; --cedana-max-restores {limits.max_restores} is reached")


def _status_text(status: int) -> str:
    if status < 0:
        return f"the step was killed by signal {-status}"
    return f"the step failed with exit status {status}"
