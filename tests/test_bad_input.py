"""Bad input: one line that says what, where and what to do; exit code 2; nothing written."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from command_line import PROGRAM, cedana_poc, environment
from machine import ordinary_user, small_file_system
from traps import printed, row

GOOD = printed(
    [row("1", "TIMEOUT", "01:00:05", "01:00:00"), row("2", "FAILED", "00:10:00", "01:00:00")]
)
HEADER = "JobID|State|Elapsed\n"

BAD: Mapping[str, tuple[bytes, str]] = {
    "an empty file": (b"", "empty"),
    "blank lines": (b"\n\n", "empty"),
    "a byte order mark alone": (b"\xef\xbb\xbf", "empty"),
    "a byte order mark and blank lines": (b"\xef\xbb\xbf\r\n\r\n", "empty"),
    "a header alone": (HEADER.encode(), "no rows"),
    "a header after a byte order mark, alone": (b"\xef\xbb\xbf" + HEADER.encode(), "no rows"),
    "a header of fixed width alone": (
        b"JobID             State    Elapsed \n------------ ---------- ---------- \n", "no rows",
    ),
    "JSON without a job": (b'{"jobs": []}', "no rows"),
    "steps alone": (
        HEADER.encode() + b"1.batch|FAILED|01:00:00\n1.0|FAILED|01:00:00\n", "(2 steps)",
    ),
    "a binary file": (bytes(range(256)) * 8, "binary"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(100), "spreadsheet"),
    "UTF-16": ("JobID|State|Elapsed\n".encode("utf-16"), "UTF-16"),
    "an HTML page": (b"<!DOCTYPE html>\n<html><body>Login</body></html>\n", "HTML"),
    "no header": (b"1|TIMEOUT|01:00:00\n2|FAILED|00:01:00\n", "--columns"),
    "no State column": (b"JobID|User|Elapsed\n1|u|01:00:00\n", "State"),
    "no time column": (b"JobID|State|User\n1|FAILED|u\n", "time column"),
    "a column named twice": (b"JobID|State|State|Elapsed\n", "twice"),
    "ids of a spreadsheet": (HEADER.encode() + b"1.23E+07|FAILED|01:00:00\n", "spreadsheet"),
    "dates of a spreadsheet": (
        b"JobID,State,Start,Elapsed\n7,FAILED,3/31/2026 10:00,01:00:00\n", "spreadsheet",
    ),
    "damaged JSON": (b'{"jobs": [{"job_id": 1,', "JSON"),
    "JSON of something else": (b'{"nodes": []}', "jobs"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + bytes(30), "damaged"),
}  # fmt: skip


def refused(*arguments: str | Path) -> str:
    """The one line that is printed; asserts that nothing else is."""
    ended = cedana_poc("analyze", *arguments)
    assert 2 == ended.code
    assert "" == ended.out
    assert "Traceback" not in ended.err
    lines = ended.err.splitlines()
    assert 1 == len(lines), ended.err
    return lines[0]


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_sacct_output_is_refused_by_name_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    data, says = BAD[name]
    path, out = tmp_path / "input", tmp_path / "out"
    path.write_bytes(data)
    line = refused(path, "--json", out, "--html", tmp_path / "page", "--data", tmp_path / "data")
    assert says in line
    assert str(path) in line
    assert {"input"} == {entry.name for entry in tmp_path.iterdir()}


# --- what sacct said on standard error, in the file -----------------------------------------------

MESSAGES = (
    "sacct: warning: The 'OverTimeLimit' option is deprecated|and ignored\n"
    "slurm_load_federation: error: no answer\n"
    "\n"
    "/usr/bin/sacct: error: x|y|z\n"
)
FIXED = (
    "JobID             State    Elapsed \n------------ ---------- ---------- \n"
    "1               TIMEOUT   01:00:00 \n"
)
JSON = json.dumps(
    {"jobs": [{"job_id": 1, "state": {"current": "FAILED"}, "time": {"start": 1, "elapsed": 60}}]}
)


@pytest.mark.parametrize(("mark", "newline"), [("", "\n"), ("", "\r\n"), ("\ufeff", "\n")])
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (GOOD, ""),
        (GOOD.replace("\n", "|\n"), ""),
        (FIXED, ""),
        ("1|TIMEOUT|01:00:00\n", "JobID,State,Elapsed"),
        ('JobID,State,Elapsed,JobName\n1,FAILED,01:00:00,"a,b"\n', ""),
        (JSON, ""),
    ],
    ids=["parsable2", "parsable", "fixed", "no header", "quoted", "json"],
)
def test_messages_before_the_header_are_passed_over(
    mark: str, newline: str, text: str, columns: str, tmp_path: Path
) -> None:
    clean, path = tmp_path / "clean", tmp_path / "input"
    clean.write_text(text)
    path.write_bytes(f"{mark}{MESSAGES}{text}".replace("\n", newline).encode())
    told = [
        json.loads(cedana_poc("analyze", file, "--columns", columns, "--json", "-").out)
        for file in (clean, path)
    ]
    assert told[0]["rows"] == told[1]["rows"]
    assert told[0]["totals"] == told[1]["totals"]
    assert told[0]["totals"]["runs"]


@pytest.mark.parametrize(
    "said",
    [
        "sacct: error: Problem talking to the database: Connection refused",
        "-bash: sacct: command not found",
        "bash: line 1: sacct: command not found",
        "slurmdbd: error: x",
        "/usr/bin/sacct: error while loading shared libraries: libslurmfull.so",
    ],
)
def test_a_file_of_messages_alone_is_refused_with_the_first_one(said: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(f"{said}\nsacct: error: again\n")
    line = refused(path)
    assert f"{path}: " in line
    assert f"no output of sacct but the message {said!r}" in line


def test_a_message_before_rows_without_a_header_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("sacct: error: one\n1|TIMEOUT|01:00:00\n")
    line = refused(path)
    assert "--columns" in line
    assert "'sacct: error: one'" in line


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(f"sacct: error: {'x' * 5000}\n")
    assert len(refused(path)) < 400 + len(str(path))


def test_lines_are_counted_from_the_first_message_on(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(f"sacct: error: one\n{HEADER}1.23E+07|FAILED|01:00:00\n")
    assert "line 3, column jobid" in refused(path)
    path.write_text(f"sacct: error: one\n{HEADER}1|FAILED|01:00:00\n" + "garbage\n" * 3)
    assert "line 4: 1 fields" in " ".join(cedana_poc("analyze", path).err.split())


# --- paths ----------------------------------------------------------------------------------------


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none")
    assert "directory" in refused(tmp_path)


def test_a_wrong_number_of_columns_is_told_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("1|TIMEOUT|01:00:00\n")
    line = refused(path, "--columns", "JobID,State")
    assert "2 columns" in line
    assert "3" in line


def test_files_without_a_row_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text(HEADER)
    second.write_text(HEADER)
    line = refused(first, second)
    assert "no rows" in line
    assert f"{first} and 1 more" in line


def test_a_day_without_a_row_among_others_is_no_error(tmp_path: Path) -> None:
    path, quiet = tmp_path / "input", tmp_path / "quiet"
    path.write_text(GOOD)
    quiet.write_text(GOOD.partition("\n")[0] + "\n")
    assert 0 == cedana_poc("analyze", quiet, path, quiet).code


# --- one input twice ------------------------------------------------------------------------------


def test_standard_input_cannot_be_read_twice() -> None:
    line = refused("-", "-")
    assert "standard input" in line
    assert "twice" in line


def test_a_pipe_cannot_be_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    line = refused(tmp_path / "pipe", tmp_path / "pipe")
    assert str(tmp_path / "pipe") in line
    assert "twice" in line


def linked(path: Path) -> Path:
    link = path.with_name("link")
    link.symlink_to(path)
    return link


def copied(path: Path) -> Path:
    copy = path.with_name("copy.gz")
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("again", [lambda path: path, linked, copied])
@pytest.mark.parametrize(
    "text",
    [
        "User|State|Elapsed\nu|FAILED|01:00:00\n",
        "JobID      State    Elapsed \n-------- ---------- ---------- \n"
        "1234567+     FAILED   01:00:00 \n",
    ],
    ids=["no job id", "ids cut off"],
)
def test_a_file_whose_rows_cannot_be_told_apart_is_not_counted_twice(
    text: str, again: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_text(text)
    other = again(path)
    line = refused(path, other)
    assert f"{other}: " in line
    assert "same content" in line
    assert str(path) in line


def test_a_file_with_job_ids_may_be_named_twice(tmp_path: Path) -> None:
    """Its records are recognised."""
    path = tmp_path / "input"
    path.write_text(GOOD)
    once, twice = (cedana_poc("analyze", *files, "--json", "-") for files in ([path], [path] * 2))
    assert json.loads(once.out)["totals"] == json.loads(twice.out)["totals"]
    assert {"identical copies": 2} == json.loads(twice.out)["rows"]["left_out"]


# --- columns and options --------------------------------------------------------------------------


def test_columns_that_differ_from_the_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    assert "header" in refused(path, "--columns", "JobID,State,Elapsed")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--timezone", "Mars/Base"), ("--since", "yesterday"), ("--until", "31.03.2026")],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    line = refused(path, option, value)
    assert option in line
    assert value in line


def partitions(counts: Mapping[str, int]) -> str:
    names = [name for name, count in counts.items() for _ in range(count)]
    return printed(
        [row(str(n), "FAILED", "01:00:00", "02:00:00", partition=p) for n, p in enumerate(names, 1)]
    )


def test_a_partition_that_no_run_has_is_answered_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(partitions({"short": 2, "gpu": 3, "": 1}))
    line = refused(path, "--partition", "gpus", "--json", tmp_path / "out")
    assert line.startswith("cedana-poc: --partition: no run is in gpus; ")
    assert line.endswith("there are gpu (3), short (2)")
    assert not (tmp_path / "out").exists()


def test_of_many_partitions_the_largest_ten_are_named(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(partitions({f"p{n:02}": n for n in range(1, 13)}))
    line = refused(path, "--partition", "p0,p13")
    assert "no run is in p0 or p13" in line
    assert line.endswith("there are p12 (12), p11 (11), p10 (10), p09 (9), p08 (8), p07 (7), "
                         "p06 (6), p05 (5), p04 (4), p03 (3) and 2 more")  # fmt: skip


def test_one_partition_of_several_that_no_run_has_is_told_beside_the_figures(
    tmp_path: Path,
) -> None:
    path = tmp_path / "input"
    path.write_text(partitions({"short": 2, "gpu": 3}))
    ended = cedana_poc("analyze", path, "--partition", "gpu,gpus", "--json", "-")
    assert 0 == ended.code
    assert 3 == json.loads(ended.out)["totals"]["runs"]
    (line,) = ended.err.splitlines()
    assert "no run is in gpus" in line


def test_a_partition_of_a_file_without_partitions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(f"{HEADER}1|FAILED|01:00:00\n")
    line = refused(path, "--partition", "gpu")
    assert "--partition" in line
    assert "no Partition column" in line


def test_a_partition_with_runs_outside_the_period_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(partitions({"short": 2, "gpu": 3}))
    ended = cedana_poc("analyze", path, "--partition", "gpu", "--until", "2020-01-01", "--names")
    assert (0, "") == (ended.code, ended.err)


@pytest.mark.parametrize("value", ["", ",", " , "])
def test_an_empty_partition_is_not_taken_for_all(value: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    assert "--partition" in refused(path, "--partition", value)


def test_since_after_until_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    assert "not before" in refused(path, "--since", "2026-03-02", "--until", "2026-03-01")


@pytest.mark.parametrize("option", ["--json", "--html", "--data"])
def test_an_output_that_cannot_be_written_is_told_before_any_work(
    option: str, tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    assert "missing" in refused(path, option, tmp_path / "missing" / "out")


def test_a_file_that_may_not_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the file nor its folder: only its temporary folder is open to an ordinary user."""
    path = tmp_path / "input"
    path.write_text(GOOD)
    path.chmod(0)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        with ordinary_user():
            assert f"{path}: cannot be read (Permission denied)" in refused(path, "--names")


