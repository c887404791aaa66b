"""Rows broken by their own text: put right, or counted; never a wrong value."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import dialects as d
import pytest
from dialects import DAY, JOBS, Job

from cedana_poc import sacct
from cedana_poc.errors import UserError
from cedana_poc.sacct import source
from cedana_poc.sacct.account import Account
from cedana_poc.sacct.dialect import sniff
from cedana_poc.sacct.grammar import Kind, well_formed
from cedana_poc.sacct.load import load
from cedana_poc.sacct.repair import Joiner, Line, Row, Unreadable

HOSTILE = ("plain", "a|b", "a\nb", 'unbalanced " quote', '5" wafer', "caf\udce9", "tab\there")
"""The shapes of a published test: a good half of the readers lose rows of it in silence."""

HERE_DOC = "sbatch <<EOF\n#!/bin/bash\n\n" + "srun ./a | tee b || exit 1\n" * 500 + "EOF"

TEXTS = {
    "newline": "a\nb",
    "newlines": "a\n\n\nb\nc",
    "newline first": "\na",
    "newline and digits": "a\n1",
    "pipe": "a|b",
    "pipes": "||a||b|",
    "pipe and newline": "a|b\nc|d|e\n|f",
    "quotes": '"\'`""',
    "tab": "\ta\tb",
    "carriage return": "a\rb\r\nc",
    "not UTF-8": "\udcff\udce9 a",
    "other line ends": "a\x0bb\x0cc\x85d\u2028e",
    "wide": "日本語 🙂 é",
    "state": "TIMEOUT",
    "time": "2024-05-01T00:00:00",
    "job": "123|a",
    "comma": "a,b,,c",
    "here-document": HERE_DOC,
    "long": "x" * 100_000,
    "blank": " ",
}
FIRST = ("jobname", *d.RECOMMENDED[:-2])
MIDDLE = d.DEFAULT
LAST = (*d.RECOMMENDED[:-2], "jobname")


def read(path: Path, data: bytes) -> sacct.Runs:
    path.write_bytes(data)
    return sacct.read(path, timezone="UTC")


def account_of(path: Path, data: bytes) -> Account:
    path.write_bytes(data)
    with load([path], zone="UTC") as loaded:
        return loaded.account


def typed(jobs: Sequence[Job], columns: Sequence[str]) -> dict[str, dict[str, object]]:
    """The typed values that must come back, by job."""
    found = {job.printed_id: d.truth(job) for job in jobs}
    if "cluster" not in columns:
        for row in found.values():
            row.update(cluster=None, id=row["job"], reservation=None)
    return found


def came_back(runs: sacct.Runs) -> dict[str, dict[str, object]]:
    keys = d.truth(JOBS[0]).keys()
    return {row["job"]: {key: row[key] for key in keys} for row in runs.frame.to_dicts()}


def bare(text: str, delimiter: str = "|") -> str:
    """Text as every dialect can carry it: white space and broken bytes are not kept exactly."""
    shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(shown.replace(delimiter, "\x1f").split())


def in_line(names: Sequence[str]) -> list[Job]:
    """Jobs with these names, between others."""
    return [JOBS[0], *d.renamed(names), JOBS[2], JOBS[3]]


@pytest.mark.parametrize("columns", [FIRST, MIDDLE, LAST, d.RECOMMENDED])
@pytest.mark.parametrize("delimiter", ["|", ",", "\t", ";|;"])
def test_hostile_file_gives_seven_of_seven(
    tmp_path: Path, columns: tuple[str, ...], delimiter: str
) -> None:
    jobs = d.renamed(HOSTILE)
    runs = read(tmp_path / "f", d.delimited(jobs, columns, delimiter=delimiter))
    assert typed(jobs, columns) == came_back(runs)
    assert ["TIMEOUT"] * 7 == runs.frame["state"].to_list()
    assert [bare(name) for name in HOSTILE] == [bare(name) for name in runs.frame["name"]]
    assert not runs.account.left_out


@pytest.mark.parametrize("columns", [FIRST, MIDDLE, LAST], ids=["first", "middle", "last"])
@pytest.mark.parametrize("delimiter", ["|", "\t", "^|^"])
@pytest.mark.parametrize("trailing", [False, True], ids=["P", "p"])
def test_any_text_in_the_name_leaves_every_row_right(
    tmp_path: Path, columns: tuple[str, ...], delimiter: str, trailing: bool
) -> None:
    """Each hostile text between good rows, then all of them one after the other."""
    names = [text.replace("|", delimiter) for text in TEXTS.values()]
    spaced = [job for pair in zip(d.renamed(names), _good(len(names)), strict=True) for job in pair]
    for jobs in (spaced, in_line(names)):
        data = d.delimited(jobs, columns, delimiter=delimiter, trailing=trailing)
        runs = read(tmp_path / "f", data)
        assert typed(jobs, columns) == came_back(runs)
        assert not runs.account.left_out
        assert [] == renamed_runs(jobs, runs, delimiter)


def renamed_runs(jobs: Sequence[Job], runs: sacct.Runs, delimiter: str) -> list[str]:
    """Jobs whose name did not come back. (Names are long: a failed comparison would take hours.)"""
    names = dict(zip(runs.frame["job"], runs.frame["name"], strict=True))
    return [
        f"{job.printed_id}: {job.name[:20]!r} {names[job.printed_id][:20]!r}"
        for job in jobs
        if bare(job.name, delimiter) != bare(names[job.printed_id] or "", delimiter)
    ]


def _good(count: int) -> list[Job]:
    return [replace(JOBS[0], id=n, submit=DAY + n) for n in range(1, count + 1)]


@pytest.mark.parametrize("columns", [FIRST, MIDDLE, LAST], ids=["first", "middle", "last"])
def test_comma_in_tres_node_list_and_name(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """A comma inside a list belongs to it; only text may lie between."""
    jobs = in_line([text for text in TEXTS.values() if "," not in text])
    runs = read(tmp_path / "f", d.delimited(jobs, columns, delimiter=","))
    assert typed(jobs, columns) == came_back(runs)
    assert not runs.account.left_out


def test_commas_in_a_name_beside_a_list_are_not_guessed(tmp_path: Path) -> None:
    """`x,a,b` may be name and user and partition in more than one way."""
    jobs = [*d.renamed(["a,b", "a=1,b=2", "cpu=1,mem=2G", "cn[1,2]", ",,"]), *_good(5)]
    account = account_of(tmp_path / "f", d.delimited(jobs, MIDDLE, delimiter=","))
    assert 5 == account.runs
    assert {"unreadable": 5} == account.left_out


def test_array_block_with_commas_is_one_row(tmp_path: Path) -> None:
    block = d.record(JOBS[0]) | {"jobid": "99_[1,5-7%2]", "state": "PENDING", "end": "Unknown"}
    data = d.delimited(JOBS, MIDDLE, delimiter=",")
    row = ",".join(block[column] for column in MIDDLE).encode() + b"\n"
    account = account_of(tmp_path / "f", data + row)
    assert {"array blocks": 1, "steps": 3} == account.left_out


def test_all_text_columns_at_once(tmp_path: Path) -> None:
    columns = (*d.RECOMMENDED, "comment", "submitline")
    jobs = [
        replace(job, work_dir="/a|b\nc", name='x"\ny|', comment="\n|", submit_line=HERE_DOC)
        for job in d.renamed(["a", "b", "c"])
    ]
    runs = read(tmp_path / "f", d.delimited([*jobs, JOBS[0]], columns))
    assert typed([*jobs, JOBS[0]], columns) == came_back(runs)


@pytest.mark.parametrize("delimiter", ["|", ",", "☃"])
@pytest.mark.parametrize("columns", [FIRST, MIDDLE, LAST])
def test_block_borders_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...], delimiter: str
) -> None:
    names = [text for text in TEXTS.values() if len(text) < 100]
    data = d.delimited([*in_line(names), *JOBS], columns, delimiter=delimiter)
    data += b"garbage\n" + d.delimited(d.renamed(names[:3]), columns, delimiter=delimiter)
    whole = account_of(tmp_path / "f", data)
    for size in (64, 100, 333, 1000, 4096):
        monkeypatch.setattr(source, "BLOCK", size)
        piecemeal = account_of(tmp_path / "f", data)
        assert whole.left_out == piecemeal.left_out
        assert (whole.rows_in, whole.repaired) == (piecemeal.rows_in, piecemeal.repaired)
        assert (whole.repairs, whole.unreadable) == (piecemeal.repairs, piecemeal.unreadable)


def test_repairs_are_listed_by_line_without_the_text(tmp_path: Path) -> None:
    private = "hush\nhush|hush"
    runs = read(tmp_path / "f", d.delimited([JOBS[0], *d.renamed([private]), JOBS[2]]))
    (repair,) = runs.account.repairs
    assert 3 == repair.line
    assert "hush" not in repair.problem
    assert 1 == runs.account.repaired


def test_steps_with_broken_names_are_steps(tmp_path: Path) -> None:
    steps = tuple(d.Step(str(n), name, "COMPLETED") for n, name in enumerate(HOSTILE))
    job = replace(JOBS[1], steps=steps)
    for columns in (FIRST, MIDDLE, LAST):
        account = account_of(tmp_path / "f", d.delimited([job, JOBS[0]], columns))
        assert {"steps": 7} == account.left_out
        assert 2 == account.runs


def joined(data: bytes) -> list[Row | Unreadable]:
    """What the joiner makes of a file every line of which is doubtful."""
    dialect = sniff(data)
    joiner = Joiner(dialect)

    def settled() -> Iterator[Row | Unreadable]:
        for number, raw in enumerate(data[dialect.skip :].split(b"\n")[:-1], start=2):
            yield from joiner.feed(Line(number, raw, False))
        yield from joiner.finish()

    return list(settled())


def unreadable_lines(data: bytes) -> list[int]:
    return [found.number for found in joined(data) if isinstance(found, Unreadable)]


HEAD = b"JobID|JobName|Partition|State|Elapsed|NNodes\n"


def test_row_that_lost_its_end_does_not_take_that_of_the_next() -> None:
    """`1|a` and `2|b`, `c|…` may be a row of job 1 or one of job 2: neither is used."""
    assert [2, 4] == unreadable_lines(HEAD + b"1|a\n2|b\nc|cpu|TIMEOUT|01:00:00|1\n")


def test_row_that_lost_its_end_before_a_good_one_is_counted() -> None:
    found = joined(HEAD + b"1|a\n2|b|cpu|TIMEOUT|01:00:00|1\n")
    assert isinstance(found[0], Unreadable)
    assert [["2", "b", "cpu", "TIMEOUT", "01:00:00", "1"]] == [
        row.fields for row in found if isinstance(row, Row)
    ]


def test_rows_of_another_shape_are_not_joined_to_each_other() -> None:
    """Two rows that lack a column each have the right count of delimiters together."""
    data = HEAD + b"".join(b"%d|a|cpu|TIMEOUT|01:00:00\n" % n for n in range(1, 21))
    assert list(range(2, 22)) == unreadable_lines(data)


def test_row_with_two_readings_is_counted_not_guessed() -> None:
    """With text on both sides of Partition, it may be `a`, `b` or `c`."""
    head = b"JobID|JobName|Partition|Comment|State|Elapsed\n"
    assert [2] == unreadable_lines(head + b"1|x|a|b|c|y|TIMEOUT|01:00:00\n")
    assert [] == unreadable_lines(head + b"1|x|a|y|TIMEOUT|01:00:00\n")


def test_name_that_holds_the_end_of_a_row_is_counted_not_guessed() -> None:
    head = b"JobID|JobName|State|Elapsed|Comment\n"
    assert [2] == unreadable_lines(head + b"1|x|FAILED|00:01:00|TIMEOUT|01:00:00|y\n")


@pytest.mark.parametrize("columns", [FIRST, MIDDLE, LAST], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", ["state", "one delimiter less", "one more"])
def test_damaged_row_is_counted_and_its_neighbours_are_right(
    tmp_path: Path, columns: tuple[str, ...], damage: str
) -> None:
    lines = d.delimited([JOBS[0], *d.renamed(["b"]), JOBS[2]], columns).splitlines()
    change: dict[str, Callable[[bytes], bytes]] = {
        "state": lambda line: line.replace(b"TIMEOUT", b"TIM3OUT"),
        "one delimiter less": lambda line: line.replace(b"|TIMEOUT", b"TIMEOUT"),
        "one more": lambda line: line.replace(b"|TIMEOUT|", b"|TIMEOUT||"),
    }
    lines[2] = change[damage](lines[2])
    runs = read(tmp_path / "f", b"\n".join(lines) + b"\n")
    assert typed([JOBS[0], JOBS[2]], columns) == came_back(runs)
    assert {"unreadable": 1} == runs.account.left_out
    (unreadable,) = runs.account.unreadable
    assert 3 == unreadable.line or "200" in unreadable.problem


def test_garbage_between_rows_never_changes_a_value(tmp_path: Path) -> None:
    garbage = b"sacct: error: lost connection\n<html>\n\x01\x02\n|||\n1|2|3\n"
    for columns in (FIRST, MIDDLE, LAST):
        lines = d.delimited(JOBS, columns).splitlines(keepends=True)
        data = garbage.join(lines[:4]) + b"".join(lines[4:])
        (tmp_path / "f").write_bytes(data)
        with load([tmp_path / "f"]) as loaded:
            query = "SELECT job, state, elapsed, nodes, cpus, gpus FROM runs ORDER BY submit, job"
            found = loaded.connection.execute(query).fetchall()
            assert loaded.account.repaired + loaded.account.left_out["unreadable"] > 0
        assert [
            (j.printed_id, j.base_state, j.elapsed, j.nodes, j.cpus, j.gpus) for j in JOBS
        ] == found


@pytest.mark.parametrize(("good", "bad", "readable"), [(5, 1, True), (5, 2, False)])
def test_one_unreadable_row_is_borne_two_of_a_few_are_not(
    tmp_path: Path, good: int, bad: int, readable: bool
) -> None:
    assert readable == account_of(tmp_path / "f", _rows(good, bad)).readable


@pytest.mark.parametrize(("bad", "readable"), [(5, True), (6, False)])
def test_one_row_in_a_thousand_may_be_unreadable(tmp_path: Path, bad: int, readable: bool) -> None:
    account = account_of(tmp_path / "f", _rows(5000 - bad, bad))
    assert 5000 == account.rows_in
    assert readable == account.readable


def _rows(good: int, bad: int) -> bytes:
    lines = d.delimited(_good(good + bad), MIDDLE).splitlines(keepends=True)
    for place in range(bad):
        lines[2 * place + 1] = b"|".join(lines[2 * place + 1].split(b"|")[:9]) + b"\n"
    return b"".join(lines)


def test_too_many_unreadable_rows_are_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rows are unreadable") as caught:
        read(tmp_path / "f", _rows(5, 3))
    assert "\n" not in str(caught.value)


NASTY = {
    "text": b"some text, and | pipes\n" * 40_000,
    "fragments": b"".join(b"%d|foo\n" % n for n in range(40_000)),
    "fragments, other shape": b"1|a|cpu|TIMEOUT|01:00:00\n" * 40_000,
    "blank lines": b"1|a\n" + b"\n" * 200_000,
    "delimiters": b"1|" + b"a|" * 500_000 + b"\n",
    "delimiters in many lines": b"1|" + b"a|\n" * 19_000,
    "one long line": b"x" * 8_000_000 + b"\n",
    "beginnings": b"1|a\n2\n" * 40_000,
}


@pytest.mark.parametrize("head", [HEAD, b"JobName|" + HEAD.replace(b"JobName|", b"")])
@pytest.mark.parametrize("nasty", NASTY)
def test_no_input_takes_more_than_linear_time(nasty: str, head: bytes) -> None:
    """A second or less each; were one quadratic, it would be minutes."""
    before = time.process_time()
    joined(head + b"9|z|cpu|TIMEOUT|01:00:00|1\n" + NASTY[nasty])
    assert time.process_time() - before < 20


def test_node_list_of_brackets_is_judged_at_once() -> None:
    before = time.process_time()
    assert not well_formed(Kind.NODES, "[1" * 5000 + "!")
    assert time.process_time() - before < 5


def test_text_longer_than_any_of_slurm_is_read(tmp_path: Path) -> None:
    """SubmitLine may have a mebibyte; nothing breaks beyond it."""
    jobs = in_line(["y" * 5_000_000, "z\n" * 100_000, '"' * 4_000_000])
    runs = read(tmp_path / "f", d.delimited(jobs))
    assert typed(jobs, d.RECOMMENDED) == came_back(runs)
