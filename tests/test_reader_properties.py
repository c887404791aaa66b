"""Whatever a field holds and however a file is damaged: no wrong number, every row counted."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import dialects as d
from hypothesis import given, settings
from hypothesis import strategies as st
from proving import examples

from cedana_poc.errors import UserError
from cedana_poc.sacct.frame import Runs, read
from cedana_poc.sacct.load import load

# Fewer delimiters than a row has, so that no text is a whole row: such a text, and the row it
# imitates, cannot be told apart by anyone.
TEXT = st.text(
    st.sampled_from("ab1 ,;:|\t\"'\n\r_-.=[]<>/☃é\x1f^"), max_size=len(d.RECOMMENDED) - 2
)
DELIMITERS = st.sampled_from(["|", ",", ";", "\t", "\x1f", "☃", "^|^", ";|;"])


@st.composite
def histories(draw: st.DrawFn) -> list[d.Job]:
    """Ended jobs whose texts are hostile."""
    states = ["COMPLETED", "TIMEOUT", "FAILED", "CANCELLED by 7", "OUT_OF_MEMORY", "NODE_FAIL"]
    return [
        d.Job(
            100 + number,
            draw(st.sampled_from(states)),
            submit=d.DAY + 100_000 * number,
            elapsed=draw(st.integers(1, 900_000)),
            limit=draw(st.one_of(st.integers(1, 10_000), st.just("UNLIMITED"))),
            nodes=draw(st.integers(1, 2000)),
            cpus=draw(st.integers(1, 100_000)),
            gpus=draw(st.integers(0, 64)),
            name=draw(TEXT),
            work_dir=draw(TEXT),
            comment=draw(TEXT),
        )
        for number in range(draw(st.integers(1, 30)))
    ]


def typed(runs: Runs) -> set[tuple[object, ...]]:
    names = ["id", "state", "elapsed_seconds", "limit_seconds", "nodes", "cpus", "gpus"]
    return set(runs.frame.select(names).rows())


def truth(job: d.Job) -> tuple[object, ...]:
    limit = None if isinstance(job.limit, str) else job.limit * 60
    return (str(job.id), job.base_state, job.elapsed, limit, job.nodes, job.cpus, job.gpus)


def read_bytes(data: bytes) -> Runs | None:
    """The runs of a file with these bytes; None if it is refused, in one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        path.write_bytes(data)
        try:
            return read(path)
        except UserError as error:
            assert len(str(error).splitlines()) == 1
            return None


@settings(max_examples=examples(25))
@given(histories(), DELIMITERS, st.booleans(), st.booleans())
def test_a_run_is_read_as_it_was_or_counted_as_unreadable(
    jobs: list[d.Job], delimiter: str, trailing: bool, first: bool
) -> None:
    """The text columns last, as recommended, or first, where they do most harm."""
    columns = d.RECOMMENDED if not first else (*d.RECOMMENDED[::-1],)
    runs = read_bytes(d.delimited(jobs, columns, delimiter=delimiter, trailing=trailing))
    if runs is None:
        return
    expected = {truth(job) for job in jobs}
    assert typed(runs) <= expected
    left_out = runs.account.left_out
    assert len(expected) - len(runs) <= left_out["unreadable"] + left_out["cut last row"]


@settings(max_examples=examples(15))
@given(histories())
def test_texts_that_need_no_repair_come_back_as_they_were(jobs: list[d.Job]) -> None:
    plain = [
        replace(job, name="".join(c for c in job.name if c not in "|\n\r").strip() or "x")
        for job in jobs
    ]
    plain = [replace(job, work_dir="/w", comment="", submit_line="sbatch x") for job in plain]
    runs = read_bytes(d.delimited(plain, d.RECOMMENDED))
    assert runs is not None
    assert {job.name for job in plain} == set(runs.frame["name"])
    assert 0 == runs.account.repaired


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.sampled_from(["P", "comma", "fixed", "quoted", "json", "noise"]))
def test_a_damaged_file_gives_a_sound_account_or_one_line(seed: int, form: str) -> None:
    """`load` asserts that every row is accounted for; nothing else may be raised than UserError."""
    chance = random.Random(seed)  # noqa: S311
    data = bytearray(undamaged(form, chance))
    for _ in range(chance.randrange(1, 12)):
        at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        match chance.randrange(4):
            case 0:
                del data[at : min(to, at + 40)]
            case 1:
                data[at:at] = data[at : min(to, at + 40)]
            case 2:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 5)))
            case _:
                lines = bytes(data).split(b"\n")
                chance.shuffle(lines)
                data = bytearray(b"\n".join(lines))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        path.write_bytes(data)
        try:
            with load([path]) as loaded:
                account = loaded.account
                assert account.rows_in == account.runs + sum(account.left_out.values())
        except UserError as error:
            assert len(str(error).splitlines()) == 1


def undamaged(form: str, chance: random.Random) -> bytes:
    match form:
        case "P":
            return d.delimited(d.JOBS, d.RECOMMENDED)
        case "comma":
            return d.delimited(d.JOBS, d.RECOMMENDED, delimiter=",")
        case "fixed":
            return d.fixed(d.JOBS, {"jobid": -12, "state": 10, "elapsed": 10, "nnodes": 8})
        case "quoted":
            return d.quoted(d.JOBS)
        case "json":
            return d.as_json(d.JOBS, "23.11")
    return chance.randbytes(chance.randrange(1, 3000))
