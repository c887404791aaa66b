"""Every way of reading sacct wrong that shows in a file, with figures worked out by hand.

The traps are the partitions of one file, so that each has figures of its own; those that concern
a whole file have one of their own. Hours in the comments are nodes times Elapsed.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from traps import COLUMNS, Row, Run, Told, analysed, later, never, printed, row, step

from cedana_poc.errors import UserError
from cedana_poc.sacct.wanted import Filter

pytestmark = pytest.mark.filterwarnings("error")

# --- the file of many traps ---------------------------------------------------------------------


def steps() -> tuple[list[Row], dict[str, int]]:
    """T1: one job of 2 nodes × 24:00:10 and its four steps, one of them longer than the job."""
    job = row("101", "TIMEOUT", "1-00:00:10", "1-00:00:00", partition="steps", nnodes="2")
    return [
        job,
        step("batch", "CANCELLED", job, elapsed="1-00:00:30", exitcode="0:15", nnodes="1"),
        step("extern", "COMPLETED", job),
        step("0", "CANCELLED", job),
        step("1", "FAILED", job),
    ], {"steps": 4}


def step_timeouts() -> tuple[list[Row], dict[str, int]]:
    """T2: `srun -t` and a step whose end was never told both say TIMEOUT; the job went on."""
    job = row("102", "COMPLETED", "02:00:00", "04:00:00", partition="step-timeouts")
    return [
        job,
        step("0", "TIMEOUT", job, elapsed="00:10:00"),
        step("1", "TIMEOUT", job),
        step("interactive", "TIMEOUT", job),
    ], {"steps": 3}


def requeued() -> tuple[list[Row], dict[str, int]]:
    """T3: one job id, a TIMEOUT after 2 h, and an hour of its second life from 11:00 on."""
    first = row("103", "TIMEOUT", "02:00:10", "02:00:00", partition="requeued")
    second = row(
        "103", "COMPLETED", "01:00:00", "02:00:00", partition="requeued",
        submit="2026-03-02T10:05:00", start="2026-03-02T11:00:00",
    )  # fmt: skip
    return [first, second], {}


def two_clusters() -> tuple[list[Row], dict[str, int]]:
    """T3: job 104 of one cluster is not job 104 of another."""
    here = row("104", "TIMEOUT", "01:00:00", "01:00:00", partition="two-clusters")
    return [here, {**here, "Cluster": "egret"}], {}


def not_ended() -> tuple[list[Row], dict[str, int]]:
    """T10: what still runs or waits, one of them a runaway of ninety days, is no ended run."""
    part = {"partition": "not-ended"}
    return [
        row("110", "RUNNING", "90-00:00:00", "1-00:00:00", end="Unknown", nnodes="64", **part),
        row("111", "RUNNING", "00:10:00", "1-00:00:00", end="Unknown", **part),
        never("112", "PENDING", "1-00:00:00", start="Unknown", end="Unknown", nnodes="9", **part),
        row("113", "SUSPENDED", "01:00:00", "1-00:00:00", end="Unknown", **part),
        row("114", "COMPLETED", "01:00:00", "1-00:00:00", **part),
        never("115", "REVOKED", "1-00:00:00", **part),
    ], {"running": 2, "pending": 1, "suspended": 1, "revoked": 1}


def below_the_limit() -> tuple[list[Row], dict[str, int]]:
    """T11: TIMEOUT of a limit of 1 h at one minute before it, and earlier."""
    part = {"partition": "below"}
    return [
        row("120", "TIMEOUT", "00:59:00", "01:00:00", **part),
        row("121", "TIMEOUT", "00:58:59", "01:00:00", **part),
        row("122", "TIMEOUT", "00:20:00", "01:00:00", reservation="course", **part),
        row("123", "TIMEOUT", "01:00:26", "01:00:00", **part),
    ], {}


def band() -> tuple[list[Row], dict[str, int]]:
    """T12: within min(max(5 min, 2 %), 10 %) of the limit: 5 min of 1 h, 28:48 of 1 d, 1 of 10."""
    part = {"partition": "band"}
    return [
        row("130", "COMPLETED", "00:55:00", "01:00:00", **part),
        row("131", "COMPLETED", "00:54:59", "01:00:00", **part),
        row("132", "COMPLETED", "23:31:12", "1-00:00:00", **part),
        row("133", "COMPLETED", "23:31:11", "1-00:00:00", **part),
        row("134", "COMPLETED", "00:09:00", "00:10:00", **part),
        row("135", "COMPLETED", "00:08:59", "00:10:00", **part),
    ], {}


def other_states() -> tuple[list[Row], dict[str, int]]:
    """T12, T13, T32: at their limit of 1 h to the second, or a second before it."""
    part = {"partition": "other-states"}
    states = "FAILED", "CANCELLED by 1007", "REQUEUED", "COMPLETED", "PREEMPTED", "NODE_FAIL"
    at_limit = [
        row(f"14{n}", state, "01:00:00", "01:00:00", **part) for n, state in enumerate(states)
    ]
    return [
        *at_limit,
        row("146", "OUT_OF_MEMORY", "01:00:05", "01:00:00", **part),
        row("147", "FAILED", "00:59:59", "01:00:00", exitcode="143:0", **part),
        row("148", "CANCELLED by 0", "00:59:59", "01:00:00", **part),
        row("149", "REQUEUED", "00:59:59", "01:00:00", **part),
    ], {}


def sessions() -> tuple[list[Row], dict[str, int]]:
    """T14: sessions end by TIMEOUT as a matter of course: by name, and by their step."""
    part = {"partition": "sessions", "submitline": ""}
    shell = row("151", "TIMEOUT", "08:00:10", "08:00:00", **part)
    return [
        row("150", "TIMEOUT", "08:00:10", "08:00:00", jobname="spawner-jupyterhub", **part),
        shell,
        step("interactive", "CANCELLED", shell, exitcode="0:9", jobname="interactive"),
        row("152", "TIMEOUT", "08:00:10", "08:00:00", **part),
    ], {"steps": 1}


def arrays() -> tuple[list[Row], dict[str, int]]:
    """T15: three tasks with ids of their own, and blocks that stand for tasks without one."""
    part = {"partition": "arrays"}
    tasks = [
        row(f"160_{task}", "TIMEOUT", "01:00:00", "01:00:00", jobidraw=str(160 + task), **part)
        for task in (0, 1, 2)
    ]
    return [
        *tasks,
        step("batch", "CANCELLED", tasks[0]),
        never("160_[3-1000%2]", "PENDING", "01:00:00", start="Unknown", end="Unknown", **part),
        row("160_[1001,1005-1009]", "TIMEOUT", "01:00:00", "01:00:00", jobidraw="170", **part),
    ], {"steps": 1, "array blocks": 2}


def het_jobs() -> tuple[list[Row], dict[str, int]]:
    """T16: a leader of 1 node and components of 2 and 4, 2 h each: 14 node-hours, one TIMEOUT."""
    part = {"partition": "het", "submit": "2026-03-02T07:00:00"}
    return [
        row("172+1", "TIMEOUT", "02:00:00", "02:00:00", jobidraw="173", nnodes="2", **part),
        row("172+0", "TIMEOUT", "02:00:00", "02:00:00", jobidraw="172", nnodes="1", **part),
        row("172+2", "FAILED", "02:00:00", "02:00:00", jobidraw="174", nnodes="4", **part),
    ], {}


def resized() -> tuple[list[Row], dict[str, int]]:
    """T17: 4 nodes × 1 h, 2 nodes × 1 h, 1 node × 2 h, against a limit of 4 h; and a new life."""
    part = {"partition": "resized"}
    first = row("180", "RESIZING", "01:00:00", "04:00:00", nnodes="4", **part)
    second = row("180", "RESIZING", "01:00:00", "04:00:00", nnodes="2", start=first["End"], **part)
    last = row("180", "TIMEOUT", "02:00:00", "04:00:00", start=second["End"], **part)
    again = row("180", "COMPLETED", "01:00:00", "04:00:00", start="2026-03-03T08:00:00", **part)
    return [last, first, second, again], {}


def suspended() -> tuple[list[Row], dict[str, int]]:
    """T18: 6 h of work in 10 h of wall clock; the limit of 6 h counts work."""
    part = {"partition": "suspended", "suspended": "04:00:00"}
    return [
        row("185", "TIMEOUT", "06:00:00", "06:00:00", **part),
        row("186", "COMPLETED", "03:00:00", "07:00:00", **part),
    ], {}


def never_started() -> tuple[list[Row], dict[str, int]]:
    """T19: cancelled while pending; NNodes and NCPUS are what was asked for."""
    part = {"partition": "never-started", "nnodes": "100", "ncpus": "6400"}
    return [
        never("190", "CANCELLED by 1007", "1-00:00:00", **part),
        never("191", "CANCELLED by 1007", "Partition_Limit", start="Unknown", **part),
        never("192", "DEADLINE", "1-00:00:00", **part),
        row("193", "CANCELLED by 1007", "00:00:00", "1-00:00:00", partition="never-started"),
    ], {"never started": 3}


def gpus() -> tuple[list[Row], dict[str, int]]:
    """T21: an hour each; the typed items are a breakdown of the total, or all there is."""
    part = {"partition": "gpus"}
    tres = [
        "cpu=4,gres/gpu=4,gres/gpu:a100=4",
        "cpu=4,gres/gpu:a100=3,gres/gpu=3",
        "cpu=4,gres/gpu:a100=2,gres/gpu:v100=1",
        "cpu=4,gres/gpu=2,gres/gpumem=80G,gres/gpuutil=97",
        "cpu=4,gres/gpumem=80G,gres/gpuutil=97",
        "cpu=4,gres/gpu:1g.10gb=2",
        "cpu=4,gres/shard=8",
    ]
    return [
        row(f"20{n}", "TIMEOUT", "01:00:00", "01:00:00", alloctres=text, **part)
        for n, text in enumerate(tres)
    ], {}


def recycled() -> tuple[list[Row], dict[str, int]]:
    """T27: job id 210 was given out again four years later, to someone else."""
    part = {"partition": "recycled"}
    return [
        row("210", "TIMEOUT", "01:00:00", "01:00:00", start="2022-03-02T08:00:00", **part),
        row("210", "COMPLETED", "00:30:00", "01:00:00", **part),
    ], {}


def no_limit() -> tuple[list[Row], dict[str, int]]:
    """T29: without a limit nothing is near it; a TIMEOUT then had another cause, or is unknown."""
    part = {"partition": "no-limit"}
    return [
        row("220", "COMPLETED", "30-00:00:00", "UNLIMITED", **part),
        row("221", "FAILED", "01:00:00", "Partition_Limit", **part),
        row("222", "COMPLETED", "01:00:00", "", **part),
        row("223", "TIMEOUT", "01:30:00", "UNLIMITED", **part),
        row("224", "TIMEOUT", "01:40:00", "", **part),
    ], {}


def escalating() -> tuple[list[Row], dict[str, int]]:
    """T30: the same work with 1 h, then 2 h, then 4 h; 1:00:10 + 2:00:10 are exposed."""
    part = {"partition": "escalating", "jobname": "fold", "submitline": "sbatch fold.sh"}
    return [
        row("230", "TIMEOUT", "01:00:10", "01:00:00", start="2026-03-02T01:00:00", **part),
        row("231", "TIMEOUT", "02:00:10", "02:00:00", start="2026-03-02T03:00:00", **part),
        row("232", "COMPLETED", "02:30:00", "04:00:00", start="2026-03-02T06:00:00", **part),
    ], {}


def maintenance() -> tuple[list[Row], dict[str, int]]:
    """T31: five TIMEOUTs below the limit in the minute of 06:00, four in that of 07:00."""
    part = {"partition": "maintenance"}
    five = [
        row(f"24{n}", "TIMEOUT", f"04:00:0{n}", "1-00:00:00", start="2026-03-04T02:00:00", **part)
        for n in range(5)
    ]
    four = [
        row(f"24{n}", "TIMEOUT", f"04:00:0{n}", "1-00:00:00", start="2026-03-04T03:00:00", **part)
        for n in range(5, 9)
    ]
    return [*five, *four], {}


TRAPS = (
    steps, step_timeouts, requeued, two_clusters, not_ended, below_the_limit, band, other_states,
    sessions, arrays, het_jobs, resized, suspended, never_started, gpus, recycled, no_limit,
    escalating, maintenance,
)  # fmt: skip


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All traps in one file."""
    path = tmp_path_factory.mktemp("traps") / "traps.psv"
    path.write_text(printed([one for trap in TRAPS for one in trap()[0]]))
    return path