def test_a_full_disk_leaves_the_earlier_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    with small_file_system(tmp_path / "small", "size=16k") as folder:
        page = folder / "page.html"
        page.write_text("earlier")
        line = refused(path, "--html", page)
        assert "page.html" in line
        assert "earlier" == page.read_text()
        assert ["page.html"] == [entry.name for entry in folder.iterdir()]


def test_too_many_unreadable_rows_give_the_account_and_no_headline(tmp_path: Path) -> None:
    path, out = tmp_path / "input", tmp_path / "out"
    path.write_text(f"{HEADER}1|FAILED|01:00:00\n" + "garbage\n" * 3)
    ended = cedana_poc("analyze", path, "--json", out, "--names")
    assert (2, "") == (ended.code, ended.out)
    assert "WALL-ENDED" not in ended.err
    assert "unreadable" in ended.err
    assert not out.exists()


def test_one_unreadable_row_is_counted_and_the_rest_is_used(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(f"{HEADER}1|FAILED|01:00:00\ngarbage\n2|TIMEOUT|01:00:00\n")
    ended = cedana_poc("analyze", path, "--names")
    assert 0 == ended.code
    assert "1 unreadable" in ended.out


# --- signals --------------------------------------------------------------------------------------

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@contextlib.contextmanager
def started(scratch: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own that reads a pipe which stays open, in full swing."""
    pipe = scratch.parent / "pipe"
    os.mkfifo(pipe)
    scratch.mkdir()
    process = subprocess.Popen(
        [*PROGRAM, "analyze", str(pipe), "--names", *map(str, arguments)],
        stderr=subprocess.PIPE, text=True, env=environment(TMPDIR=str(scratch)),
    )  # fmt: skip
    with pipe.open("w") as feed:
        feed.write(GOOD)
        feed.flush()
        deadline = time.monotonic() + 30
        while not any(scratch.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        yield process


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_signal_ends_with_128_and_its_number_and_leaves_nothing_behind(
    sent: signal.Signals, tmp_path: Path
) -> None:
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    with started(scratch, "--json", out) as process:
        process.send_signal(sent)
        _, told = process.communicate(timeout=30)
    assert SIGNALS[sent] == process.returncode
    assert ["cedana-poc: interrupted"] == told.splitlines()
    assert [] == list(scratch.iterdir())
    assert not out.exists()


def test_a_signal_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with started(scratch) as process:
            process.send_signal(signal.SIGHUP)
        _, told = process.communicate(timeout=30)
    finally:
        signal.signal(signal.SIGHUP, earlier)
    assert (0, "") == (process.returncode, told)


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_signal_while_the_database_works_is_no_traceback(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """DuckDB makes an error of its own of what a signal raises.

    With one thread it looks for signals all the time, else when a query is done at the latest.
    """
    path, scratch = tmp_path / "input", tmp_path / "scratch"
    path.write_text(GOOD)
    scratch.mkdir()
    slow = (
        "import os, threading, cedana_poc.analysis as a\n"
        "def analyse(loaded, *_):\n"
        f"    threading.Timer(0.5, os.kill, (os.getpid(), {int(sent)})).start()\n"
        "    loaded.connection.execute('SET threads = 1')\n"
        "    loaded.connection.execute('SELECT sum(hash(a.range + b.range)) "
        "FROM range(10000000) a, range(1000) b')\n"
        "a.analyse = analyse\n"
        "from cedana_poc.cli import main; main()\n"
    )
    ended = subprocess.run(
        [PROGRAM[0], "-c", slow, "analyze", str(path), "--names"],
        capture_output=True, text=True, env=environment(TMPDIR=str(scratch)), timeout=60,
    )  # fmt: skip
    assert ["cedana-poc: interrupted"] == ended.stderr.splitlines()
    assert SIGNALS[sent] == ended.returncode
    assert [] == list(scratch.iterdir())
