"""The example export: the same bytes each time, believable, and in step with its own truth.

The recount here splits the printed file by hand and shares no code with the generator's truth.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "make_example.py"
ROW = re.compile(r"\d+(?:_\d+|_\[[^|]*\]|\+\d+)?(?:\.\w+)?\|\d+(?:\.\w+)?\|heron\|")
NEVER_RAN = ("None", "Unknown")
Row = dict[str, str]


@cache
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_example", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_example"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=[7, 1])
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def text(seed: int, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("example") / "sacct.psv"
    example().write(path, seed)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def logical(text: str) -> list[str]:
    """The rows after the header, with a name's newline put back into its row."""
    rows: list[str] = []
    for line in text.removesuffix("\n").split("\n")[1:]:
        if ROW.match(line):
            rows.append(line)
        else:
            rows[-1] += "\n" + line
    return rows


@pytest.fixture(scope="module")
def table(text: str, logical: list[str]) -> list[Row]:
    """The columns before the free text, which a delimiter in a name cannot reach."""
    names = text.partition("\n")[0].split("|")
    assert names.index("WorkDir") == 26
    return [dict(zip(names[:26], row.split("|")[:26], strict=True)) for row in logical]


@pytest.fixture(scope="module")
def jobs(table: list[Row]) -> list[Row]:
    return [row for row in table if "." not in row["JobID"]]


@pytest.fixture(scope="module")
def ended(jobs: list[Row]) -> list[Row]:
    return [row for row in jobs if row["Start"] not in NEVER_RAN and row["End"] != "Unknown"]


def seconds(stamp: str) -> int:
    return int(datetime.strptime(stamp + "Z", "%Y-%m-%dT%H:%M:%S%z").timestamp())


def gpus(row: Row) -> int:
    match = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
    return int(match[1]) if match else 0


def run_of(row: Row) -> str:
    """Components of a het job and the records of a resized job are one run."""
    if "+" in row["JobID"]:
        return row["JobID"].split("+")[0]
    return row["JobID"] if row["State"] == "RESIZING" else f"{row['JobIDRaw']} {row['Submit']}"


def recount(rows: Iterable[Row]) -> dict[str, Any]:
    hours = [(row, int(row["NNodes"]) * int(row["ElapsedRaw"]) / 3600) for row in rows]
    return {
        "runs": len({run_of(row) for row, _ in hours if row["State"] != "RESIZING"}),
        "records": len(hours),
        "node_hours": pytest.approx(sum(h for _, h in hours)),
        "cpu_hours": pytest.approx(
            sum(int(row["NCPUS"]) * int(row["ElapsedRaw"]) / 3600 for row, _ in hours)
        ),
        "gpu_hours": pytest.approx(
            sum(gpus(row) * int(row["ElapsedRaw"]) / 3600 for row, _ in hours)
        ),
    }