@pytest.fixture(scope="session")
def told(file: Path) -> Told:
    return analysed(file)


def test_every_row_is_a_run_or_left_out_for_the_reason_its_trap_names(told: Told) -> None:
    rows = sum(len(trap()[0]) for trap in TRAPS)
    left_out = sum((Counter(trap()[1]) for trap in TRAPS), Counter[str]())
    assert {
        "in": rows,
        "runs": rows - left_out.total(),
        "repaired": 0,
        "left_out": dict(sorted(left_out.items())),
    } == told.document["rows"]


# --- T1 to T5: what is one run --------------------------------------------------------------------


def test_steps_are_never_counted_as_jobs(told: Told) -> None:
    """2 nodes × 86,410 s = 48.0056 h, and no run but the job's own."""
    (run,) = told.of("steps")
    assert ("TIMEOUT", 86_410, 2) == (run.state, run.elapsed, run.nodes)
    usage = told.usage("steps")
    assert (1, 48.0056) == (usage["runs"], usage["node_hours"])
    assert (1, 48.0056) == (usage["wall_ended"]["runs"], usage["wall_ended"]["node_hours"])


def test_a_step_that_says_timeout_makes_no_wall(told: Told) -> None:
    usage = told.usage("step-timeouts")
    assert (1, 2.0) == (usage["runs"], usage["node_hours"])
    assert 0 == usage["wall_ended"]["runs"]


