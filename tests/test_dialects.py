"""Every dialect of sacct gives the same runs."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dialects as d
import pytest
import zstandard
from dialects import JOBS, Job

from cedana_poc import sacct
from cedana_poc.cli import main
from cedana_poc.errors import UserError
from cedana_poc.sacct.load import load

WIDE = {
    "jobid": 16,
    "jobidraw": 12,
    "cluster": 8,
    "user": -9,
    "account": 10,
    "partition": 10,
    "qos": 10,
    "state": 20,
    "exitcode": 8,
    "submit": 19,
    "eligible": 19,
    "start": 19,
    "end": 19,
    "elapsed": 11,
    "suspended": 11,
    "timelimit": 11,
    "nnodes": 6,
    "ncpus": 6,
    "alloctres": 70,
    "nodelist": 15,
    "reservation": -12,
    "jobname": -20,
}
VERSIONS = ("21.08", "22.05", "23.02", "23.11", "24.11")
ROWS = sum(1 + len(job.steps) for job in JOBS)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def _write(data: bytes, name: str = "sacct.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return _write


def the_runs(path: Path | list[Path], **options: Any) -> sacct.Runs:
    return sacct.read(path, timezone="UTC", **options)


def compare(
    jobs: Sequence[Job], runs: sacct.Runs, *, names: bool = True, without: Sequence[str] = ()
) -> None:
    """The runs are those of the jobs, value for value."""
    found = {row["job"]: row for row in runs.frame.to_dicts()}
    wanted = [{**d.truth(job), "name": job.name} for job in jobs]
    skipped = {*without, *(() if names else ("name",))}
    for expected in wanted:
        row = found[expected["job"]]
        kept = {key: value for key, value in expected.items() if key not in skipped}
        assert kept == {key: row[key] for key in kept}
    assert len(jobs) == len(runs)


def complaint(path: Path, **options: Any) -> str:
    """The one line in which a file is refused."""
    with pytest.raises(UserError) as caught:
        the_runs(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", ["|", ",", ";", "\t", "\x1f", "☃", "^|^", ";|;", "~!~"])
@pytest.mark.parametrize("trailing", [False, True], ids=["P", "p"])
@pytest.mark.parametrize("columns", [d.RECOMMENDED, d.DEFAULT], ids=["recommended", "default"])
def test_any_delimiter_with_a_header(
    write: Callable[..., Path], delimiter: str, trailing: bool, columns: tuple[str, ...]
) -> None:
    path = write(d.delimited(JOBS, columns, delimiter=delimiter, trailing=trailing))
    runs = the_runs(path)
    compare(
        JOBS, runs, without=() if columns == d.RECOMMENDED else ("cluster", "id", "reservation")
    )
    assert ROWS == runs.account.rows_in
    assert {"steps": 3} == runs.account.left_out
    assert repr(delimiter) in runs.account.inputs[0].dialect


@pytest.mark.parametrize("delimiter", ["|", ",", ";", "\t", "\x1f", "☃", "^|^", ";|;", "~!~"])
@pytest.mark.parametrize("trailing", [False, True], ids=["P", "p"])
def test_columns_stand_in_for_a_header(
    write: Callable[..., Path], delimiter: str, trailing: bool
) -> None:
    path = write(d.delimited(JOBS, delimiter=delimiter, header=False, trailing=trailing))
    runs = the_runs(path, columns=[d.SPELLED[c] for c in d.RECOMMENDED])
    compare(JOBS, runs)
    assert "no header" in runs.account.inputs[0].dialect


def test_columns_may_be_given_with_widths_as_to_sacct(write: Callable[..., Path]) -> None:
    path = write(d.delimited(JOBS, header=False))
    compare(JOBS, the_runs(path, columns=[f"{d.SPELLED[c]}%-30" for c in d.RECOMMENDED]))


@pytest.mark.parametrize("stripped", [False, True])
def test_fixed_width_is_cut_at_its_columns(write: Callable[..., Path], stripped: bool) -> None:
    runs = the_runs(write(d.fixed(JOBS, WIDE, stripped=stripped)))
    compare(JOBS, runs)
    assert "fixed width" in runs.account.inputs[0].dialect
    assert not runs.account.truncated


def test_fixed_width_that_cuts_states_and_ids_is_recognised(write: Callable[..., Path]) -> None:
    narrow = {**WIDE, "jobid": 10, "state": 10, "jobname": 10, "timelimitraw": 10}
    del narrow["timelimit"], narrow["jobidraw"]
    jobs = [*JOBS, Job(12_345_678, "TIMEOUT", array=(12_345_670, 33))]
    runs = the_runs(write(d.fixed(jobs, narrow)))
    assert {"CANCELLED", "OUT_OF_MEMORY"} <= set(runs.frame["state"])
    assert runs.account.truncated["state"] >= 2
    assert 1 == runs.account.truncated["jobid"]
    assert 86_400 == runs.frame.filter(runs.frame["job"] == "102")["limit_seconds"][0]


def test_fixed_width_step_without_its_suffix_is_no_run(write: Callable[..., Path]) -> None:
    """`12345.ba+` is a step; `12345678+` may be one, and is only a run if it has a user."""
    narrow = {**WIDE, "jobid": 5}
    del narrow["jobidraw"]
    job = replace(JOBS[1], id=123_456_789)
    runs = the_runs(write(d.fixed([*JOBS, job], narrow)))
    assert len(JOBS) + 1 == len(runs)
    assert 6 == runs.account.left_out["steps"] + runs.account.left_out["truncated id"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("header", [False, True])
def test_quoted_csv(write: Callable[..., Path], delimiter: str, every: bool, header: bool) -> None:
    names = ("a,b", 'say "x"', "two\nlines", f"x{delimiter}y{delimiter}z")
    jobs = [replace(job, name=name) for job, name in zip(JOBS, names, strict=False)]
    columns = () if header else [d.SPELLED[c] for c in d.RECOMMENDED]
    path = write(d.quoted(jobs, delimiter=delimiter, every=every, header=header))
    compare(jobs, the_runs(path, columns=columns))


@pytest.mark.parametrize("version", VERSIONS)
def test_json_of_every_layout(write: Callable[..., Path], version: str) -> None:
    runs = the_runs(write(d.as_json(JOBS, version)))
    compare(JOBS, runs)
    assert "sacct --json" == runs.account.inputs[0].dialect


def test_json_start_that_is_the_eligible_time_is_put_right(write: Callable[..., Path]) -> None:
    """21.08 to 22.05.7 printed it so; suspended time lies between Start and End."""
    job = replace(JOBS[4], suspended=600)
    runs = the_runs(write(d.as_json([job], "22.05")))
    assert d.truth(job)["start"] == runs.frame["start"][0]


@pytest.mark.parametrize("version", VERSIONS)
def test_json_steps_give_names_and_are_no_rows(write: Callable[..., Path], version: str) -> None:
    with load([write(d.as_json(JOBS, version))]) as loaded:
        found = loaded.connection.execute("SELECT * FROM step_names WHERE suffix = '0'").fetchall()
        assert [("102", "0", "python3")] == found
        assert len(JOBS) == loaded.account.rows_in


@pytest.mark.parametrize("place", [0, 1, 3, 5])
@pytest.mark.parametrize("trailing", ["", "|"])
@pytest.mark.parametrize("name", ["", "lmp", "a-name-so-long-that-it-ends-far-away" * 3])
def test_step_names_wherever_the_column_stands(
    write: Callable[..., Path], place: int, trailing: str, name: str
) -> None:
    fields = ["JobID", "State", "Start", "End", "Elapsed"]
    day = "2026-01-01T00:0"
    values = ["COMPLETED", f"{day}0:00", f"{day}1:00", "00:01:00"]
    lines = []
    for job in range(100, 130):
        for row in ([str(job), *values], [f"{job}.batch", *values], [f"{job}.0", *values]):
            lines.append([*row[:place], name, *row[place:]])
    lines.insert(0, [*fields[:place], "JobName", *fields[place:]])
    text = "".join("|".join(line) + trailing + "\n" for line in lines)
    with load([write(text.encode())]) as loaded:
        found = loaded.connection.execute(
            "SELECT job, name FROM step_names WHERE suffix = '0' ORDER BY job"
        ).fetchall()
    assert [(str(job), name or None) for job in range(100, 130)] == found


@pytest.mark.parametrize("pack", [d.gzipped, d.zstd])
@pytest.mark.parametrize(
    "data",
    [d.delimited(JOBS), d.as_json(JOBS, "24.11"), d.fixed(JOBS, WIDE), d.quoted(JOBS)],
    ids=["P", "json", "fixed", "quoted"],
)
def test_compressed_files(
    write: Callable[..., Path], pack: Callable[[bytes], bytes], data: bytes
) -> None:
    compare(JOBS, the_runs(write(pack(data))))


@pytest.mark.parametrize("pack", [d.gzipped, d.zstd])
def test_compressed_files_may_be_appended_to_each_other(
    write: Callable[..., Path], pack: Callable[[bytes], bytes]
) -> None:
    data = pack(d.delimited(JOBS[:3])) + pack(d.delimited(JOBS[3:]))
    compare(JOBS, the_runs(write(data)))


@pytest.mark.parametrize("dress", [d.crlf, d.with_bom, lambda data: d.with_bom(d.crlf(data))])
@pytest.mark.parametrize(
    "data",
    [
        d.delimited(JOBS),
        d.delimited(JOBS, trailing=True, delimiter=";|;"),
        d.fixed(JOBS, WIDE),
        d.fixed(JOBS, WIDE, stripped=True),
        d.quoted(JOBS, every=True),
        d.as_json(JOBS, "23.11"),
    ],
    ids=["P", "p", "fixed", "stripped", "quoted", "json"],
)
def test_byte_order_mark_and_crlf(
    write: Callable[..., Path], dress: Callable[[bytes], bytes], data: bytes
) -> None:
    runs = the_runs(write(dress(data)))
    compare(JOBS, runs)
    assert 0 == runs.account.repaired


@pytest.mark.parametrize("spell", [str.upper, str.lower, str.swapcase, str.title])
def test_column_names_in_any_case(write: Callable[..., Path], spell: Callable[[str], str]) -> None:
    compare(JOBS, the_runs(write(d.delimited(JOBS, spell=spell))))


@pytest.mark.parametrize(
    ("printed", "alias"),
    [
        ("ncpus", "AllocCPUS"),
        ("jobname", "Name"),
        ("user", "UserName"),
        ("elapsedraw", "Elapsed Raw"),
        ("timelimitraw", "TimeLimitRaw"),
    ],
)
def test_aliases_of_columns(write: Callable[..., Path], printed: str, alias: str) -> None:
    def spell(name: str) -> str:
        return alias if name == printed else d.SPELLED[name]

    compare(JOBS, the_runs(write(d.delimited(JOBS, spell=spell))))


@pytest.mark.parametrize("columns", [d.RECOMMENDED[::-1], sorted(d.RECOMMENDED)])
def test_columns_in_any_order(write: Callable[..., Path], columns: tuple[str, ...]) -> None:
    """Steps are told by the dot in their id, wherever it stands."""
    runs = the_runs(write(d.delimited(JOBS, columns)))
    compare(JOBS, runs)
    assert 3 == runs.account.left_out["steps"]


def test_columns_that_sacct_does_not_know_are_passed_over(write: Callable[..., Path]) -> None:
    lines = d.delimited(JOBS).splitlines()
    data = b"".join(b"%d|%s|x y\n" % (n, line) for n, line in enumerate(lines))
    data = data.replace(b"0|Cluster", b"Index|Cluster").replace(b"JobName|x y", b"JobName|Colour")
    compare(JOBS, the_runs(write(data)))


def test_epoch_times_need_no_zone(write: Callable[..., Path]) -> None:
    runs = sacct.read(write(d.delimited(JOBS, epoch=True)))
    compare(JOBS, runs)
    assert not runs.account.inputs[0].local_times


def test_without_any_job_id_there_are_still_hours(write: Callable[..., Path]) -> None:
    columns = [c for c in d.RECOMMENDED if not c.startswith("jobid")]
    runs = the_runs(write(d.delimited(JOBS, columns)))
    assert len(JOBS) == len(runs)
    assert 3 == runs.account.left_out["steps"]
    hours = sum(d.truth(job)["node_hours"] for job in JOBS)
    assert hours == pytest.approx(runs.frame["node_hours"].sum())


def test_final_newline_may_be_missing(write: Callable[..., Path]) -> None:
    runs = the_runs(write(d.delimited(JOBS).rstrip(b"\n")))
    compare(JOBS, runs)
    assert {"steps": 3} == runs.account.left_out


def test_blank_lines_are_no_rows(write: Callable[..., Path]) -> None:
    data = b"\n\n" + d.delimited(JOBS).replace(b"\n", b"\n\n") + b"\n   \n\n"
    runs = the_runs(write(data))
    compare(JOBS, runs)
    assert ROWS == runs.account.rows_in
    assert 0 == runs.account.repaired


@pytest.mark.parametrize(
    "make",
    [
        d.delimited,
        lambda jobs: d.delimited(jobs, delimiter="^|^", trailing=True),
        lambda jobs: d.crlf(d.delimited(jobs)),
        lambda jobs: d.with_bom(d.delimited(jobs)),
        lambda jobs: d.fixed(jobs, WIDE),
        lambda jobs: d.quoted(jobs, every=True),
    ],
    ids=["P", "p", "crlf", "bom", "fixed", "quoted"],
)
def test_header_repeated_where_files_were_appended(
    write: Callable[..., Path], make: Callable[[Sequence[Job]], bytes]
) -> None:
    runs = the_runs(write(make(JOBS[:2]) + make(JOBS[2:4]) + make(JOBS[4:])))
    compare(JOBS, runs)
    assert ROWS == runs.account.rows_in
    assert 0 == runs.account.repaired


@pytest.mark.parametrize("columns", [d.RECOMMENDED, d.DEFAULT, d.RECOMMENDED[::-1]])
@pytest.mark.parametrize("form", ["P", "p", "quoted"])
def test_row_cut_off_at_the_end_is_left_out_and_the_rest_is_used(
    write: Callable[..., Path], columns: tuple[str, ...], form: str
) -> None:
    """Wherever the cut is, no value of the cut row is used and no other row suffers."""
    last = replace(JOBS[0], id=777)

    def data(jobs: Sequence[d.Job]) -> bytes:
        if form == "quoted":
            return d.quoted(jobs, columns, every=True)
        return d.delimited(jobs, columns, trailing=form == "p")

    whole, full = len(data(JOBS)), data([*JOBS, last])
    for cut in range(whole + 1, len(full) - 12, 37):
        runs = the_runs(write(full[:cut]))
        assert {"steps": 3, "cut last row": 1} == runs.account.left_out, full[whole:cut]
        assert {job.printed_id for job in JOBS} == set(runs.frame["job"])
        assert [job.name for job in JOBS] == [n for n in _names(runs, JOBS)]


def _names(runs: sacct.Runs, jobs: Sequence[Job]) -> list[str]:
    names = dict(zip(runs.frame["job"], runs.frame["name"], strict=True))
    return [names[job.printed_id] for job in jobs]


@pytest.mark.parametrize("pack", [d.gzipped, d.zstd])
@pytest.mark.parametrize("left", [0.3, 0.7, 0.98])
def test_compressed_file_cut_off_is_used_up_to_the_cut(
    write: Callable[..., Path], pack: Callable[[bytes], bytes], left: float
) -> None:
    jobs = [replace(JOBS[0], id=n, name=f"job{n * 7919 % 10007}") for n in range(1, 20_000)]
    packed = pack(d.delimited(jobs))
    runs = the_runs(write(packed[: int(len(packed) * left)]))
    assert 0.2 * len(jobs) * left < len(runs) < len(jobs)
    assert runs.account.inputs[0].cut
    assert runs.account.left_out.keys() <= {"cut last row"}


def test_compressed_data_that_is_damaged_is_refused(write: Callable[..., Path]) -> None:
    packed = bytearray(d.gzipped(d.delimited(JOBS)))
    packed[len(packed) // 2] ^= 0xFF
    assert "damaged" in complaint(write(bytes(packed)))


def test_files_with_overlapping_days_count_each_record_once(write: Callable[..., Path]) -> None:
    paths = [
        write(d.delimited(JOBS[:4]), "day1"),
        write(d.delimited(JOBS[2:], delimiter=",", columns=d.RECOMMENDED[::-1]), "day2"),
        write(d.delimited(JOBS[3:], delimiter=";|;", trailing=True), "day3"),
    ]
    runs = the_runs(paths)
    compare(JOBS, runs)
    assert 5 == runs.account.left_out["identical copies"]


def test_file_given_twice_changes_nothing_but_the_account(write: Callable[..., Path]) -> None:
    path = write(d.delimited(JOBS))
    runs = the_runs([path, path])
    compare(JOBS, runs)
    assert {"steps": 6, "identical copies": len(JOBS)} == runs.account.left_out


@pytest.mark.parametrize("version", VERSIONS)
def test_het_job_is_one_run_in_text_and_json(write: Callable[..., Path], version: str) -> None:
    parts = [Job(300 + n, "TIMEOUT", het=(300, n), nodes=n + 1, cpus=8) for n in range(3)]
    text = the_runs(write(d.delimited(parts)))
    layout = the_runs(write(d.as_json(parts, version), "json"))
    for runs in (text, layout):
        assert [(3, 6, 6.0)] == runs.frame.select("records", "nodes", "node_hours").rows()


def test_shells_and_devices_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, d.delimited(JOBS))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        compare(JOBS, the_runs(Path("-")))


MANGLED = {
    "1.23457E+06": "jobidraw",
    "1,234,567": "jobidraw",
    "1.71452E+09": "start",
    "5/1/2024 0:10": "start",
    "01.05.2024 00:10": "submit",
    "########": "end",
    "1/1/1900 1:00:00 AM": "elapsedraw",
    "86,417": "elapsedraw",
}


@pytest.mark.parametrize("value", MANGLED)
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_spreadsheet_damage_is_explained(
    write: Callable[..., Path], value: str, delimiter: str
) -> None:
    column = d.RECOMMENDED.index(MANGLED[value])
    rows = [
        line.split(delimiter)
        for line in d.delimited(JOBS, delimiter=delimiter).decode().splitlines()
    ]
    for row in rows[2:]:
        row[column] = value
    path = write("".join(delimiter.join(row) + "\n" for row in rows).encode())
    assert "spreadsheet" in complaint(path)
    assert ":line 3" in complaint(path).replace(": ", ":")


def test_text_that_looks_like_spreadsheet_damage_is_no_damage(write: Callable[..., Path]) -> None:
    names = ["5/1/2024 0:10", "1.5E+06|x|y", "01.05.2024", "1,234", "###"]
    jobs = d.renamed(names)
    compare(jobs, the_runs(write(d.delimited(jobs))))


BAD = {
    "empty": (b"", "empty"),
    "blank": (b"\n \n\n", "empty"),
    "binary": (bytes(range(256)) * 40, "binary"),
    "zip": (b"PK\x03\x04" + b"abc" * 100, "spreadsheet or zip"),
    "utf-16": ("JobID|State|Elapsed\n".encode("utf-16"), "UTF-16"),
    "html": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "HTML"),
    "html, late": (d.with_bom(b"\n  <HTML>\n"), "HTML"),
    "xml": (b"<?xml version='1.0'?><a/>\n", "HTML or XML"),
    "no header": (d.delimited(JOBS, header=False), "--columns"),
    "prose": (b"the nightly export did not run\n", "--columns"),
    "a message": (
        b"sacct: error: Unable to connect to the database\n",
        "'sacct: error: Unable to connect to the database'",
    ),
    "no state": (d.delimited(JOBS, ("jobid", "elapsed", "nnodes")), "no State column"),
    "no time": (d.delimited(JOBS, ("jobid", "state", "start")), "no usable time column"),
    "twice": (d.delimited(JOBS, ("jobid", "state", "elapsed", "state")), "named twice"),
    "json cut": (d.as_json(JOBS, "24.11")[:-40], "JSON"),
    "json of others": (b'{"hello": 1}', "list of jobs"),
    "json deep": (b'{"jobs":' + b"[" * 100_000, "JSON"),
    "json number": (b'{"jobs":[' + b"9" * 5000 + b"]}", "JSON"),
    "gzip of nothing": (gzip.compress(b""), "empty"),
    "gzip of noise": (b"\x1f\x8b" + bytes(range(200)), "damaged"),
    "zstd of noise": (b"\x28\xb5\x2f\xfd" + b"\xff" * 200, "damaged"),
    "zstd of HTML": (zstandard.compress(b"<html>"), "HTML"),
}


@pytest.mark.parametrize("case", BAD)
def test_file_that_is_no_sacct_output_is_refused_in_one_line(
    write: Callable[..., Path], case: str
) -> None:
    data, why = BAD[case]
    path = write(data)
    assert why in complaint(path)
    assert str(path) in complaint(path)


def test_wrong_number_of_columns_is_refused(write: Callable[..., Path]) -> None:
    path = write(d.delimited(JOBS, header=False))
    columns = [d.SPELLED[c] for c in d.RECOMMENDED]
    for wrong in (columns[:-1], [*columns, "Comment"]):
        assert f"names {len(wrong)} columns, the lines have 25 (delimiter '|')" in complaint(
            path, columns=wrong
        )


def test_columns_that_contradict_the_header_are_refused(write: Callable[..., Path]) -> None:
    path = write(d.delimited(JOBS, ("jobid", "state", "elapsed")))
    assert "differs from the header" in complaint(path, columns=["JobID", "Elapsed", "State"])


def test_missing_file_and_directory_are_refused(tmp_path: Path) -> None:
    assert "no such file" in complaint(tmp_path / "nowhere")
    assert "directory" in complaint(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_is_refused(write: Callable[..., Path]) -> None:
    path = write(d.delimited(JOBS))
    path.chmod(0)
    assert "cannot be read (Permission denied)" in complaint(path)


def test_file_that_cannot_be_read_on_is_refused() -> None:
    assert "cannot be read" in complaint(Path("/proc/self/mem"))


def test_command_refuses_bad_input_with_exit_code_2(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(b"<html>")
    monkeypatch.setattr(sys, "argv", ["cedana-poc", "analyze", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert 2 == caught.value.code
    assert 1 == len(capsys.readouterr().err.splitlines())
