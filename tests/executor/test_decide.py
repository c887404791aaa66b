"""What to do next with a step: the table, row by row, and what bounds it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snakemake_executor_plugin_cedana.decide import (
    ALIVE,
    INTERRUPTED,
    Action,
    Adopt,
    Continue,
    Fail,
    Limits,
    Progress,
    Succeed,
    Wait,
    decide,
    decide_plain,
)
from snakemake_executor_plugin_cedana.runner.spec import REASONS, Exit

MANY = Limits(max_restores=10)
FRESH = Progress()


def left(reason: str, rc: int | str = "unknown", **more: Any) -> Exit:
    """An exit record."""
    said: dict[str, Any] = {
        "stopping": False,
        "signal": 0,
        "generation": 0,
        "restored": 0,
        "message": "",
    } | more
    return Exit(allocation="a", rc=rc, reason=reason, **said)


def act(
    state: str,
    record: Exit | None,
    newest: int = 0,
    progress: Progress = FRESH,
    limits: Limits = MANY,
    status: int | None = None,
) -> Action:
    return decide(state, status, record, newest, progress, limits)


@pytest.mark.parametrize("state", sorted(ALIVE))
def test_living_allocation_is_waited_for_whatever_lies_in_the_directory(state: str) -> None:
    assert Wait() == act(state, None)
    assert Wait() == act(state, left("ended", 0))


@pytest.mark.parametrize("state", ["UNKNOWN", "", "COMPLETE", "cancelled"])
@pytest.mark.parametrize("record", [None, left("limit", stopping=True)])
def test_unknown_state_is_neither_success_nor_failure(state: str, record: Exit | None) -> None:
    assert Wait() == act(state, record, newest=3)


@pytest.mark.parametrize("state", ["COMPLETED", *sorted(INTERRUPTED), "CANCELLED", "UNKNOWN"])
def test_step_that_ended_well_succeeds_whatever_the_scheduler_says(state: str) -> None:
    """Its limit may have come one second after its end."""
    assert Succeed() == act(state, left("ended", 0))


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "COMPLETED"])
def test_step_that_failed_fails_and_drops_its_generations(state: str) -> None:
    assert Fail("the step failed with exit status 3", keep=False) == act(state, left("ended", 3), 5)


def test_step_killed_by_a_signal_fails_with_its_number() -> None:
    record = left("ended", 139, signal=11)

    assert Fail("the step was killed by signal 11", keep=False) == act("FAILED", record)


def test_end_with_unknown_status_is_never_success_and_keeps_the_generations() -> None:
    expected = Fail("the step ended, but its exit status is not known")
    assert expected == act("COMPLETED", left("ended"), 2)


def test_completed_without_exit_record_is_never_success() -> None:
    expected = Fail("the allocation completed, but its runner left no exit record")
    assert expected == act("COMPLETED", None, 2)


@pytest.mark.parametrize("state", sorted(INTERRUPTED))
@pytest.mark.parametrize("record", [None, left("terminated"), left("limit"), left("failed")])
def test_interrupted_step_goes_on_from_its_newest_generation(
    state: str, record: Exit | None
) -> None:
    action = act(state, record, newest=3, progress=Progress(restores=1, newest=2, stalled=1))

    assert isinstance(action, Continue)
    assert (3, Progress(restores=2, newest=3, stalled=0)) == (action.generation, action.progress)


def test_limit_reached_is_said_in_words() -> None:
    action = act("FAILED", left("limit", stopping=True), newest=1)

    assert isinstance(action, Continue)
    assert "the allocation reached its time limit" == action.why


def test_interrupted_before_its_first_generation_it_starts_anew_once() -> None:
    first = act("NODE_FAIL", None)
    assert isinstance(first, Continue)
    assert (0, Progress(restores=1, newest=0, stalled=1)) == (first.generation, first.progress)

    second = act("NODE_FAIL", None, progress=first.progress)
    assert isinstance(second, Fail)
    assert "2 allocations in a row sealed no newer generation" in second.message
    assert second.keep


def test_two_allocations_in_a_row_without_a_newer_generation_are_an_error() -> None:
    before = Progress(restores=4, newest=7, stalled=0)
    first = act("FAILED", left("limit"), newest=7, progress=before)
    assert isinstance(first, Continue)

    assert isinstance(act("FAILED", left("limit"), newest=7, progress=first.progress), Fail)


def test_a_newer_generation_ends_the_count_of_stalled_allocations() -> None:
    progress = Progress(restores=5, newest=7, stalled=1)
    action = act("FAILED", left("limit"), newest=8, progress=progress)

    assert isinstance(action, Continue)
    assert 0 == action.progress.stalled


def test_most_restores_are_kept_to_and_named() -> None:
    progress = Progress(restores=2, newest=2)
    limits = Limits(max_restores=2)
    action = act("TIMEOUT", left("limit"), newest=3, progress=progress, limits=limits)

    assert isinstance(action, Fail)
    assert action.message.endswith("--cedana-max-restores 2 is reached")
    assert action.keep


def test_no_restores_allowed_means_no_continuation() -> None:
    assert isinstance(act("TIMEOUT", left("limit"), newest=1, limits=Limits(0)), Fail)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("OUT_OF_MEMORY", "the allocation ran out of memory"),
        ("CANCELLED", "the allocation was cancelled"),
    ],
)
@pytest.mark.parametrize("record", [None, left("terminated"), left("limit")])
def test_out_of_memory_and_cancelled_are_errors_that_keep_the_generations(
    state: str, message: str, record: Exit | None
) -> None:
    assert Fail(message) == act(state, record, newest=3)


def test_uncheckpointable_step_is_an_error_with_the_runners_words() -> None:
    record = left("uncheckpointable", message="/data/x is open for writing", stopping=True)

    assert Fail("the step cannot be checkpointed: /data/x is open for writing") == act(
        "FAILED", record
    )


def test_wrong_node_is_left_for_another_one_and_counts() -> None:
    limits = Limits(max_restores=2, other_nodes=True)
    action = act("FAILED", left("wrong_node"), 4, Progress(1, 4, 1), limits)

    assert isinstance(action, Continue)
    assert action.elsewhere
    assert (4, Progress(2, 4, 1)) == (action.generation, action.progress)
    assert isinstance(act("FAILED", left("wrong_node"), 4, action.progress, limits), Fail)


def test_wrong_node_without_another_one_is_an_error_and_never_a_fresh_start() -> None:
    action = act("FAILED", left("wrong_node", message="kernel 5 is older than 6"), 4)

    assert isinstance(action, Fail)
    assert "kernel 5 is older than 6" in action.message
    assert action.keep


def test_fenced_runner_is_followed_by_the_one_that_holds_the_step() -> None:
    assert Adopt() == act("FAILED", left("held"), newest=3)


def test_runner_that_found_another_one_leaves_only_its_exit_status() -> None:
    assert Adopt() == act("FAILED", None, newest=3, status=97)
    assert isinstance(act("FAILED", None, newest=3, status=96), Continue)


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("COMPLETED", 0, Succeed()),
        ("RUNNING", None, Wait()),
        ("PENDING", None, Wait()),
        ("UNKNOWN", None, Wait()),
        ("FAILED", 2, Fail("the step failed with exit status 2")),
        ("FAILED", -9, Fail("the step was killed by signal 9")),
        ("TIMEOUT", None, Fail("the allocation ended (TIMEOUT)")),
        ("CANCELLED", -15, Fail("the step was killed by signal 15")),
        ("OUT_OF_MEMORY", None, Fail("the allocation ended (OUT_OF_MEMORY)")),
    ],
)
def test_step_without_checkpoints_ends_with_its_allocation(
    state: str, status: int | None, expected: Action
) -> None:
    assert expected == decide_plain(state, status)


STATES = st.sampled_from([*sorted(ALIVE | INTERRUPTED), "COMPLETED", "CANCELLED", "UNKNOWN", "X"])
RECORDS = st.none() | st.builds(
    left,
    reason=st.sampled_from(REASONS),
    rc=st.one_of(st.just("unknown"), st.integers(0, 255)),
    generation=st.integers(0, 9),
)
EXITS = st.none() | st.integers(-64, 255)


@given(STATES, EXITS, RECORDS, st.integers(0, 9))
def test_success_needs_proof_of_an_end_with_status_0(
    state: str, status: int | None, record: Exit | None, newest: int
) -> None:
    if Succeed() == decide(state, status, record, newest, FRESH, MANY):
        assert record is not None
        assert ("ended", 0) == (record.reason, record.rc)


@given(STATES, EXITS, RECORDS, st.integers(0, 9))
def test_generations_are_dropped_only_after_the_step_itself_ended(
    state: str, status: int | None, record: Exit | None, newest: int
) -> None:
    action = decide(state, status, record, newest, FRESH, MANY)
    if isinstance(action, Fail) and not action.keep:
        assert record is not None
        assert "ended" == record.reason


@given(st.lists(st.tuples(STATES, EXITS, RECORDS, st.integers(0, 2)), max_size=60))
def test_no_story_goes_on_for_ever(story: list[tuple[str, int | None, Exit | None, int]]) -> None:
    """However allocations end, a step gets at most max-restores more."""
    progress, newest, continued = FRESH, 0, 0
    for state, status, record, sealed in story:
        newest += sealed
        action = decide(state, status, record, newest, progress, Limits(3, other_nodes=True))
        if isinstance(action, Continue):
            continued += 1
            assert newest == action.generation
            progress = action.progress
    assert continued <= 3