def test_both_records_of_a_requeued_job_count_and_the_second_is_a_certain_repeat(
    told: Told,
) -> None:
    """7,210 s before the requeue and 3,600 s after it: 3.0028 h, of which 2.0028 h exposed."""
    usage = told.usage("requeued")
    assert (2, 3.0028) == (usage["runs"], usage["node_hours"])
    assert (1, 2.0028) == (usage["wall_ended"]["runs"], usage["wall_ended"]["node_hours"])
    assert [("certain", ["103", "103"])] == told.chains("requeued")


def test_equal_job_ids_of_two_clusters_are_two_jobs(told: Told) -> None:
    assert (2, 2.0) == (
        told.usage("two-clusters")["runs"],
        told.usage("two-clusters")["node_hours"],
    )


def test_overlapping_day_chunks_count_each_job_once(tmp_path: Path) -> None:
    """T4, T5: a job that ended at midnight is in both days; one that ran over midnight is RUNNING
    in the first and ended in the second: two runs of 4 h and 10 h."""
    midnight = row("301", "COMPLETED", "04:00:00", "1-00:00:00", start="2026-03-02T20:00:00")
    over = row("302", "TIMEOUT", "10:00:00", "10:00:00", start="2026-03-02T20:00:00")
    still = {**over, "State": "RUNNING", "End": "Unknown", "Elapsed": "04:00:00"}
    first, second = tmp_path / "1.psv", tmp_path / "2.psv"
    first.write_text(printed([midnight, still]))
    second.write_text(printed([midnight, over]))

    document = analysed(first, second).document

    assert {"identical copies": 1, "running": 1} == document["rows"]["left_out"]
    assert (2, 14.0) == (document["totals"]["runs"], document["totals"]["node_hours"])
    assert (1, 10.0) == (document["wall_ended"]["runs"], document["wall_ended"]["node_hours"])
    assert document == {**analysed(second, first).document, "input": document["input"]}


def test_a_record_that_was_corrected_between_two_exports_counts_once(tmp_path: Path) -> None:
    """The same id, submit and start with another End is a newer state of the record: 5 h, not 4."""
    older = row("303", "COMPLETED", "04:00:00", "1-00:00:00")
    newer = row("303", "TIMEOUT", "05:00:00", "05:00:00")
    first, second = tmp_path / "1.psv", tmp_path / "2.psv"
    first.write_text(printed([older]))
    second.write_text(printed([newer]))
    for order in ((first, second), (second, first)):
        document = analysed(*order).document
        assert {"older copies": 1} == document["rows"]["left_out"]
        assert {"TIMEOUT": 5.0} == {
            state: usage["node_hours"] for state, usage in document["by_state"].items()
        }


def test_a_record_that_was_renamed_between_two_exports_counts_once_in_either_order(
    tmp_path: Path,
) -> None:
    """Times that are equal do not tell which of two copies is newer: the order of files must not."""
    job = row("304", "TIMEOUT", "05:00:00", "05:00:00")
    first, second = tmp_path / "1.psv", tmp_path / "2.psv"
    first.write_text(printed([{**job, "Partition": "short"}]))
    second.write_text(printed([{**job, "Partition": "long"}]))
    document = analysed(first, second).document
    assert {"older copies": 1} == document["rows"]["left_out"]
    assert document == {**analysed(second, first).document, "input": document["input"]}


def test_of_two_copies_the_one_with_a_submit_line_names_the_application(tmp_path: Path) -> None:
    """Exports of different fields may overlap; what only one of them has is kept."""
    job = row("305", "TIMEOUT", "05:00:00", "05:00:00", submitline="sbatch gromacs.sh")
    without, with_line = tmp_path / "1.psv", tmp_path / "2.psv"
    without.write_text(printed([job], without=("SubmitLine",)))
    with_line.write_text(printed([job]))
    for order in ((without, with_line), (with_line, without)):
        (application,) = analysed(*order).document["applications"]
        assert "GROMACS" == application["application"]


# --- T6 to T10: windows ---------------------------------------------------------------------------


def test_a_header_without_a_row_gives_no_figure(tmp_path: Path) -> None:
    """T6: `-s` without `-E` is an empty window, which sacct answers with success."""
    path = tmp_path / "empty.psv"
    path.write_text(printed([]))
    document = analysed(path).document
    assert (0, 0) == (document["rows"]["in"], document["totals"]["runs"])
    assert "unknown" == document["wall_ended"]["share_of_runs"]
    assert "unknown" == document["repeats"]["false_match_rate"]


def test_a_run_belongs_whole_to_the_period_of_its_end(tmp_path: Path) -> None:
    """T7, T9: of three runs of 48 h the one that ends on the 5th counts, with all its 48 h."""
    path = tmp_path / "window.psv"
    starts = ("2026-03-01T12:00:00", "2026-03-03T12:00:00", "2026-03-04T00:00:00")
    path.write_text(
        printed(
            [
                row(f"31{n}", "TIMEOUT", "2-00:00:00", "2-00:00:00", start=start)
                for n, start in enumerate(starts)
            ]
        )
    )
    fifth = 1_772_668_800  # 2026-03-05T00:00:00Z
    document = analysed(path, wanted=Filter(since=fifth, until=fifth + 86_400)).document
    assert {"before --since": 1, "after --until": 1} == document["rows"]["left_out"]
    assert (1, 48.0) == (document["totals"]["runs"], document["totals"]["node_hours"])


