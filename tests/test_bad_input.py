"""Bad input: one line that says what, where and what to do; exit code 2; nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
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


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none")
    assert "directory" in refused(tmp_path)


def test_a_wrong_number_of_columns_is_told_with_both_numbers(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("1|TIMEOUT|01:00:00\n")
    line = refused(path, "--columns", "JobID,State")
    assert "2 columns" in line
    assert "3" in line


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


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text(GOOD)
    path.chmod(0)
    with ordinary_user():
        assert "ermission" in refused(path)


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


def test_ctrl_c_ends_with_130_and_leaves_no_folder_behind(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [*PROGRAM, "analyze", str(pipe), "--names", "--json", str(tmp_path / "out")]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment(TMPDIR=str(scratch))
    )
    with pipe.open("w") as feed:
        feed.write(GOOD)
        feed.flush()
        deadline = time.monotonic() + 30
        while not any(scratch.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert 130 == process.returncode
    assert "interrupted" in told
    assert "Traceback" not in told
    assert [] == list(scratch.iterdir())
    assert not (tmp_path / "out").exists()
