"""Exports that were joined, overlap or break off: no job twice, none swallowed, none cut in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import dialects as d
import pytest
from dialects import DAY, JOBS, Job
from traps import analysed, printed, row

from cedana_poc import sacct
from cedana_poc.errors import UserError
from cedana_poc.sacct.load import load
from cedana_poc.sacct.wanted import Filter

ARRAY = [
    Job(7100 + task, "TIMEOUT", submit=DAY, elapsed=3600 + task, array=(7100, task))
    for task in range(1, 4)
]
PLAIN = [Job(7200 + n, elapsed=600 * (n + 1), submit=DAY + 60 * n) for n in range(4)]
FEW = ("jobid", "state", "start", "end", "elapsed", "jobname")
SHORT = ("jobid", "jobname", "submit", "start", "end", "elapsed", "state", "timelimit", "nnodes")


def fixed(jobs: Sequence[Job], columns: Sequence[str]) -> bytes:
    return d.fixed(jobs, dict.fromkeys(columns, 30))


PRINTERS = pytest.mark.parametrize(
    "printer", [d.delimited, d.quoted, fixed], ids=["-P", "CSV", "fixed"]
)


def read(path: Path, data: bytes) -> sacct.Runs:
    path.write_bytes(data)
    return sacct.read(path)


@PRINTERS
@pytest.mark.parametrize(
    "second", [FEW, tuple(reversed(d.DEFAULT)), (*d.DEFAULT, "flags")], ids=["few", "order", "more"]
)
def test_second_header_with_other_columns_is_named_by_its_line(
    tmp_path: Path, printer: Callable[..., bytes], second: Sequence[str]
) -> None:
    first = printer(PLAIN, d.DEFAULT)
    line = first.count(b"\n") + 1
    with pytest.raises(UserError, match=f"line {line} is the header of another export"):
        read(tmp_path / "f", first + printer(ARRAY, second))


@PRINTERS
def test_second_header_with_the_same_columns_is_passed_over(
    tmp_path: Path, printer: Callable[..., bytes]
) -> None:
    data = printer(PLAIN, d.DEFAULT) + printer(ARRAY, d.DEFAULT)
    runs = read(tmp_path / "f", data)
    assert (7, 7) == (len(runs), runs.account.rows_in)


@pytest.mark.parametrize("first", [d.RECOMMENDED, d.DEFAULT])
def test_rows_of_other_columns_without_a_header_are_no_text_of_the_row_before(
    tmp_path: Path, first: Sequence[str]
) -> None:
    more = [replace(job, id=job.id + 1000) for job in JOBS]
    _, *rows = d.delimited(more, FEW).splitlines(keepends=True)
    (tmp_path / "f").write_bytes(d.delimited(JOBS, first) + b"".join(rows))
    with load([tmp_path / "f"]) as loaded:
        left_out = loaded.account.left_out
        assert len(JOBS) == loaded.account.runs
    assert len(rows) == left_out["unreadable"] + left_out["cut last row"]


@pytest.mark.parametrize("columns", [d.RECOMMENDED, d.DEFAULT])
def test_message_of_sacct_after_the_last_row_is_no_job_name(
    tmp_path: Path, columns: Sequence[str]
) -> None:
    message = b"sacct: error: slurm_persist_conn_open: failed\n"
    runs = read(tmp_path / "f", d.delimited(PLAIN, columns) + message)
    assert ["run"] == runs.frame["name"].unique().to_list()
    (remark,) = runs.account.unreadable
    assert (6, True) == (remark.line, "slurm_persist_conn_open" in remark.problem)


@pytest.mark.parametrize("without", ["Cluster", "JobIDRaw", "JobID", "Submit", "Timelimit"])
def test_copies_are_recognised_by_what_both_exports_have(tmp_path: Path, without: str) -> None:
    """Array tasks are the hard case: their JobIDRaw is another number than their JobID."""
    rows = [row(f"71_{n}", "TIMEOUT", "01:00:00", "01:00:00", jobidraw=f"7{n}") for n in range(9)]
    full, less = tmp_path / "full.psv", tmp_path / "less.psv"
    full.write_text(printed(rows))
    less.write_text(printed(rows, without=[without]))
    for paths in ((full, less), (less, full)):
        told = analysed(*paths)
        assert 9 == told.document["totals"]["runs"]
        assert {"identical copies": 9} == told.document["rows"]["left_out"]


def test_richer_copy_is_the_one_that_is_kept(tmp_path: Path) -> None:
    rows = [row("71", "TIMEOUT", "01:00:00", "01:00:00")]
    full, less = tmp_path / "full.psv", tmp_path / "less.psv"
    full.write_text(printed(rows))
    less.write_text(printed(rows, without=["Timelimit", "NNodes", "AllocTRES"]))
    for paths in ((full, less), (less, full)):
        (run,) = analysed(*paths).runs
        assert ("limit", 1) == (run.kind, run.nodes)


def test_same_id_on_two_clusters_stays_two_jobs_if_every_file_names_the_cluster(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one.psv", tmp_path / "two.psv"
    one.write_text(printed([row("71", "TIMEOUT", "01:00:00", "01:00:00")]))
    two.write_text(printed([row("71", "TIMEOUT", "01:00:00", "01:00:00", cluster="egret")]))
    assert 2 == analysed(one, two).document["totals"]["runs"]


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_local_times_that_another_file_shows_to_be_wrong_are_refused(
    tmp_path: Path, zone: str | None
) -> None:
    """The same jobs in seconds since 1970, and in the local times of Helsinki."""
    epoch, local = tmp_path / "epoch.psv", tmp_path / "local.psv"
    epoch.write_bytes(d.delimited(PLAIN, SHORT, epoch=True))
    helsinki = [replace(job, submit=job.submit + 3 * 3600) for job in PLAIN]
    local.write_bytes(d.delimited(helsinki, SHORT))
    with pytest.raises(UserError, match=r"local\.psv: 4 jobs that .*epoch\.psv has too are"):
        analysed(epoch, local, zone=zone)
    assert 4 == analysed(epoch, local, zone="Europe/Helsinki").document["totals"]["runs"]


def test_run_of_several_records_is_asked_for_whole(tmp_path: Path) -> None:
    """180 shrinks at 09:00 and ends at 10:00; 190 is a het job of two partitions."""
    first = row("180", "RESIZING", "01:00:00", "04:00:00", nnodes="4")
    second = row("180", "TIMEOUT", "01:00:00", "01:00:00", nnodes="2", start=first["End"])
    leader = row("190+0", "COMPLETED", "01:00:00", "02:00:00", jobidraw="190")
    other = row("190+1", "COMPLETED", "01:00:00", "02:00:00", jobidraw="191", partition="gpu")
    path = tmp_path / "f.psv"
    path.write_text(printed([first, second, leader, other]))
    half_past_nine = 1_772_443_800
    late = analysed(path, wanted=Filter(since=half_past_nine))
    assert [("180", 2, 6 * 3600)] == [(r.job, r.records, r.node_seconds) for r in late.runs]
    assert {"before --since": 2} == late.document["rows"]["left_out"]
    early = analysed(path, wanted=Filter(until=half_past_nine))
    assert [("190+0", 2)] == [(r.job, r.records) for r in early.runs]
    assert {"after --until": 2} == early.document["rows"]["left_out"]
    gpu = analysed(path, wanted=Filter(partitions=("cpu",)))
    assert {"180", "190+0"} == {r.job for r in gpu.runs}
    assert {} == gpu.document["rows"]["left_out"]


WRONG = {
    "Timelimit": "12 h",
    "NNodes": "many",
    "NCPUS": "3+",
    "Submit": "yesterday",
    "Start": "soon",
    "End": "late",
    "Elapsed": "one hour",
    "AllocTRES": "two nodes",
}


@pytest.mark.parametrize("field", WRONG)
def test_value_that_sacct_cannot_have_printed_makes_its_row_unreadable(
    tmp_path: Path, field: str
) -> None:
    good = [row(str(n), "TIMEOUT", "01:00:00", "01:00:00") for n in range(1, 5)]
    bad = {**row("9", "TIMEOUT", "01:00:00", "01:00:00"), field: WRONG[field]}
    path = tmp_path / "f.psv"
    path.write_text(printed([*good[:2], bad, *good[2:]]))
    document = analysed(path).document
    assert (4, {"unreadable": 1}) == (document["totals"]["runs"], document["rows"]["left_out"])
    (remark,) = document["unreadable"]
    assert WRONG[field] in remark["problem"]


@pytest.mark.parametrize("number", ["1,024", "1.024", "1 024"])
def test_number_with_a_thousands_separator_is_never_a_smaller_one(
    tmp_path: Path, number: str
) -> None:
    good = [row(str(n), "COMPLETED", "01:00:00", "01:00:00") for n in range(10_000, 12_100)]
    path = tmp_path / "f.psv"
    path.write_text(printed([*good, row("9", "TIMEOUT", "01:00:00", "01:00:00", nnodes=number)]))
    assert {"unreadable": 1} == analysed(path).document["rows"]["left_out"]


def test_numbers_with_thousands_separators_are_laid_to_the_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "f.psv"
    path.write_text(printed([row("1", "TIMEOUT", "01:00:00", "01:00:00", nnodes="1,024")]))
    with pytest.raises(UserError, match="rewritten by a spreadsheet"):
        sacct.read(path)


@pytest.mark.parametrize("printer", [d.delimited, d.quoted], ids=["-P", "CSV"])
@pytest.mark.parametrize(
    ("last", "is_whole"),
    [
        ("nnodes", False),
        ("submit", True),
        ("elapsed", True),
        ("alloctres", False),
        ("jobname", True),
        ("state", True),
    ],
)
def test_last_row_without_newline_counts_only_if_no_number_can_lack_its_end(
    tmp_path: Path, printer: Callable[..., bytes], last: str, is_whole: bool
) -> None:
    columns = (*(name for name in SHORT if name != last), last)
    runs = read(tmp_path / "f", printer(PLAIN, columns).rstrip(b"\r\n"))
    assert (4 if is_whole else 3) == len(runs)
    assert ({} if is_whole else {"cut last row": 1}) == dict(runs.account.left_out)


def test_last_row_cut_in_a_number_never_gives_the_smaller_number(tmp_path: Path) -> None:
    jobs = [replace(job, nodes=128) for job in PLAIN]
    data = d.delimited(jobs, SHORT)
    for length in range(1, 6):
        runs = read(tmp_path / "f", data[:-length])
        assert {128} == set(runs.frame["nodes"])