@pytest.mark.parametrize("clipped", [9, 10])
def test_many_runs_at_one_edge_are_suspected_of_truncation(tmp_path: Path, clipped: int) -> None:
    """T8: `sacct -T` gives runs that began earlier the start of the window; ten are too many."""
    path = tmp_path / "truncated.psv"
    rows = [
        row(f"32{n}", "TIMEOUT", f"0{n % 9}:30:0{n % 9}", "1-00:00:00",
            start="2026-03-02T00:00:00", submit=f"2026-03-01T{n:02}:00:00")
        for n in range(clipped)
    ]  # fmt: skip
    path.write_text(printed([*rows, row("399", "COMPLETED", "01:00:00", "1-00:00:00")]))
    told = analysed(path)
    expected = "10 runs seem cut by sacct -T"
    found = [detail.partition(":")[0] for _, detail in told.check("window edges")]
    assert ([expected] if clipped == 10 else []) == found
    assert {"not_the_limit"} == {run.kind for run in told.runs if run.state == "TIMEOUT"}


def test_running_pending_suspended_and_runaway_jobs_are_no_ended_runs(told: Told) -> None:
    """Ninety days on 64 nodes are in no figure: one run of one hour is left."""
    usage = told.usage("not-ended")
    assert (1, 1.0) == (usage["runs"], usage["node_hours"])


# --- T11 to T13, T29, T31, T32: what ended at its limit -------------------------------------------


def test_timeout_is_the_limit_from_one_minute_before_it_on(told: Told) -> None:
    assert {
        "120": "limit",
        "121": "not_the_limit",
        "122": "not_the_limit",
        "123": "limit",
    } == told.kinds("below")
    assert {"120", "123"} == told.walls("below")


def test_timeout_below_the_limit_has_a_cause(told: Told) -> None:
    causes = {run.job: run.cause for run in told.of("below")}
    assert {
        "120": None,
        "121": "usage_limit_or_inactivity",
        "122": "reservation",
        "123": None,
    } == causes


def test_other_states_are_near_the_limit_within_five_minutes_two_percent_but_a_tenth(
    told: Told,
) -> None:
    near = "near_limit_other_state"
    assert {
        "130": near, "131": None, "132": near, "133": None, "134": near, "135": None,
    } == told.kinds("band")  # fmt: skip
    assert set() == told.walls("band")


def test_only_failed_cancelled_and_requeued_runs_reach_the_limit_in_another_state(
    told: Told,
) -> None:
    """All ten are within the band; COMPLETED may be past it by OverTimeLimit."""
    assert {"near_limit_other_state"} == set(told.kinds("other-states").values())
    assert {"140", "141", "142"} == told.walls("other-states")


def test_the_uid_that_cancelled_is_no_part_of_the_state(told: Told) -> None:
    states = Counter(run.state for run in told.of("other-states"))
    assert (2, 2) == (states["CANCELLED"], states["FAILED"])


def test_a_run_without_a_limit_is_near_none(told: Told) -> None:
    assert {
        "220": None,
        "221": None,
        "222": None,
        "223": "not_the_limit",
        "224": "limit_unknown",
    } == told.kinds("no-limit")
    assert {"224"} == told.walls("no-limit")


def test_five_timeouts_below_the_limit_in_a_minute_are_one_administrative_event(
    told: Told,
) -> None:
    causes = Counter(run.cause for run in told.of("maintenance"))
    assert {"administrative": 5, "usage_limit_or_inactivity": 4} == causes
    assert set() == told.walls("maintenance")


def test_kinds_of_the_whole_file_add_up(told: Told) -> None:
    """Wall-ended = limit + session + limit unknown + other states that reached it.

    limit: steps 1, requeued 1, clusters 2, below 2, plain of sessions 1, arrays 3, het 1, resized
    1, suspended 1, gpus 7, recycled 1, escalating 2 = 23; session 2; unknown 1; reached 3.
    near: band 3, other states 10. not the limit: below 2, no limit 1, maintenance 9.
    """
    kinds = told.document["wall_ended"]["by_kind"]
    assert {
        "limit": 23,
        "session": 2,
        "near_limit_other_state": 13,
        "not_the_limit": 12,
        "limit_unknown": 1,
    } == {kind: usage["runs"] for kind, usage in kinds.items()}
    assert 3 == kinds["near_limit_other_state"]["reached_limit"]["runs"]
    assert 23 + 2 + 1 + 3 == told.document["wall_ended"]["runs"]
    assert {"administrative": 5, "reservation": 1, "usage_limit_or_inactivity": 6} == {
        cause: usage["runs"] for cause, usage in kinds["not_the_limit"]["by_cause"].items()
    }


# --- T14: sessions --------------------------------------------------------------------------------


def test_sessions_are_exposed_but_a_kind_of_their_own_and_not_addressable(told: Told) -> None:
    assert {"150": "session", "151": "session", "152": "limit"} == told.kinds("sessions")
    assert {"150", "151", "152"} == told.walls("sessions")
    coverable = {run.job: run.coverable for run in told.of("sessions")}
    assert {"150": "session", "151": "session", "152": "addressable"} == coverable


# --- T15 to T20: jobs of several records, of several nodes, of none -------------------------------


def test_each_array_task_is_a_run_and_a_block_of_tasks_is_none(told: Told) -> None:
    assert ["160_0", "160_1", "160_2"] == [run.job for run in told.of("arrays")]
    assert 3.0 == told.usage("arrays")["wall_ended"]["node_hours"]


def test_a_het_job_counts_once_by_its_leader_with_the_hours_of_all_components(told: Told) -> None:
    """(1 + 2 + 4 nodes) × 2 h = 14 h; 12 CPUs; the state is the leader's."""
    (run,) = told.of("het")
    assert ("172+0", "TIMEOUT", "limit") == (run.job, run.state, run.kind)
    assert (7, 12, 7_200, 3) == (run.nodes, run.cpus, run.elapsed, run.records)
    assert 14.0 == told.usage("het")["wall_ended"]["node_hours"]


def test_a_chain_of_resizing_records_is_one_run_with_summed_time_and_hours(told: Told) -> None:
    """4 + 2 + 2 = 8 h in 4 h of a limit of 4 h; the record of the next day is another run."""
    first, again = told.of("resized")
    assert ("TIMEOUT", "limit", 14_400, 8 * 3600, 3) == (
        first.state, first.kind, first.elapsed, first.node_seconds, first.records,
    )  # fmt: skip
    assert ("COMPLETED", 3600, 1) == (again.state, again.node_seconds, again.records)


def test_suspended_time_is_neither_used_nor_counted_against_the_limit(told: Told) -> None:
    assert {"185": 6 * 3600, "186": 3 * 3600} == {
        run.job: run.node_seconds for run in told.of("suspended")
    }
    assert {"185": "limit", "186": None} == told.kinds("suspended")


