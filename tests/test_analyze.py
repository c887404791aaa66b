"""The command `cedana-poc analyze`: its options, its outputs, and that they say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sample_analysis
from command_line import PROGRAM, cedana_poc, environment, process
from jsonschema import Draft202012Validator
from test_golden import COLUMNS as PUBLIC
from test_golden import FOLDER
from test_traps import TRAPS
from traps import Row, analysed, never, printed, row, step

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import make_example  # noqa: E402

Document = dict[str, Any]


def document(*arguments: str | Path) -> Document:
    """What `--json -` prints, which is all there is."""
    ended = cedana_poc("analyze", *arguments, "--json", "-")
    assert (0, "") == (ended.code, ended.err)
    found: Document = json.loads(ended.out)
    return found


def figure(found: Document, path: str) -> Any:
    """The value at `totals.users`, say."""
    value: Any = found
    for name in path.split("."):
        value = value[name]
    return value


# --- a small history ------------------------------------------------------------------------------


def history() -> list[Row]:
    """Four users on two partitions in two weeks; ann's second run answers her first.

    Ends: 1 on 2 March 10:00, 2 on 2 March 14:00, 3 on 4 March 08:00 (gpu), 4 on 9 March 12:00.
    """
    fold = {"user": "ann", "jobname": "fold", "submitline": "sbatch fold.sh"}
    first = row("1", "TIMEOUT", "02:00:00", "02:00:00", start="2026-03-02T08:00:00", **fold)
    return [
        first,
        step("batch", "CANCELLED", first),
        row("2", "COMPLETED", "03:00:00", "04:00:00", start="2026-03-02T11:00:00", **fold),
        row(
            "3", "TIMEOUT", "1-00:00:00", "1-00:00:00", start="2026-03-03T08:00:00", user="bob",
            partition="gpu", nnodes="2", alloctres="billing=40,cpu=4,gres/gpu:a100=8,gres/gpu=8",
        ),
        row("4", "FAILED", "04:00:00", "1-00:00:00", start="2026-03-09T08:00:00", user="cem"),
        never("5", "CANCELLED by 9", "01:00:00", user="dan", end="2026-03-09T08:00:00"),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "sacct.psv"
    path.write_text(printed(history()))
    return path


@pytest.fixture(scope="session")
def whole(file: Path) -> Document:
    return document(file)


# --- what is printed and written ------------------------------------------------------------------


def test_json_to_a_file_is_what_the_dash_prints_beside_a_summary(
    file: Path, whole: Document, tmp_path: Path
) -> None:
    out = tmp_path / "analysis.json"
    ended = cedana_poc("analyze", file, "--json", out)
    assert (0, "") == (ended.code, ended.err)
    assert whole == json.loads(out.read_text())
    assert "2 of 4 runs that ended" in ended.out
    assert "50 of 57 node-hours" in ended.out


def test_all_outputs_at_once_hold_no_name_of_a_user(file: Path, tmp_path: Path) -> None:
    outputs = {name: tmp_path / name for name in ("json", "html", "data")}
    options = [text for name, path in outputs.items() for text in (f"--{name}", path)]
    ended = cedana_poc("analyze", file, *options)
    assert 0 == ended.code
    texts = [ended.out, *(p.read_text() for p in tmp_path.rglob("*") if p.is_file())]
    assert len(texts) > 5
    pseudonym = json.loads(outputs["json"].read_text())["wall_ended"]["top_user"]["user"]
    assert pseudonym.startswith("user-")
    assert [name for name in ("ann", "bob", "cem") for t in texts if f'"{name}"' in t] == []
    assert "bob" not in ended.out + outputs["html"].read_text()
    assert pseudonym in outputs["html"].read_text()


def test_names_are_shown_on_request(file: Path) -> None:
    found = document(file, "--names")
    assert "names" == found["options"]["users"]
    assert "bob" == found["wall_ended"]["top_user"]["user"]
    assert ["bob", "ann", "cem"] == [one["value"] for one in found["breakdowns"]["user"]]


def test_pseudonyms_stay_with_their_key(file: Path, whole: Document, tmp_path: Path) -> None:
    def top(key: str) -> str:
        found = document(file, "--pseudonym-key", tmp_path / key)
        return str(found["wall_ended"]["top_user"]["user"])

    assert top("key") == top("key")
    assert top("key") != top("other")
    assert (
        whole["wall_ended"]["top_user"]["user"] == document(file)["wall_ended"]["top_user"]["user"]
    )


def test_equal_inputs_and_options_give_equal_bytes_anywhere(file: Path, tmp_path: Path) -> None:
    """Twice, in processes that differ in hash seed, time zone, language and folder."""
    outputs = []
    for place, changed in (
        ("a", {"PYTHONHASHSEED": "1", "TZ": "Pacific/Auckland", "LC_ALL": "C"}),
        ("b", {"PYTHONHASHSEED": "2", "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}),
    ):
        folder = tmp_path / place
        folder.mkdir()
        files = [folder / "out.json", folder / "out.html"]
        ended = subprocess.run(
            [*PROGRAM, "analyze", str(file), "--json", files[0].name, "--html", files[1].name],
            capture_output=True, env=environment(**changed), cwd=folder,
        )  # fmt: skip
        assert (0, b"") == (ended.returncode, ended.stderr)
        outputs.append([one.read_bytes() for one in files])
    assert outputs[0] == outputs[1]


def test_files_in_another_order_give_the_same_figures(tmp_path: Path) -> None:
    """Three files that overlap: every row is in two of them."""
    rows = [one for trap in TRAPS for one in trap()[0]]
    files = []
    for name, part in (("a", rows[:60]), ("b", rows[30:]), ("c", rows[:30] + rows[60:])):
        files.append(tmp_path / name)
        files[-1].write_text(printed(part))
    a, b, c = files
    found, other = document(a, b, c), document(c, a, b)
    assert found["input"] != other["input"]
    assert {**found, "input": 0} == {**other, "input": 0}


def test_top_bounds_the_tables_and_merges_the_other_users(file: Path) -> None:
    found = document(file, "--top", "1", "--names")
    assert 1 == len(found["wall_ended"]["largest_runs"])
    assert 1 == len(found["concentration"])
    assert ["bob", "other users (2)"] == [one["value"] for one in found["breakdowns"]["user"]]
    assert [1, 3] == [one["runs"] for one in found["breakdowns"]["user"]]


def test_standard_input_is_a_file(file: Path, whole: Document) -> None:
    with file.open("rb") as stream:
        ended = subprocess.run(
            [*PROGRAM, "analyze", "-", "--json", "-"], stdin=stream, capture_output=True,
            env=environment(),
        )  # fmt: skip
    found = json.loads(ended.stdout)
    assert "-" == found["input"][0]["path"]
    assert whole["input"][0]["sha256"] == found["input"][0]["sha256"]
    assert {**whole, "input": 0} == {**found, "input": 0}


def test_a_reader_that_closes_early_makes_no_traceback(file: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "analyze", str(file), "--json", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    ) as running:  # fmt: skip
        assert running.stdout and running.stderr
        running.stdout.close()
        told = running.stderr.read().decode()
    assert "Traceback" not in told


def test_nothing_that_ended_is_rendered_with_zero_runs(tmp_path: Path) -> None:
    """No error: the account of rows says where they went."""
    path = tmp_path / "running.psv"
    path.write_text(printed([row("1", "RUNNING", "02:00:00", "02:00:00", end="Unknown")]))
    ended = cedana_poc("analyze", path, "--json", tmp_path / "out.json")
    assert 0 == ended.code
    assert 0 == json.loads((tmp_path / "out.json").read_text())["totals"]["runs"]


# --- which runs count -----------------------------------------------------------------------------


def jobs(found: Document) -> tuple[int, dict[str, int]]:
    return found["totals"]["runs"], found["rows"]["left_out"]


def test_since_is_the_first_end_that_counts_and_until_the_first_that_does_not(file: Path) -> None:
    left = {"steps": 1, "never started": 1}
    assert (4, left) == jobs(document(file))
    found = document(file, "--since", "2026-03-02T14:00", "--until", "2026-03-09T12:00:00")
    assert (2, {**left, "before --since": 1, "after --until": 1}) == jobs(found)
    assert (2, {**left, "after --until": 2}) == jobs(document(file, "--until", "2026-03-03"))
    assert (1, {**left, "before --since": 3}) == jobs(document(file, "--since", "2026-03-05"))


def test_dates_are_read_in_the_zone_of_the_input(tmp_path: Path) -> None:
    """1772667000 is 4 March 23:30 in UTC and 5 March 00:30 in Berlin."""
    job = row("1", "TIMEOUT", "01:00:00", "01:00:00")
    stamps = {"Submit": "1772663400", "Start": "1772663400", "End": "1772667000"}
    path = tmp_path / "epoch.psv"
    path.write_text(printed([{**job, **stamps}]))
    berlin = document(path, "--since", "2026-03-05", "--timezone", "Europe/Berlin")
    assert (1, {}) == jobs(berlin)
    assert "2026-03-05T00:30:00+01:00" == berlin["window"]["first_end"]
    ended = cedana_poc("analyze", path, "--since", "2026-03-05", "--json", "-", "--timezone", "UTC")
    assert {"before --since": 1} == json.loads(ended.out)["rows"]["left_out"]


def test_partitions_add_up_and_are_named_among_the_options(file: Path) -> None:
    left = {"steps": 1, "never started": 1}
    found = document(file, "--partition", "gpu")
    assert (1, {**left, "other partition": 3}) == jobs(found)
    assert ["gpu"] == found["options"]["partitions"]
    assert (4, left) == jobs(document(file, "--partition", "gpu", "--partition", "cpu"))
    listed = document(file, "--partition", "gpu, cpu")
    assert (4, left) == jobs(listed)
    assert ["gpu", "cpu"] == listed["options"]["partitions"]


# --- node sizes -----------------------------------------------------------------------------------

NODES = "node,cpus,memory_mb,gpus\ncn[001-004],8,32768,0\ngn1,16,65536,4\n"


def placed() -> list[Row]:
    """Four runs, by the largest share of CPUs, memory and GPUs.

    1: 4 of 8 CPUs, 8 of 32 GB, 2 h:                         0.5  × 1 × 2 = 1 h, at its limit
    2: 4 of 16 CPUs, 48 of 64 GB of two nodes, 4 h:          0.75 × 2 × 4 = 6 h
    3: 2 of 16 CPUs, 8 of 64 GB, 3 of 4 GPUs, 8 h:           0.75 × 1 × 8 = 6 h, at its limit
    4: 16 of 8 CPUs (two threads of each were counted), 1 h: 1    × 1 × 1 = 1 h
    """
    return [
        row("1", "TIMEOUT", "02:00:00", "02:00:00", nodelist="cn001",
            alloctres="cpu=4,mem=8G,node=1"),
        row("2", "COMPLETED", "04:00:00", "1-00:00:00", nodelist="cn[002-003]", nnodes="2",
            alloctres="cpu=4,mem=48G,node=2", start="2026-03-02T09:00:00"),
        row("3", "TIMEOUT", "08:00:00", "08:00:00", nodelist="gn1", ncpus="2",
            alloctres="cpu=2,mem=8G,node=1,gres/gpu=3", start="2026-03-03T02:00:00"),
        row("4", "COMPLETED", "01:00:00", "1-00:00:00", nodelist="cn004", ncpus="16",
            alloctres="cpu=16,mem=1G,node=1", start="2026-03-02T12:00:00"),
    ]  # fmt: skip


def sized(tmp_path: Path, rows: list[Row], **options: Any) -> Document:
    history, nodes = tmp_path / "placed.psv", tmp_path / "nodes.csv"
    history.write_text(printed(rows, **options))
    nodes.write_text(NODES)
    return document(history, "--nodes", nodes)


def test_node_equivalent_hours_are_the_largest_share_of_the_nodes(tmp_path: Path) -> None:
    """1 + 6 + 6 + 1 = 14 of 2 + 8 + 8 + 1 = 19 nodes touched; 1 + 6 = 7 of them wall-ended."""
    found = sized(tmp_path, placed())
    assert (19.0, 14.0) == (
        found["totals"]["node_hours"], found["totals"]["node_equivalent_hours"],
    )  # fmt: skip
    assert (10.0, 7.0) == (
        found["wall_ended"]["node_hours"], found["wall_ended"]["node_equivalent_hours"],
    )  # fmt: skip


def test_capacity_is_that_of_the_listed_nodes_from_the_first_end_to_the_last(
    tmp_path: Path,
) -> None:
    """10:00 to 10:00 the next day: 5 nodes, 4 × 8 + 16 CPUs and 4 GPUs for 24 h.

    Run 1 used its hour before that, so 6 of 120 h.
    """
    found = sized(tmp_path, placed())
    assert {
        "nodes": 5,
        "cpus": 48,
        "gpus": 4,
        "node_hours": 120.0,
        "cpu_hours": 1152.0,
        "gpu_hours": 96.0,
    } == found["capacity"]
    assert 0.05 == found["wall_ended"]["share_of_capacity"]
    assert str(tmp_path / "nodes.csv") == found["options"]["nodes"]["path"]


def whole_node(job: str, elapsed: str, start: str, nodes: str) -> Row:
    """A run at its limit that had all CPUs of its node."""
    return row(job, "TIMEOUT", elapsed, elapsed, start=start, nodelist=nodes, ncpus="8",
               alloctres="cpu=8,mem=1G,node=1")  # fmt: skip


def test_what_runs_used_before_the_window_is_no_share_of_its_capacity(tmp_path: Path) -> None:
    """Two runs of 48 h end an hour apart: one of the five hours of that hour was used."""
    found = sized(tmp_path, [
        whole_node("1", "2-00:00:00", "2026-03-01T09:00:00", "cn001"),
        whole_node("2", "2-00:00:00", "2026-03-01T10:00:00", "cn002"),
    ])  # fmt: skip
    assert (96.0, 5.0) == (
        found["wall_ended"]["node_equivalent_hours"], found["capacity"]["node_hours"],
    )  # fmt: skip
    assert 0.2 == found["wall_ended"]["share_of_capacity"]


def test_a_share_above_the_whole_capacity_is_unknown_and_quality_says_why(tmp_path: Path) -> None:
    """Seven runs had cn001 to themselves for the same 10 h: 70 of 50 h."""
    starts = ["2026-03-02T00:00:00", *["2026-03-02T10:00:00"] * 7]
    rows = [whole_node(str(n), "10:00:00", start, "cn001") for n, start in enumerate(starts)]
    found = sized(tmp_path, rows)
    assert "unknown" == found["wall_ended"]["share_of_capacity"]
    (check,) = (one for one in found["quality"] if one["check"] == "share of capacity")
    assert "warning" == check["state"]
    assert "1.4 times what the listed nodes had" in check["detail"]


@pytest.mark.parametrize(("listed", "said"), [(3, "are unknown"), (300, "are lower bounds")])
def test_nodes_that_are_not_listed_are_named(tmp_path: Path, listed: int, said: str) -> None:
    """Three runs on five such nodes, one on a listed one too, one resized away from one."""
    lists = ("zz9", "zz[10-12],cn001", "aa1", *["cn001"] * listed)
    rows = [row(str(n), "COMPLETED", "01:00:00", "02:00:00", nodelist=nodes,
                start=f"2026-03-0{1 + n % 5}T08:00:00")
            for n, nodes in enumerate(lists)]  # fmt: skip
    grown = {**rows[0], "NodeList": "aa1", "State": "RESIZING", "End": rows[0]["Start"],
             "Start": "2026-03-01T07:00:00"}  # fmt: skip
    found = sized(tmp_path, [grown, *rows])
    (check,) = (one for one in found["quality"] if one["check"] == "nodes not listed")
    assert "warning" == check["state"]
    assert check["detail"].startswith(
        "3 runs were on 5 nodes that the list lacks: aa1, zz10, zz11 and 2 more"
    )
    assert f"node-equivalent hours {said}" in check["detail"]
    assert (said == "are unknown") == (found["totals"]["node_equivalent_hours"] == "unknown")
    assert (said == "are unknown") == (found["wall_ended"]["share_of_capacity"] == "unknown")
    assert not [one for one in found["quality"] if one["check"] == "units"]


def test_with_a_node_list_the_summary_does_not_ask_for_one(tmp_path: Path) -> None:
    history, nodes = tmp_path / "placed.psv", tmp_path / "nodes.csv"
    history.write_text(printed([{**one, "NodeList": "zz9"} for one in placed()]))
    nodes.write_text(NODES)
    told, page = tmp_path / "told.json", tmp_path / "page.html"
    ended = cedana_poc("analyze", history, "--nodes", nodes, "--json", told, "--html", page)
    assert 0 == ended.code
    assert "--nodes" not in ended.out
    assert "--nodes" not in page.read_text()
    assert "nodes not listed: 4 runs were on 1 nodes" in " ".join(ended.out.split())


def test_a_node_list_that_cannot_be_read_is_told_as_a_unit_that_is_missing(
    tmp_path: Path,
) -> None:
    found = sized(tmp_path, [*placed()[:3], {**placed()[3], "NodeList": "cn[001-"}])
    checks = [(one["check"], one["detail"]) for one in found["quality"]]
    assert ("units", "1 runs lack what node-equivalent-hours are made of") in checks
    assert "nodes not listed" not in dict(checks)


def test_without_cpus_equivalent_hours_are_unknown_not_those_of_memory(tmp_path: Path) -> None:
    found = sized(tmp_path, placed(), without=("NCPUS", "AllocTRES"))
    assert "unknown" == found["totals"]["node_equivalent_hours"]


# --- what is not in the file ----------------------------------------------------------------------

REPEATS = tuple(
    f"repeats.{name}"
    for name in "certain probable ambiguous none too_recent considered false_match_rate "
    "node_hours.certain".split()
)
MISSING: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {
    ("JobID", "JobIDRaw"): (REPEATS, "repeats and duplicate records"),
    ("User",): (
        ("totals.users", "concentration", "breakdowns.user", "wall_ended.top_user",
         "wall_ended.without_top_user", *REPEATS),
        "concentration by user",
    ),
    ("Partition",): (("breakdowns.partition",), "figures by partition"),
    ("Timelimit",): (
        ("breakdowns.limit_band", "elapsed_over_limit"), "which TIMEOUTs were the limit",
    ),
    ("NNodes", "AllocTRES"): (
        ("totals.node_hours", "wall_ended.node_hours", "wall_ended.share_of_node_hours",
         "by_state.TIMEOUT.node_hours", "wall_ended.addressable.node_hours", "breakdowns.size",
         "concentration", "wall_ended.top_user"),
        "node-hours",
    ),
    ("NCPUS", "AllocTRES"): (
        ("totals.cpu_hours", "wall_ended.cpu_hours", "wall_ended.share_of_cpu_hours"), "CPU-hours",
    ),
    ("AllocTRES",): (
        ("totals.gpu_hours", "totals.billing_hours", "wall_ended.gpu_hours",
         "wall_ended.share_of_gpu_hours", "breakdowns.gpu_model"),
        "GPU-hours and GPU models",
    ),
    ("Submit",): (REPEATS, "repeats"),
    ("End",): (
        ("window.first_end", "window.last_end", "window.days", "breakdowns.week", *REPEATS),
        "the period covered",
    ),
    ("JobName",): (REPEATS, "repeats, and applications by job name"),
    ("JobName", "SubmitLine"): (("applications",), "applications by submit line"),
}  # fmt: skip


@pytest.mark.parametrize("columns", MISSING, ids="+".join)
def test_a_missing_column_makes_figures_unknown_and_quality_says_which(
    tmp_path: Path, whole: Document, columns: tuple[str, ...]
) -> None:
    paths, loss = MISSING[columns]
    path = tmp_path / "missing.psv"
    path.write_text(printed(history(), without=columns))
    found = analysed(path).document
    assert {} == {one: figure(found, one) for one in paths if figure(found, one) != "unknown"}
    assert [] == [one for one in paths if figure(whole, one) == "unknown"], "or nothing is lost"
    lost = [one for one in found["quality"] if one["check"] == "missing column"]
    assert {"unknown"} == {one["state"] for one in lost}
    assert any(loss in one["detail"] for one in lost)


def test_without_a_limit_every_timeout_may_be_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "no-limit.psv"
    path.write_text(printed(history(), without=("Timelimit",)))
    found = analysed(path).document["wall_ended"]
    assert (2, 2) == (found["runs"], found["by_kind"]["limit_unknown"]["runs"])


def test_without_a_limit_nobody_knows_what_ended_near_it(
    tmp_path: Path, validator: Draft202012Validator
) -> None:
    """In the document, the tables, the summary and the page: unknown, not 0."""
    path, told, page, data = (tmp_path / name for name in ("no.psv", "a.json", "a.html", "data"))
    path.write_text(printed(history(), without=("Timelimit",)))
    ended = cedana_poc("analyze", path, "--json", told, "--html", page, "--data", data)
    assert 0 == ended.code
    found = json.loads(told.read_text())
    assert [] == faults(validator, found)
    near = found["wall_ended"]["by_kind"]["near_limit_other_state"]
    reached = near.pop("reached_limit")
    assert {"unknown"} == {*near.values(), *reached.values()}
    assert "another state at the limit unknown" in " ".join(ended.out.split())
    kinds = (data / "by_kind.csv").read_text().replace('"', "")
    assert f"near_limit_other_state,reached_limit,yes{',unknown' * 6}" in kinds
    assert f"near_limit_other_state,before_limit,no{',unknown' * 6}" in kinds
    states = (data / "by_state.csv").read_text().replace('"', "").splitlines()
    assert {True} == {line.endswith(",unknown" * 6) for line in states[1:]}
    assert "unknown, needs the column Timelimit" in " ".join(page.read_text().split())


def test_only_id_state_and_elapsed_are_enough_for_counts(tmp_path: Path) -> None:
    path = tmp_path / "little.psv"
    path.write_text(printed(history(), ("JobID", "State", "Elapsed")))
    found = document(path)
    assert {"TIMEOUT": 2, "COMPLETED": 1, "FAILED": 1} == {
        state: usage["runs"] for state, usage in found["by_state"].items()
    }
    hours = {value for name, value in found["totals"].items() if name != "runs"}
    assert {"unknown"} == hours
    assert {"steps": 1, "never started": 1} == found["rows"]["left_out"]


def test_a_file_without_ids_gives_what_can_be_had(tmp_path: Path) -> None:
    """Steps are known by what they lack; equal rows may be two jobs, so both count."""
    path = tmp_path / "no-ids.psv"
    rows = history()
    path.write_text(printed([*rows, rows[0]], without=("JobID", "JobIDRaw")))
    found = document(path)
    assert {"steps": 1, "never started": 1} == found["rows"]["left_out"]
    assert (5, 59.0) == (found["totals"]["runs"], found["totals"]["node_hours"])
    assert (3, 52.0) == (found["wall_ended"]["runs"], found["wall_ended"]["node_hours"])
    assert "unknown" == found["wall_ended"]["largest_runs"][0]["job"]
    assert "unknown" == found["repeats"]["certain"]


# --- the document ---------------------------------------------------------------------------------

SCHEMA = json.loads((ROOT / "docs" / "analysis.schema.json").read_text())


@pytest.fixture(scope="session")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(SCHEMA)
    return Draft202012Validator(SCHEMA)


def faults(validator: Draft202012Validator, found: Document) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


def test_every_kind_of_document_fits_the_schema(
    validator: Draft202012Validator, whole: Document, file: Path, tmp_path: Path
) -> None:
    documents = [whole, sized(tmp_path, placed())]
    documents.append(document(file, "--names", "--timezone", "Asia/Kathmandu", "--top", "1"))
    nothing, everything = tmp_path / "nothing.psv", tmp_path / "everything.psv"
    nothing.write_text(printed([], ("JobID", "State", "Elapsed")))
    everything.write_text(printed([one for trap in TRAPS for one in trap()[0]]))
    documents += [analysed(nothing).document, document(everything)]
    assert [] == [fault for one in documents for fault in faults(validator, one)]


@pytest.mark.parametrize("path", ["totals.runs", "wall_ended.share_of_runs", "rows.in", "window"])
def test_the_schema_refuses_a_field_that_is_missing_or_null(
    validator: Draft202012Validator, whole: Document, path: str
) -> None:
    changed = json.loads(json.dumps(whole))
    parent, _, last = path.rpartition(".")
    holder = figure(changed, parent) if parent else changed
    holder[last] = None
    assert faults(validator, changed)
    del holder[last]
    assert faults(validator, changed)


def fields(schema: Any) -> Iterator[str]:
    """Every name that a schema describes."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for value in schema.values():
            yield from fields(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from fields(value)


def names(found: Any) -> Iterator[str]:
    """Every name in a document but those of maps by state and by reason."""
    if isinstance(found, dict):
        for name, value in found.items():
            is_key = name.isupper() or value in (found.get("left_out"),)
            if not is_key:
                yield name
            yield from names(value) if name not in ("left_out", "not_addressable") else ()
    elif isinstance(found, list):
        for value in found:
            yield from names(value)


def test_the_schema_describes_every_field_of_a_document_and_no_other(whole: Document) -> None:
    maps = {"left_out", "not_addressable"}
    described, there = set(fields(SCHEMA)), set(names(sample_analysis.sample())) | maps
    assert set(names(whole)) | maps <= described
    assert described <= there | {"sha256", "path", "line", "problem"}


# --- whole files ----------------------------------------------------------------------------------


@cache
def example(seed: int, days: int, folder: Path) -> Path:
    path = folder / f"{seed}.psv"
    make_example.write(path, seed, days)
    make_example.write_nodes(folder / "nodes.csv")
    return path


@pytest.mark.parametrize(("seed", "days"), [(7, 90), (1, 30)])
def test_the_example_is_read_as_it_was_planned(
    tmp_path_factory: pytest.TempPathFactory, seed: int, days: int
) -> None:
    """Rows, runs and hours are those of the plan, which never was text."""
    folder = tmp_path_factory.mktemp("example")
    path = example(seed, days, folder)
    truth = make_example.truth(seed, days)
    found = document(path, "--nodes", folder / "nodes.csv", "--timezone", "UTC")

    rows, left = found["rows"], found["rows"]["left_out"]
    assert truth["rows"] == rows["in"]
    assert truth["ended_records"] == rows["runs"] == rows["in"] - sum(left.values())
    assert truth["malformed_rows"] == rows["repaired"]
    assert truth["left_out"] == {
        "step": left["steps"],
        "pending": left["pending"] + left.get("array blocks", 0),
        "running": left["running"],
        "never started": left["never started"],
    }
    assert same(truth["total"], found["totals"])
    assert {} == {
        state: usage
        for state, usage in truth["by_state"].items()
        if not same(usage, found["by_state"][state])
    }
    assert set(truth["by_state"]) == set(found["by_state"])
    kinds = found["wall_ended"]["by_kind"]
    assert same(truth["timeout_at_wall"], found["wall_ended"])
    assert same(truth["timeout_at_wall_sessions"], kinds["session"])
    assert same(truth["timeout_before_wall"], kinds["not_the_limit"]["by_cause"]["administrative"])
    assert found["totals"]["node_equivalent_hours"] < found["totals"]["node_hours"]


def same(truth: make_example.Usage, found: Document) -> bool:
    hours = {
        "node_hours": truth["node_hours"],
        "cpu_hours": truth["cpu_hours"],
        "gpu_hours": truth["gpu_hours"],
    }
    return truth["runs"] == found["runs"] and all(
        abs(value - found[name]) < 0.001 for name, value in hours.items()
    )


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"needs the public files in {FOLDER}")
@pytest.mark.parametrize("name", PUBLIC)
def test_public_files_give_a_document_that_fits_and_adds_up(
    validator: Draft202012Validator, name: str
) -> None:
    columns = ("--columns", ",".join(PUBLIC[name])) if PUBLIC[name] else ()
    ended = cedana_poc("analyze", FOLDER / name, *columns, "--json", "-")
    found = json.loads(ended.out)
    assert "" == ended.err
    assert [] == faults(validator, found)
    rows = found["rows"]
    assert rows["in"] == rows["runs"] + sum(rows["left_out"].values())
    assert found["totals"]["runs"] <= rows["runs"]
    assert 0 == ended.code
    by_state = sum(usage["runs"] for usage in found["by_state"].values())
    assert found["totals"]["runs"] == by_state


def test_help_names_every_option_and_exit_code() -> None:
    ended = process("analyze", "--help", COLUMNS="100")
    assert 0 == ended.code
    options = "columns timezone since until partition nodes json html data names pseudonym-key top"
    assert [] == [name for name in options.split() if f"--{name}" not in ended.out]
    assert "0 done; 2 bad usage or input" in ended.out