def test_same_seed_gives_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    outputs = []
    for hash_seed in ("1", "2"):
        out, nodes = tmp_path / f"{hash_seed}.psv", tmp_path / f"{hash_seed}.csv"
        subprocess.run(
            [sys.executable, SCRIPT, out, "--days", "12", "--nodes", nodes],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        outputs.append((out.read_bytes(), nodes.read_bytes()))
    assert outputs[0] == outputs[1]
    example().write(tmp_path / "third.psv", 7, 12)
    assert outputs[0][0] == (tmp_path / "third.psv").read_bytes()


def test_another_seed_gives_another_file(tmp_path: Path) -> None:
    for seed in (1, 2):
        example().write(tmp_path / str(seed), seed, 5)
    assert (tmp_path / "1").read_bytes() != (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("days", [1, 2, 9, 30])
def test_any_length_is_consistent_with_its_truth(days: int, tmp_path: Path) -> None:
    example().write(tmp_path / "out", 3, days)
    truth = example().truth(3, days)
    text = (tmp_path / "out").read_text(encoding="utf-8")
    assert truth["rows"] == sum(bool(ROW.match(line)) for line in text.split("\n"))
    assert truth["rows"] == truth["ended_records"] + sum(truth["left_out"].values())


def test_size_fits_a_repository_and_a_demonstration(text: str, logical: list[str]) -> None:
    assert 15_000 <= len(logical) <= 25_000
    assert len(text.encode()) < 6_000_000


def test_every_row_but_the_hostile_ones_has_all_fields(
    seed: int, text: str, logical: list[str]
) -> None:
    width = text.partition("\n")[0].count("|")
    wrong = [row for row in logical if row.count("|") != width or "\n" in row]
    assert example().truth(seed)["malformed_rows"] == len(wrong) == 3
    assert all(row.count("|") >= width for row in logical)


def test_truth_agrees_with_a_recount_of_the_file(
    seed: int, table: list[Row], jobs: list[Row], ended: list[Row]
) -> None:
    truth = example().truth(seed)
    assert truth["rows"] == len(table)
    assert truth["ended_records"] == len(ended)
    assert truth["left_out"] == {
        "step": len(table) - len(jobs),
        "pending": sum(row["State"] == "PENDING" for row in jobs),
        "running": sum(row["State"] == "RUNNING" for row in jobs),
        "never started": sum(row["Start"] == "None" for row in jobs),
    }
    assert truth["total"] == recount(ended)
    repeated = Counter(row["JobIDRaw"] for row in jobs if row["State"] != "RESIZING")
    assert truth["repeated_ids"] == sum(count > 1 for count in repeated.values())


def test_truth_agrees_with_a_recount_by_state(seed: int, ended: list[Row]) -> None:
    resized = {row["JobID"] for row in ended if row["State"] == "RESIZING"}
    by_state = defaultdict(list)
    for row in ended:
        state = row["State"].split()[0]
        by_state["COMPLETED" if row["JobID"] in resized else state].append(row)
    assert example().truth(seed)["by_state"] == {s: recount(r) for s, r in by_state.items()}


def test_truth_agrees_with_a_recount_of_walls(
    seed: int, logical: list[str], table: list[Row], ended: list[Row]
) -> None:
    truth = example().truth(seed)
    stopped = [row for row in ended if row["State"] == "TIMEOUT"]
    walled = [row for row in stopped if int(row["ElapsedRaw"]) >= 60 * int(row["TimelimitRaw"])]
    assert truth["timeout_at_wall"] == recount(walled)
    assert truth["timeout_before_wall"] == recount(row for row in stopped if row not in walled)
    names = {row["JobID"]: line for row, line in zip(table, logical, strict=True)}
    sitting = re.compile(r"\|(bash|interactive|sys/dashboard/sys/jupyter)$")
    sessions = [row for row in walled if sitting.search(names[row["JobID"]])]
    assert truth["timeout_at_wall_sessions"] == recount(sessions)


def test_walls_are_few_jobs_and_many_node_hours(seed: int) -> None:
    truth = example().truth(seed)
    walls, total = truth["timeout_at_wall"], truth["total"]
    assert 0.04 <= walls["runs"] / total["runs"] <= 0.075
    assert 0.20 <= walls["node_hours"] / total["node_hours"] <= 0.35


def test_a_timeout_runs_at_most_half_a_minute_over_its_limit(ended: list[Row]) -> None:
    over = [
        int(row["ElapsedRaw"]) - 60 * int(row["TimelimitRaw"])
        for row in ended
        if row["State"] == "TIMEOUT" and not row["Reservation"]
    ]
    assert min(over) >= 1
    assert max(over) <= 28


def test_times_agree_with_each_other(table: list[Row]) -> None:
    for row in table:
        if row["Start"] in NEVER_RAN:
            assert (row["Elapsed"], row["NCPUS"], row["AllocTRES"]) == ("00:00:00", "0", "")
        elif row["End"] != "Unknown":
            assert int(row["ElapsedRaw"]) == seconds(row["End"]) - seconds(row["Start"]) > 0
            assert row["Submit"] <= row["Eligible"] <= row["Start"]


def test_a_record_key_is_never_used_twice(jobs: list[Row]) -> None:
    keys = Counter((row["JobIDRaw"], row["Submit"], row["Start"]) for row in jobs)
    assert max(keys.values()) == 1


def test_steps_of_a_timeout_do_not_say_timeout(table: list[Row]) -> None:
    steps: dict[str, Row] = {}
    stopped: list[str] = []
    for row in table:
        if "." not in row["JobID"]:
            current = f"{row['JobID']} {row['Submit']}"
            if row["State"] == "TIMEOUT":
                stopped.append(current)
        else:
            steps[f"{current}.{row['JobID'].partition('.')[2]}"] = row
    states = Counter(
        (kind, step["State"], step["ExitCode"])
        for job in stopped
        for kind in ("batch", "interactive", "extern", "0")
        if (step := steps.get(f"{job}.{kind}"))
    )
    assert set(states) == {
        ("batch", "CANCELLED", "0:15"),
        ("interactive", "CANCELLED", "0:9"),
        ("extern", "COMPLETED", "0:0"),
        ("0", "CANCELLED", "0:15"),
    }


def test_no_node_holds_more_than_it_has(ended: list[Row], tmp_path: Path) -> None:
    example().write_nodes(tmp_path / "nodes.csv")
    lines = (tmp_path / "nodes.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "node,cpus,memory_mb,gpus"
    sizes = {name: [int(v) for v in values] for name, *values in (x.split(",") for x in lines[1:])}
    changes = defaultdict(list)
    for row in ended:
        share = int(row["NNodes"])
        held = [int(row["NCPUS"]), int(row["ReqMem"].removesuffix("M")), gpus(row)]
        for name in expand(row["NodeList"]):
            changes[name].append((seconds(row["End"]), [-value // share for value in held]))
            changes[name].append((seconds(row["Start"]), [value // share for value in held]))
    assert set(changes) <= set(sizes)
    for name, events in changes.items():
        level = [0, 0, 0]
        for _, step in sorted(events):
            level = [a + b for a, b in zip(level, step, strict=True)]
            assert all(a <= b for a, b in zip(level, sizes[name], strict=True)), name


def expand(nodelist: str) -> list[str]:
    if "[" not in nodelist:
        return [nodelist]
    prefix, _, inner = nodelist.removesuffix("]").partition("[")
    names = []
    for span in inner.split(","):
        first, _, last = span.partition("-")
        names += [f"{prefix}{i:03d}" for i in range(int(first), int(last or first) + 1)]
    return names


def test_node_lists_have_as_many_names_as_nnodes_says(ended: list[Row]) -> None:
    assert all(len(expand(row["NodeList"])) == int(row["NNodes"]) for row in ended)


def test_a_dependency_names_an_earlier_job_that_ended_when_the_job_became_eligible(
    logical: list[str], table: list[Row], jobs: list[Row]
) -> None:
    newest = {row["JobID"]: row["End"] for row in reversed(jobs)}
    found = 0
    for row, line in zip(table, logical, strict=True):
        match = re.search(r"--dependency=afterany:(\d+)", line)
        if match and row["Eligible"] != "Unknown" and match[1] in newest:
            assert int(match[1]) < int(row["JobIDRaw"])
            assert newest[match[1]] == row["Eligible"]
            found += 1
    assert found > 20


def test_the_wrong_array_gives_forty_timeouts(logical: list[str]) -> None:
    tasks = [r for r in logical if r.endswith("|sweep_kappa") and "|TIMEOUT|" in r]
    assert len(tasks) == 40
    assert len({row.split("_")[0] for row in tasks}) == 1


def test_the_reservation_ends_fifteen_jobs_in_one_minute(ended: list[Row]) -> None:
    inside = [row for row in ended if row["Reservation"]]
    assert len(inside) == 15
    assert {row["State"] for row in inside} == {"TIMEOUT"}
    assert len({row["End"] for row in inside}) == 1
    assert all(0 < int(r["ElapsedRaw"]) < 30 * int(r["TimelimitRaw"]) for r in inside)


def test_limits_escalate_for_the_same_work(logical: list[str]) -> None:
    limits = defaultdict(list)
    for row in logical:
        cells = row.split("|")
        if cells[-1].startswith("hessian_"):
            limits[cells[3], cells[-1], cells[26]].append(cells[16])
    assert sum(chain == ["08:00:00", "1-00:00:00", "3-00:00:00"] for chain in limits.values()) >= 4


def test_requeued_jobs_keep_their_id_and_get_a_later_submit(jobs: list[Row]) -> None:
    records = defaultdict(list)
    for row in jobs:
        records[row["JobIDRaw"]].append(row)
    interrupted = Counter(
        older["State"]
        for group in records.values()
        for newer, older in pairwise(group)
        if newer["Submit"] > older["End"]
    )
    assert {"REQUEUED", "PREEMPTED", "TIMEOUT", "NODE_FAIL"} <= set(interrupted)


def test_every_shape_of_row_is_there(text: str, jobs: list[Row]) -> None:
    ids = [row["JobID"] for row in jobs]
    assert sum(i.endswith("+0") for i in ids) == sum(i.endswith("+1") for i in ids) == 2
    assert sum("_[" in i for i in ids) == 1
    states = {row["State"].split()[0] for row in jobs}
    assert states == {
        "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REQUEUED", "RESIZING", "RUNNING", "PENDING",
    }  # fmt: skip
    assert "|Partition_Limit|Partition_Limit|" in text
    for name in ("fold|3|lr=1e-3\n", "|post\nprocess\n", '<script>alert("x")</script>', "Übergang"):
        assert name in text


def test_a_resize_starts_where_the_larger_part_ended(jobs: list[Row]) -> None:
    (before,) = [row for row in jobs if row["State"] == "RESIZING"]
    after, _ = [row for row in jobs if row["JobIDRaw"] == before["JobIDRaw"]]
    assert before["End"] == after["Start"] == after["Submit"]
    assert (before["NNodes"], after["NNodes"]) == ("4", "2")


def test_days_are_covered_and_nothing_ends_outside(ended: list[Row]) -> None:
    days = {row["End"][:10] for row in ended}
    first = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    expected = {datetime.fromtimestamp(first + 86400 * i, UTC).strftime("%F") for i in range(90)}
    assert days <= expected
    assert len(days) >= 89


def test_a_few_users_use_most(ended: list[Row]) -> None:
    used: Counter[str] = Counter()
    for row in ended:
        used[row["User"]] += int(row["NNodes"]) * int(row["ElapsedRaw"])
    assert 55 <= len(used) <= 60
    assert 0.35 <= sum(v for _, v in used.most_common(6)) / used.total() <= 0.75