def test_without_elapsed_suspended_time_is_taken_off_the_wall_clock(tmp_path: Path) -> None:
    """10 h from Start to End less 4 h suspended are 6 h."""
    path = tmp_path / "wall-clock.psv"
    path.write_text(printed(suspended()[0], without=("Elapsed",)))
    assert [6 * 3600, 3 * 3600] == [run.elapsed for run in analysed(path).runs]


def test_what_a_job_asked_for_is_not_what_it_used(told: Told) -> None:
    """Three jobs of 100 nodes never began; one was cancelled in its first second."""
    usage = told.usage("never-started")
    assert (1, 0.0, 0.0) == (usage["runs"], usage["node_hours"], usage["cpu_hours"])


def test_allocnodes_of_1k_is_1024_nodes(tmp_path: Path) -> None:
    """T19: sacct prints AllocNodes with a unit; NNodes is whole, and better where both are."""
    job = {**row("331", "TIMEOUT", "01:00:00", "01:00:00", alloctres=""), "AllocNodes": "1K"}
    path = tmp_path / "alloc-nodes.psv"
    columns = (*COLUMNS, "AllocNodes")
    path.write_text(printed([job], columns, without=("NNodes", "AllocTRES")))
    assert 1024.0 == analysed(path).document["totals"]["node_hours"]
    path.write_text(printed([{**job, "NNodes": "1050"}], columns))
    assert 1050.0 == analysed(path).document["totals"]["node_hours"]


def test_without_node_sizes_node_equivalent_hours_are_unknown(told: Told) -> None:
    """T20: nodes touched say nothing of the shared part."""
    assert "unknown" == told.document["totals"]["node_equivalent_hours"]
    assert "unknown" == told.usage("steps")["wall_ended"]["node_equivalent_hours"]


# --- T21, T22: GPUs and older forms ---------------------------------------------------------------


def test_typed_gpus_are_a_breakdown_of_the_total_and_gpu_memory_is_no_gpu(told: Told) -> None:
    """4 + 3 + 3 + 2 + 0 + 2 + 0 = 14 GPUs for an hour."""
    found = [(run.gpus, run.gpu_model) for run in told.of("gpus")]
    assert [
        (4, "a100"), (3, "a100"), (3, "a100+v100"), (2, None), (0, None), (2, "1g.10gb"), (0, None),
    ] == found  # fmt: skip
    assert 14.0 == told.usage("gpus")["gpu_hours"]


def test_a_slice_of_a_gpu_is_not_addressable(told: Told) -> None:
    coverable = {run.job: run.coverable for run in told.of("gpus")}
    assert "gpu_not_supported" == coverable.pop("205")
    assert {"addressable"} == set(coverable.values())


def test_old_gres_counts_gpus_of_each_node(tmp_path: Path) -> None:
    """T22: two P100 on each of 3 nodes are six; `gpu` alone is one; `gpu:0` none; MPS is no GPU."""
    gres = {
        "341": ("gpu:P100:2(IDX:0-1)", "3"),
        "342": ("gpu", "1"),
        "343": ("gpu:2", "1"),
        "344": ("gpu:0", "8"),
        "345": ("gpu:tesla:1,mps:100", "2"),
        "346": ("", "1"),
    }
    rows = [
        {**row(job, "TIMEOUT", "01:00:00", "01:00:00", nnodes=nodes), "AllocGRES": text}
        for job, (text, nodes) in gres.items()
    ]
    path = tmp_path / "gres.psv"
    path.write_text(printed(rows, (*COLUMNS, "AllocGRES"), without=("AllocTRES",)))
    found = {run.job: (run.gpus, run.gpu_model) for run in analysed(path).runs}
    assert {"341": (6, "P100"), "342": (1, None), "343": (2, None), "344": (0, None)} == {
        job: found[job] for job in ("341", "342", "343", "344")
    }
    assert (2, "tesla") == found["345"]
    assert None is found["346"][0], "an empty field of a site without it says nothing"


@pytest.mark.parametrize(
    ("printed_as", "mebibytes"),
    [
        ("3000Mc", 24_000),
        ("48000Mn", 96_000),
        ("2147486448Mn", 22_400),
        ("0n", 0),
        ("16G", 16_384),
        ("1.50T", 1_572_864),
    ],
)
def test_old_memory_requests_are_per_node_or_per_cpu(
    tmp_path: Path, printed_as: str, mebibytes: int
) -> None:
    """T22: 2 nodes, 8 CPUs. 2147486448 is 2800 with the bit that means per CPU."""
    path = tmp_path / "memory.psv"
    job = row("350", "TIMEOUT", "01:00:00", "01:00:00", nnodes="2", ncpus="8", reqmem=printed_as)
    path.write_text(printed([job], without=("AllocTRES",)))
    assert [mebibytes] == [run.memory for run in analysed(path, detail=True).runs]


def test_timeout_with_an_exit_code_of_one_is_timeout(tmp_path: Path) -> None:
    """T22: so Slurm printed it until 2017."""
    path = tmp_path / "exit.psv"
    path.write_text(printed([row("351", "TIMEOUT", "01:00:10", "01:00:00", exitcode="1:0")]))
    assert ["limit"] == [run.kind for run in analysed(path).runs]


# --- T23 to T25: text that was cut, broken or rewritten -------------------------------------------

WIDTHS = {"JobID": -12, "JobName": 10, "Partition": 10, "User": 9, "State": 10, "Elapsed": 10}
WIDTHS |= {"Timelimit": 10, "NNodes": 8}


def fixed_width(rows: list[Row]) -> str:
    """As sacct prints without -P or -p: what is too long is cut and gets a `+`."""
    lines = [{name: name for name in WIDTHS}, {name: "-" * 80 for name in WIDTHS}, *rows]
    text = "\n".join(
        " ".join(cut(one[name], width) for name, width in WIDTHS.items()) for one in lines
    )
    return text.replace("-+", "--") + "\n"


def cut(value: str, width: int) -> str:
    room = abs(width)
    shown = value if len(value) <= room else f"{value[: room - 1]}+"
    return shown.ljust(room) if width < 0 else shown.rjust(room)


