"""What goes wrong outside the files: cut-off copies, full disks, one path for two things."""

from __future__ import annotations

import errno
import gzip
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from command_line import PROGRAM, cedana_poc, environment
from machine import small_file_system
from traps import Row, analysed, printed, row, step

from cedana_poc.errors import UserError
from cedana_poc.sacct.load import load


def jobs(count: int) -> list[Row]:
    """So many jobs of an hour with a step each."""
    allocations = [
        row(str(n), "TIMEOUT", "01:00:00", "01:00:00") for n in range(1000, 1000 + count)
    ]
    return [one for job in allocations for one in (job, step("batch", "CANCELLED", job))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.psv"
    path.write_text(printed(jobs(3)))
    return path


def left_out(path: Path) -> dict[str, int]:
    with load([path]) as loaded:
        account = loaded.account
        assert account.rows_in == account.runs + account.left_out.total()
        return dict(account.left_out)


# --- copies that were cut off ---------------------------------------------------------------------

LAST = row("2000", "TIMEOUT", "01:00:00", "01:00:00")


@pytest.mark.parametrize(
    "last",
    ["20", "2000|2000|heron|c", "TIMEO", "2026-03-02T08:", "|01:0", "billing=4,c", "|cn001|"],
)
def test_a_last_row_cut_anywhere_is_left_out_as_such_and_the_rest_is_used(
    tmp_path: Path, last: str
) -> None:
    text = printed([*jobs(2), LAST])
    start = text.index("2000|")
    path = tmp_path / "cut.psv"
    path.write_text(text[: text.index(last, start) + len(last)])
    assert {"steps": 2, "cut last row": 1} == left_out(path)


def compressed(data: bytes, kind: str) -> bytes:
    return gzip.compress(data) if kind == "gz" else zstandard.ZstdCompressor(1).compress(data)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_rows_before_the_cut_of_a_compressed_file_are_used(tmp_path: Path, kind: str) -> None:
    """Half of 4,000 rows, and a warning that says so."""
    data = compressed(printed(jobs(2000)).encode(), kind)
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(data[: len(data) // 2])
    told = analysed(path)
    assert 200 < told.document["totals"]["runs"] < 2000
    assert [("warning", True)] == [(s, "cut off" in d) for s, d in told.check("end of file")]
    assert told.document["rows"]["left_out"].get("unreadable", 0) == 0


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_compressed_file_cut_before_its_first_row_is_not_called_empty(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(compressed(printed(jobs(2000)).encode(), kind)[:16])
    with pytest.raises(UserError, match="cut off"):
        analysed(path)


# --- disks that are full --------------------------------------------------------------------------


def test_a_full_disk_behind_standard_output_is_told_in_one_line(file: Path) -> None:
    for options in (["--json", "-"], []):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [*PROGRAM, "analyze", str(file), *options],
                stdout=full, stderr=subprocess.PIPE, text=True, env=environment(),
            )  # fmt: skip
        assert 2 == ended.returncode
        (line,) = ended.stderr.splitlines()
        assert line.startswith("cedana-poc: standard output: cannot be written")


def test_no_room_for_temporary_files_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "sacct.psv"
    path.write_text(printed(jobs(2000)))
    with small_file_system(tmp_path / "small") as folder:
        ended = subprocess.run(
            [*PROGRAM, "analyze", str(path), "--json", str(tmp_path / "out")],
            capture_output=True, text=True, env=environment(TMPDIR=str(folder)),
        )  # fmt: skip
        assert [] == list(folder.iterdir())
    assert (2, "") == (ended.returncode, ended.stdout)
    (line,) = ended.stderr.splitlines()
    assert str(folder) in line
    assert "TMPDIR" in line
    assert not (tmp_path / "out").exists()


# --- one path for two things ----------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_an_input_is_never_written_over(file: Path, option: str) -> None:
    before = file.read_bytes()
    ended = cedana_poc("analyze", file, option, file.parent / "." / file.name)
    assert (2, "") == (ended.code, ended.out)
    assert str(file) in ended.err
    assert before == file.read_bytes()


def test_two_outputs_cannot_have_one_path(file: Path, tmp_path: Path) -> None:
    ended = cedana_poc("analyze", file, "--json", tmp_path / "out", "--html", tmp_path / "out")
    assert (2, "") == (ended.code, ended.out)
    assert str(tmp_path / "out") in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_no_output_is_in_the_folder_of_tables(file: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "data").mkdir()
    ended = cedana_poc("analyze", file, "--data", tmp_path / "data", option, tmp_path / "data/out")
    assert (2, "") == (ended.code, ended.out)
    assert "another output is in this folder" in ended.err
    assert [] == list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_one_output_that_fails_takes_the_others_back(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real: Callable[[Path, Path], None] = getattr(os, call)

    def failing(old: Path, new: Path) -> None:
        if Path(new).name in ("data", "report.html"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(old, new)

    monkeypatch.setattr(os, call, failing)
    outputs = {"--json": "out.json", "--html": "report.html", "--data": "data"}
    options = [word for option, name in outputs.items() for word in (option, tmp_path / name)]
    ended = cedana_poc("analyze", file, *options)
    assert (2, "") == (ended.code, ended.out)
    (line,) = ended.err.splitlines()
    assert os.strerror(errno.EIO) in line
    assert [file.name] == [entry.name for entry in tmp_path.iterdir()]
