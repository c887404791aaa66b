"""Published files of real clusters, against figures computed without this program.

The files are not part of the project; where they are not beside it, these tests are skipped.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from traps import Told, analysed

FOLDER = Path(__file__).parent.parent.parent / "shared" / "data" / "sacct"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"needs the public files in {FOLDER}")

XDMOD = tuple(
    "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end "
    "elapsed exitcode state nnodes ncpus reqcpus reqmem reqtres alloctres timelimit nodelist "
    "jobname".split()
)
WITH_GRES = tuple(
    "jobid jobidraw cluster partition account group gid user uid submit eligible start end elapsed "
    "exitcode state nnodes ncpus reqcpus reqmem reqgres reqtres alloctres timelimit nodelist "
    "jobname".split()
)
SNOWMAN = tuple(
    "jobid jobname user partition nodelist nnodes ncpus ntasks state submit start end timelimit "
    "elapsed totalcpu usercpu systemcpu reqmem a b c d e f g h i".split()
)
POZIDRIV, PHILLIPS = "01_xdmod_pozidriv.psv", "02_xdmod_phillips_gpu.psv"
COLUMNS = {
    POZIDRIV: XDMOD,
    PHILLIPS: XDMOD,
    "05_tdhock_dcast_agg_steps_arrays.psv": (),
    "06_tdhock_unrecognized_unit.psv": (),
    "07_tdhock_manyfields_cedar.psv": (),
    "10_tdhock_multistep.psv": (),
    "11_tdhock_pending_array.psv": (),
    "12_rug_snowman_delimiter.txt": SNOWMAN,
    "20_xdmod_job_arrays.psv": XDMOD,
    "21_xdmod_utf8.psv": XDMOD,
    "22_slurm2sql_aalto.psv": (),
    "23_xdmod_gpu_gres.psv": WITH_GRES,
    "26_xdmod_accounting.psv": XDMOD,
}


@functools.cache
def told(name: str) -> Told:
    (full,) = (one for one in COLUMNS if one.startswith(name))
    return analysed(FOLDER / full, columns=COLUMNS[full])


def rows(name: str) -> dict[str, Any]:
    found: dict[str, Any] = told(name).document["rows"]
    return found


def runs_by_state(name: str) -> dict[str, int]:
    return {state: usage["runs"] for state, usage in told(name).document["by_state"].items()}


def test_every_file_of_the_folder_is_tried() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.suffix in (".psv", ".txt")}
    assert there == set(COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_row_is_accounted_for(name: str) -> None:
    """A row for each line that is no header; records that became runs, and reasons, add up."""
    header = not COLUMNS[name]
    lines = (FOLDER / name).read_bytes().count(b"\n") - header
    ends_without_newline = not (FOLDER / name).read_bytes().endswith(b"\n")
    assert lines + ends_without_newline == rows(name)["in"]
    assert rows(name)["in"] == rows(name)["runs"] + sum(rows(name)["left_out"].values())
    assert told(name).document["totals"]["runs"] <= rows(name)["runs"]
    assert (0, [], []) == (
        rows(name)["repaired"], told(name).document["repairs"], told(name).document["unreadable"],
    )  # fmt: skip


# --- 01 and 02: three days of two clusters --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "records", "timeouts", "timeout_hours", "node_hours", "gpu_hours"),
    [
        (POZIDRIV, 11_704, 9, 632.05, 6_922.88, 0.0),
        (PHILLIPS, 4_285, 1, 960.06, 1_344.87, 506.91),
    ],
)
def test_sums_are_those_computed_elsewhere(
    name: str,
    records: int,
    timeouts: int,
    timeout_hours: float,
    node_hours: float,
    gpu_hours: float,
) -> None:
    document = told(name).document
    assert records == document["rows"]["in"]
    assert timeouts == document["by_state"]["TIMEOUT"]["runs"]
    assert timeout_hours == round(document["by_state"]["TIMEOUT"]["node_hours"], 2)
    assert node_hours == round(document["totals"]["node_hours"], 2)
    assert gpu_hours == round(document["totals"]["gpu_hours"], 2)


@pytest.mark.parametrize(
    ("name", "states", "cancelled"),
    [
        (POZIDRIV, {"COMPLETED": 10_134, "FAILED": 1_007, "PREEMPTED": 86, "TIMEOUT": 9}, 468),
        (PHILLIPS, {"COMPLETED": 2_324, "FAILED": 1_717, "TIMEOUT": 1}, 243),
    ],
)
def test_states_are_those_counted_elsewhere(
    name: str, states: dict[str, int], cancelled: int
) -> None:
    """What never started was cancelled: those records and the runs are all CANCELLED records."""
    found = runs_by_state(name)
    assert cancelled == found.pop("CANCELLED") + rows(name)["left_out"]["never started"]
    assert states == found


@pytest.mark.parametrize(("name", "share"), [(POZIDRIV, 0.0913), (PHILLIPS, 0.7139)])
def test_every_timeout_is_the_limit_and_shares_differ_between_number_and_hours(
    name: str, share: float
) -> None:
    """9 of 11,285 runs had 632.05 of 6,922.88 h; 1 of 4,046 had 960.06 of 1,344.87."""
    wall = told(name).document["wall_ended"]
    assert wall["runs"] == wall["by_kind"]["limit"]["runs"]
    assert share == round(wall["share_of_node_hours"], 4)
    assert wall["share_of_runs"] < 0.001


def test_the_escalation_of_one_user_is_a_chain_and_siblings_of_a_campaign_are_not() -> None:
    """8 h and 1 d ended at the limit, 3 d completed: 8:00:16 + 24:00:26 are exposed.

    The other seven TIMEOUTs have only siblings that were cancelled while pending.
    """
    found = told(POZIDRIV).document["repeats"]
    assert (0, 2, 0, 7) == tuple(found[n] for n in ("certain", "probable", "ambiguous", "none"))
    (chain,) = found["chains"]
    assert ["1007588", "1012029", "1019945"] == [one["job"] for one in chain["attempts"]]
    assert [8.0, 24.0, 72.0] == [one["limit_hours"] for one in chain["attempts"]]
    assert ["TIMEOUT", "TIMEOUT", "COMPLETED"] == [one["state"] for one in chain["attempts"]]
    assert ("probable", True, 32.0117) == (
        chain["tier"], chain["escalating"], chain["exposed_node_hours"],
    )  # fmt: skip
    assert 0 < found["false_match_rate"] < 0.12
    assert found["completed_tested"] > 9_000


def test_one_run_can_be_most_of_a_cluster() -> None:
    """Eight nodes for five days and 26 s; without its user nothing is wall-ended."""
    wall = told(PHILLIPS).document["wall_ended"]
    assert ("chaff", 1.0) == (
        wall["top_user"]["user"], wall["top_user"]["share_of_node_hours"],
    )  # fmt: skip
    assert 0 == wall["without_top_user"]["runs"]
    assert 1 == wall["not_addressable"]["several_nodes"]["runs"]
    (run,) = wall["largest_runs"]
    assert ("165381", 8, 120.0, 120.0072) == (
        run["job"], run["nodes"], run["limit_hours"], run["elapsed_hours"],
    )  # fmt: skip


# --- files with little in them --------------------------------------------------------------------


def test_steps_arrays_and_a_pending_block_without_most_columns() -> None:
    """05: 2,981 + 1,882 allocations ended; hours, users and limits are not in the file."""
    assert {"array blocks": 1, "running": 2_080, "steps": 13_886} == rows("05")["left_out"]
    assert {"FAILED": 2_981, "OUT_OF_MEMORY": 1_882} == runs_by_state("05")
    document = told("05").document
    unknown = {name for name, value in document["totals"].items() if value == "unknown"}
    assert unknown == set(document["totals"]) - {"runs"}
    assert {"unknown"} == {document["breakdowns"][n] for n in ("partition", "user", "limit_band")}
    assert "unknown" == document["repeats"]["certain"]


def test_arrays_with_memory_without_a_unit() -> None:
    """06: of 396 tasks 191 had completed; all else are steps."""
    assert {"running": 205, "steps": 587} == rows("06")["left_out"]
    assert {"COMPLETED": 191} == runs_by_state("06")


def test_the_steps_of_a_timeout_say_cancelled_and_completed_and_count_for_nothing() -> None:
    """07: one job of 1:00:29 on one CPU; its limit is not among the fields."""
    assert {"steps": 2} == rows("07")["left_out"]
    assert {"TIMEOUT": 1} == runs_by_state("07")
    wall = told("07").document["wall_ended"]
    assert (1, 1.0081) == (wall["by_kind"]["limit_unknown"]["runs"], wall["cpu_hours"])


def test_nothing_that_ended_gives_no_run() -> None:
    """10 and 11: everything runs or waits."""
    assert {"array blocks": 1, "running": 75, "steps": 150} == rows("10")["left_out"]
    assert {"array blocks": 1} == rows("11")["left_out"]


def test_a_snowman_for_a_delimiter_and_one_at_the_end() -> None:
    """12: ten jobs that ended, each printed twice under other names, seven running ones also."""
    assert "'☃'" in told("12").document["input"][0]["dialect"]
    assert {"older copies": 10, "pending": 3, "running": 14, "steps": 48} == rows("12")["left_out"]
    assert {"COMPLETED": 9, "FAILED": 1} == runs_by_state("12")
    assert 276.9425 == told("12").document["totals"]["node_hours"]


def test_blocks_of_tasks_are_not_multiplied() -> None:
    """20: one task of 32 nodes × 72 h; five blocks that other readers count 22 times."""
    assert {"array blocks": 5} == rows("20")["left_out"]
    assert 32 * 72.0 == told("20").document["wall_ended"]["node_hours"]


def test_names_beyond_ascii() -> None:
    """21: `aàb`, at its limit of three days, with the exit code 1:0 of its time."""
    assert (1, 72.0) == (
        told("21").document["wall_ended"]["runs"], told("21").document["totals"]["node_hours"],
    )  # fmt: skip


def test_an_export_of_2019_with_units_and_an_unknown_end() -> None:
    """22: 3:33:25 and 17 s, the second with neither End nor a step that ended."""
    assert {"steps": 3} == rows("22")["left_out"]
    assert {"CANCELLED": 2} == runs_by_state("22")
    assert 3.5617 == told("22").document["totals"]["node_hours"]


def test_old_gres_beside_allocated_tres(tmp_path: Path) -> None:
    """23: every row has the same id; given ids of their own they have what AllocTRES says."""
    lines = (FOLDER / "23_xdmod_gpu_gres.psv").read_text().splitlines()
    path = tmp_path / "own-ids.psv"
    path.write_text("".join(f"{n:02}|{n}|{line[4:]}\n" for n, line in enumerate(lines, 10)))
    gpus = [run.gpus for run in analysed(path, columns=WITH_GRES).runs]
    assert [0, 1, 2, 16, 20, 128, 0, 1, 2, 32, 4, 4, 4, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2] == gpus
    assert {"identical copies": 3, "older copies": 20} == rows("23")["left_out"]


def test_an_exit_code_of_one_and_an_eligible_time_that_is_unknown() -> None:
    """26: 32 nodes × 72 h TIMEOUT, 3 × 70:03:04, 4 × 14:00:49, and none for no time."""
    document = told("26").document
    assert {"CANCELLED": 210.1533, "COMPLETED": 56.0544, "TIMEOUT": 2_304.0} == {
        state: usage["node_hours"] for state, usage in document["by_state"].items()
    }
    assert 1 == document["wall_ended"]["by_kind"]["limit"]["runs"]