def test_fixed_width_is_read_by_its_dashes_and_what_it_cut_is_told(tmp_path: Path) -> None:
    """T23: 2 × 7,210 s + 3,600 + 3,600 + 7,201 s = 8.0058 h in four runs; two ids stay doubtful.

    `12345.batch` and `1234567.ext+` are steps; `12348_[0-99+` is a block; of the two rows
    `123456789_1+` the one with a user is a task, the other a step of it or of another.
    """
    job = row("12345", "TIMEOUT", "02:00:10", "02:00:00", nnodes="2", jobname="align_sample_17")
    task = row("123456789_1234", "TIMEOUT", "02:00:01", "02:00:00")
    rows = [
        job,
        step("batch", "CANCELLED", job),
        step("extern", "COMPLETED", {**job, "JobID": "1234567"}),
        row("12346", "CANCELLED by 1007", "01:00:00", "02:00:00"),
        row("12347", "OUT_OF_MEMORY", "01:00:00", "02:00:00"),
        never("12348_[0-99%10]", "PENDING", "02:00:00"),
        task,
        step("batch", "CANCELLED", task),
    ]
    path = tmp_path / "fixed.txt"
    path.write_text(fixed_width(rows))
    told = analysed(path)
    assert {
        "in": 8,
        "runs": 4,
        "repaired": 0,
        "left_out": {"array blocks": 1, "steps": 2, "truncated id": 1},
    } == told.document["rows"]
    assert {"TIMEOUT": 2, "CANCELLED": 1, "OUT_OF_MEMORY": 1} == {
        state: usage["runs"] for state, usage in told.document["by_state"].items()
    }
    assert 8.0058 == told.document["totals"]["node_hours"]
    ((state, detail),) = told.check("truncated values")
    assert "warning" == state
    assert "jobid in 4 rows, state in 2 rows" in detail
    assert "sacct -P" in detail


HOSTILE = [
    "plain",
    "a|b",
    "a||||b|",
    "first line\nsecond line",
    'five " wafer',
    "tab\there",
    "caf\udce9",
]


@pytest.mark.parametrize("last", ["JobName", "SubmitLine"])
def test_names_that_break_a_row_cost_no_row(tmp_path: Path, last: str) -> None:
    """T24: seven TIMEOUT jobs of an hour, whatever their names hold, wherever the name stands."""
    rows = [
        {**row(f"36{n}", "TIMEOUT", "01:00:00", "01:00:00"), last: name}
        for n, name in enumerate(HOSTILE)
    ]
    columns = [name for name in COLUMNS if name not in ("JobName", "SubmitLine")] + [last]
    path = tmp_path / "hostile.psv"
    path.write_bytes(printed(rows, columns).encode("utf-8", "surrogateescape"))
    document = analysed(path).document
    assert (7, 7, {}) == (
        document["rows"]["in"], document["wall_ended"]["runs"], document["rows"]["left_out"],
    )  # fmt: skip
    assert 7.0 == document["wall_ended"]["node_hours"]
    assert 4 == document["rows"]["repaired"]


MANGLED = {
    "JobID": "1.23457E+07",
    "JobIDRaw": "12,345,678",
    "Elapsed": "02/01/1900 00:00",
    "Timelimit": "1:00:00 AM",
    "Start": "3/2/2026 8:00",
    "End": "46083,333333",
    "Submit": "########",
}


@pytest.mark.parametrize("column", MANGLED)
def test_a_file_that_a_spreadsheet_rewrote_is_refused(tmp_path: Path, column: str) -> None:
    """T25: the message names the line, the column, the value, and what to do instead."""
    rows = [row(f"37{n}", "COMPLETED", "01:00:00", "02:00:00") for n in range(3)]
    path = tmp_path / "sheet.csv"
    path.write_text(printed([*rows[:2], {**rows[2], column: MANGLED[column]}], delimiter=";"))
    with pytest.raises(UserError) as told:
        analysed(path)
    assert f"{path}: line 4, column {column.lower()}" in str(told.value)
    assert "spreadsheet" in str(told.value)


def test_a_task_id_is_text_and_a_semicolon_file_with_a_mark_is_read(tmp_path: Path) -> None:
    """T25: `12_3` is task 3 of array 12, not the number 123; Excel's BOM, CR LF and `;` do no harm."""
    rows = [row("12_3", "TIMEOUT", "01:00:00", "01:00:00", jobidraw="15")]
    path = tmp_path / "excel.csv"
    text = printed(rows, delimiter=";", without=("AllocTRES",)).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (run,) = analysed(path).runs
    assert ("12_3", "limit") == (run.job, run.kind)


# --- T26 to T28: clocks, ids, and rows that are not there -----------------------------------------

SPRING = row("380", "TIMEOUT", "02:00:00", "02:00:00", start="2026-03-29T01:30:00")
AUTUMN = row("381", "TIMEOUT", "04:00:00", "04:00:00", start="2026-10-25T01:30:00")
SUMMER_TIME = [{**SPRING, "End": "2026-03-29T04:30:00"}, {**AUTUMN, "End": "2026-10-25T04:30:00"}]


def test_elapsed_is_used_where_the_clock_was_changed(tmp_path: Path) -> None:
    """T26: 01:30 to 04:30 was two hours in March and four in October."""
    path = tmp_path / "clocks.psv"
    path.write_text(printed(SUMMER_TIME))
    assert [7_200, 14_400] == [run.elapsed for run in analysed(path).runs]


def test_without_elapsed_the_zone_tells_how_long_a_run_was(tmp_path: Path) -> None:
    path = tmp_path / "clocks.psv"
    path.write_text(printed(SUMMER_TIME, without=("Elapsed",)))
    assert [7_200, 14_400] == [run.elapsed for run in analysed(path, zone="Europe/Berlin").runs]
    assert [10_800, 10_800] == [run.elapsed for run in analysed(path).runs]


def test_a_job_id_given_out_again_is_another_job_and_no_repeat(told: Told) -> None:
    usage = told.usage("recycled")
    assert (2, 1.5) == (usage["runs"], usage["node_hours"])
    assert [] == told.chains("recycled")


def days(counts: list[int]) -> list[Row]:
    """So many one-hour runs on each day from 2 March on."""
    return [
        row(
            f"{day:02}{n:03}", "COMPLETED", "01:00:00", "02:00:00",
            user=f"u{n % 3}", start=later("2026-03-02T08:00:00", f"{day}-{n // 60:02}:{n % 60:02}:00"),
        )
        for day, count in enumerate(counts)
        for n in range(count)
    ]  # fmt: skip


def test_days_without_a_run_are_told(tmp_path: Path) -> None:
    """T28: of six days the fourth has none."""
    path = tmp_path / "gap.psv"
    path.write_text(printed(days([3, 3, 3, 0, 3, 3])))
    assert [("warning", "5 of 6 days have ended runs")] == analysed(path).check("days covered")


def test_a_thin_beginning_is_suspected_of_a_purge(tmp_path: Path) -> None:
    """T28: three days of one run before eighteen of ten."""
    path = tmp_path / "purged.psv"
    path.write_text(printed(days([1] * 3 + [10] * 18)))
    ((state, detail),) = analysed(path).check("purge")
    assert "warning" == state
    assert "the first 3 days" in detail
    path.write_text(printed(days([10] * 21)))
    assert [] == analysed(path).check("purge")


def test_one_user_only_is_suspected_of_private_data(tmp_path: Path) -> None:
    """T28: without -a, or under PrivateData, sacct shows the caller's own jobs."""
    path = tmp_path / "mine.psv"
    path.write_text(printed([{**one, "User": "ann"} for one in days([21])]))
    ((state, detail),) = analysed(path).check("users")
    assert ("warning", True) == (state, "one user" in detail)


def test_an_export_without_second_records_says_that_requeues_may_be_hidden(
    tmp_path: Path, told: Told
) -> None:
    """T3: without -D the TIMEOUT before a requeue is not in the file; Restarts gives it away."""
    path = tmp_path / "newest.psv"
    last = requeued()[0][1]
    path.write_text(printed([last]))
    assert [("note", True)] == [(s, "-D" in d) for s, d in analysed(path).check("requeues")]
    path.write_text(printed([{**last, "Restarts": "1"}], (*COLUMNS, "Restarts")))
    ((state, detail),) = analysed(path).check("requeues")
    assert ("warning", True) == (state, detail.startswith("1 runs were restarted"))
    ((state, _),) = told.check("requeues")
    assert "ok" == state


# --- T30: repeats ---------------------------------------------------------------------------------


def test_a_longer_limit_is_what_a_user_changes_so_limits_are_never_compared(told: Told) -> None:
    """3,610 s + 7,210 s = 3.0056 h before the run that completed."""
    (chain,) = [c for c in told.document["repeats"]["chains"] if c["user"] == "escalating"]
    assert ["230", "231", "232"] == [attempt["job"] for attempt in chain["attempts"]]
    assert [1.0, 2.0, 4.0] == [attempt["limit_hours"] for attempt in chain["attempts"]]
    assert ("probable", True, 3.0056) == (
        chain["tier"], chain["escalating"], chain["exposed_node_hours"],
    )  # fmt: skip


def repeat(job: str, state: str, start: str, **fields: str) -> Row:
    """A run of one hour at its limit, by one user, named `fold`."""
    named = {"user": "ann", "jobname": "fold", "submitline": "sbatch fold.sh"} | fields
    return row(job, state, "01:00:00", "01:00:00", start=start, **named)


LAST = row("499", "COMPLETED", "01:00:00", "02:00:00", user="zoe", start="2026-04-30T00:00:00")
CASES: dict[str, tuple[list[Row], list[tuple[str, list[str]]]]] = {
    "a later run of the same name is probable": (
        [repeat("1", "TIMEOUT", "2026-03-02T08:00:00"), repeat("2", "COMPLETED", "2026-03-02T10:00:00")],
        [("probable", ["1", "2"])],
    ),
    "one follower answers one run, the one that ended first": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T06:00:00"),
            repeat("2", "TIMEOUT", "2026-03-02T08:00:00", submit="2026-03-02T06:30:00"),
            repeat("3", "COMPLETED", "2026-03-02T10:00:00"),
        ],
        [("probable", ["1", "3"])],
    ),
    "runs side by side are a sweep": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00"),
            repeat("2", "TIMEOUT", "2026-03-02T08:30:00"),
            repeat("3", "COMPLETED", "2026-03-02T10:00:00"),
        ],
        [("ambiguous", ["1", "3"])],
    ),
    "a run submitted before the limit struck was no answer to it": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00"),
            repeat("2", "COMPLETED", "2026-03-02T10:00:00", submit="2026-03-02T08:30:00"),
        ],
        [],
    ),
    "unless it was told to wait for it": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00"),
            repeat(
                "2", "COMPLETED", "2026-03-02T10:00:00", submit="2026-03-02T08:30:00",
                submitline="sbatch --dependency=afterany:1 fold.sh",
            ),
        ],
        [("certain", ["1", "2"])],
    ),
    "what never started is no follower": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00"),
            never("2", "CANCELLED by 5", "01:00:00", user="ann", jobname="fold",
                  submit="2026-03-02T09:30:00", end="2026-03-02T09:40:00"),
        ],
        [],
    ),
    "after eight days it is other work": (
        [repeat("1", "TIMEOUT", "2026-03-02T08:00:00"), repeat("2", "COMPLETED", "2026-03-10T10:00:00")],
        [],
    ),
    "another user's run is other work": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00"),
            repeat("2", "COMPLETED", "2026-03-02T10:00:00", user="bob"),
        ],
        [],
    ),
    "a name that says nothing is ambiguous": (
        [
            repeat("1", "TIMEOUT", "2026-03-02T08:00:00", jobname="run.sh"),
            repeat("2", "COMPLETED", "2026-03-02T10:00:00", jobname="run.sh"),
        ],
        [("ambiguous", ["1", "2"])],
    ),
    "the same task of a later array is probable, another task is not": (
        [
            repeat("1_7", "TIMEOUT", "2026-03-02T08:00:00", jobidraw="11"),
            repeat("2_8", "COMPLETED", "2026-03-02T10:00:00", jobidraw="12"),
            repeat("2_7", "COMPLETED", "2026-03-02T10:00:00", jobidraw="13"),
        ],
        [("probable", ["1_7", "2_7"])],
    ),
    "only runs that ended at their limit have repeats": (
        [repeat("1", "FAILED", "2026-03-02T08:00:00"), repeat("2", "COMPLETED", "2026-03-02T10:00:00")],
        [],
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Every case with ids, and users, of its own; a last run months later ends the history."""
    path = tmp_path_factory.mktemp("repeats") / "repeats.psv"
    rows = [own(one, place) for place, (case, _) in enumerate(CASES.values()) for one in case]
    path.write_text(printed([*rows, LAST]))
    return analysed(path)


def own(one: Row, place: int) -> Row:
    """The row, with ids and user of case number `place`."""
    line = one["SubmitLine"].replace("afterany:", f"afterany:9{place:02}")
    ids = {name: f"9{place:02}{one[name]}" for name in ("JobID", "JobIDRaw")}
    return {**one, **ids, "User": f"{one['User']}{place}", "SubmitLine": line}


@pytest.mark.parametrize("claim", CASES)
def test_repeats(repeated: Told, claim: str) -> None:
    place = list(CASES).index(claim)
    expected = [(tier, [f"9{place:02}{job}" for job in jobs]) for tier, jobs in CASES[claim][1]]
    assert expected == repeated.chains(f"ann{place}")


def test_repeats_of_all_cases_add_up(repeated: Told) -> None:
    """Ten cases have runs at their limit, two of them two: twelve; FAILED has none to answer."""
    found = repeated.document["repeats"]
    assert (1, 3, 2) == (found["certain"], found["probable"], found["ambiguous"])
    assert (12, 6, 0) == (found["considered"], found["none"], found["too_recent"])
    assert {"certain": 1.0, "probable": 3.0, "ambiguous": 2.0} == found["node_hours"]
    assert {False} == {chain["escalating"] for chain in found["chains"]}, "all limits are equal"


# --- GRES, as Slurm printed it before it printed TRES ---------------------------------------------

OLD_GRES: tuple[tuple[str, int, str | None, bool], ...] = (
    ("gpu", 1, None, False),
    ("gpu:2", 2, None, False),
    ("gpu:0", 0, None, False),
    ("gpu:a100", 1, "a100", False),
    ("gpu:a100:2(S:0-1)", 2, "a100", False),
    ("gpu:a100:2(IDX:0,2),gpu:v100:1(IDX:1)", 3, "a100+v100", False),
    ("gpu:2080:4", 4, "2080", False),
    ("gpu:1g.10gb:2", 2, "1g.10gb", True),
    ("gpu:1g.10gb", 1, "1g.10gb", True),
    ("gpu:a100_3g.20gb:1", 1, "a100_3g.20gb", True),
    ("gpu:a100:1,gpu:mi250:1", 2, "a100+mi250", True),
    ("gres:gpu:a100:2", 2, "a100", False),
    ("gres/gpu:a100=2", 2, "a100", False),
    ("gres/gpu=4,gres/gpu:a100=4", 4, "a100", False),
    ("gpumem:100,gpu_mps:50", 0, None, False),
    ("shard:8,gpu:1", 1, None, False),
)
"""GRES, the GPUs and models in it, and whether some are none that an engine restores."""


@pytest.mark.parametrize("column", ["AllocGRES", "ReqGRES"])
@pytest.mark.parametrize(("gres", "gpus", "model", "unsupported"), OLD_GRES)
def test_gpus_of_gres(
    tmp_path: Path, column: str, gres: str, gpus: int, model: str | None, unsupported: bool
) -> None:
    path = tmp_path / "gres.psv"
    rows = [{**row("1", "TIMEOUT", "01:00:00", "01:00:00"), column: gres}]
    path.write_text(printed(rows, (*COLUMNS, column), without=("AllocTRES",)))
    (run,) = analysed(path).runs
    assert (gpus, model) == (run.gpus, run.gpu_model)
    assert ("gpu_not_supported" if unsupported else "addressable") == run.coverable


@pytest.mark.parametrize(("gres", "gpus"), [("gpu:a100:2", 6), ("gres/gpu:a100=6", 6)])
def test_gres_is_of_each_node_and_tres_of_the_job(tmp_path: Path, gres: str, gpus: int) -> None:
    path = tmp_path / "gres.psv"
    rows = [{**row("1", "TIMEOUT", "01:00:00", "01:00:00", nnodes="3"), "ReqGRES": gres}]
    path.write_text(printed(rows, (*COLUMNS, "ReqGRES"), without=("AllocTRES",)))
    (run,) = analysed(path).runs
    assert gpus == run.gpus


def test_gres_of_an_unknown_number_of_nodes_gives_no_number_of_gpus(tmp_path: Path) -> None:
    path = tmp_path / "gres.psv"
    rows = [{**row("1", "TIMEOUT", "01:00:00", "01:00:00"), "ReqGRES": "gpu:2"}]
    path.write_text(printed(rows, (*COLUMNS, "ReqGRES"), without=("AllocTRES", "NNodes")))
    (run,) = analysed(path).runs
    assert run.gpus is None


@pytest.mark.parametrize("model", ["1g.10gb", "a100_3g.20gb", "nvidia_a100_1g.5gb"])
def test_a_slice_of_a_gpu_is_not_supported_however_it_is_named(tmp_path: Path, model: str) -> None:
    path = tmp_path / "tres.psv"
    rows = [row("1", "TIMEOUT", "01:00:00", "01:00:00", alloctres=f"cpu=4,gres/gpu:{model}=1")]
    path.write_text(printed(rows))
    (run,) = analysed(path).runs
    assert (1, model, "gpu_not_supported") == (run.gpus, run.gpu_model, run.coverable)


# --- the same file in other clothes ---------------------------------------------------------------


def without_input(document: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in document.items() if name != "input"}


def test_delimiter_compression_and_order_of_rows_change_no_figure(
    told: Told, file: Path, tmp_path: Path
) -> None:
    header, *rows = file.read_text().splitlines()
    other = tmp_path / "other.gz"
    text = "\n".join([header, *reversed(rows), ""]).replace("|", "☃")
    other.write_bytes(gzip.compress(text.encode()))
    assert without_input(told.document) == without_input(analysed(other).document)


def test_an_hour_of_every_run_is_in_one_state_one_partition_and_one_week(told: Told) -> None:
    """The sums of each breakdown are the totals."""
    totals = told.document["totals"]
    for name, rows in told.document["breakdowns"].items():
        assert totals["runs"] == sum(one["runs"] for one in rows), name
        assert totals["node_hours"] == pytest.approx(sum(one["node_hours"] for one in rows)), name
    assert totals["runs"] == sum(u["runs"] for u in told.document["by_state"].values())
    assert totals["runs"] == len(told.runs)


def test_every_run_has_hours(told: Told) -> None:
    def has_none(run: Run) -> bool:
        return run.node_seconds is None

    assert [] == [run.job for run in told.runs if has_none(run)]


def test_a_dependency_on_the_first_run_of_a_file_is_one(tmp_path: Path) -> None:
    told_to_wait = repeat(
        "2", "COMPLETED", "2026-03-02T10:00:00", submit="2026-03-02T08:30:00",
        submitline="sbatch --dependency=afterany:1 fold.sh",
    )  # fmt: skip
    rows = [repeat("1", "TIMEOUT", "2026-03-02T08:00:00"), told_to_wait]
    for order in (rows, rows[::-1]):
        path = tmp_path / "two.psv"
        path.write_text(printed(order))
        assert 1 == analysed(path).document["repeats"]["certain"]
