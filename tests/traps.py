"""Accounting files made by hand, one way of reading sacct wrong in each, and how to read them.

`row` prints one allocation as `sacct -a -D -P` does. What a test does not name takes a value that
makes no difference, so that the row says what the trap is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cedana_poc import analysis
from cedana_poc.sacct.load import load
from cedana_poc.sacct.wanted import Filter

COLUMNS = tuple(
    "JobID JobIDRaw Cluster User Account Partition QOS State ExitCode Submit Start End Elapsed "
    "Suspended Timelimit NNodes NCPUS ReqMem AllocTRES NodeList Reservation SubmitLine "
    "JobName".split()
)
Row = Mapping[str, str]


def seconds(duration: str) -> int:
    """`[D-]HH:MM:SS` in seconds."""
    days, _, clock = duration.rpartition("-")
    hours, minutes, rest = map(int, clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest


def later(stamp: str, duration: str) -> str:
    """A time stamp, so much later."""
    moment = datetime.fromisoformat(stamp) + timedelta(seconds=seconds(duration))
    return moment.isoformat(timespec="seconds")


def row(job: str, state: str, elapsed: str, limit: str, **fields: str) -> Row:
    """One allocation of one node and four CPUs; others of `COLUMNS` by their lower-case names."""
    named = {name.lower(): name for name in COLUMNS}
    given = {named[name]: value for name, value in fields.items()}
    start = given.get("Start", "2026-03-02T08:00:00")
    suspended = given.get("Suspended", "00:00:00")
    nodes, cpus = given.get("NNodes", "1"), given.get("NCPUS", "4")
    computed = {
        "JobID": job,
        "JobIDRaw": job.partition("_")[0],
        "Cluster": "heron",
        "User": given.get("Partition", "cpu"),
        "Account": "lab",
        "Partition": "cpu",
        "QOS": "normal",
        "State": state,
        "ExitCode": "0:0",
        "Submit": later(start, "00:00:00") if start[0] == "2" else "2026-03-02T07:00:00",
        "Start": start,
        "End": later(later(start, elapsed), suspended) if start[0] == "2" else start,
        "Elapsed": elapsed,
        "Suspended": suspended,
        "Timelimit": limit,
        "NNodes": nodes,
        "NCPUS": cpus,
        "ReqMem": "4G",
        "AllocTRES": f"billing={cpus},cpu={cpus},mem=4G,node={nodes}",
        "NodeList": "cn001",
        "Reservation": "",
        "SubmitLine": f"sbatch {job}.sh",
        "JobName": f"j{job}",
    }
    return computed | given


def never(job: str, state: str, limit: str, **fields: str) -> Row:
    """An allocation that was never given a node."""
    nothing = {
        "start": "None",
        "end": "2026-03-02T09:00:00",
        "alloctres": "",
        "nodelist": "None assigned",
    }
    return row(job, state, "00:00:00", limit, **(nothing | fields))


def step(suffix: str, state: str, of: Row, **fields: str) -> Row:
    """A step of an allocation, in which what belongs to the job alone is empty."""
    named = {name.lower(): name for name in COLUMNS}
    empty = dict.fromkeys(
        ("User", "Partition", "QOS", "Timelimit", "ReqMem", "Reservation", "SubmitLine"), ""
    )
    return {
        **of,
        **empty,
        "JobID": f"{of['JobID']}.{suffix}",
        "JobIDRaw": f"{of['JobIDRaw']}.{suffix}",
        "State": state,
        "JobName": suffix,
        **{named[name]: value for name, value in fields.items()},
    }


def printed(
    rows: Sequence[Row],
    columns: Sequence[str] = COLUMNS,
    *,
    delimiter: str = "|",
    without: Sequence[str] = (),
) -> str:
    """Rows as `sacct -P` prints them, under a header."""
    shown = [name for name in columns if name not in without]
    lines = [shown, *([one[name] for name in shown] for one in rows)]
    return "".join(f"{delimiter.join(line)}\n" for line in lines)


@dataclass(frozen=True)
class Run:
    """One ended run as the analysis sees it."""

    job: str
    partition: str | None
    state: str
    kind: str | None
    wall_ended: bool
    cause: str | None
    coverable: str | None
    elapsed: int
    nodes: int | None
    cpus: int | None
    gpus: int | None
    gpu_model: str | None
    memory: float | None
    node_seconds: int | None
    records: int


@dataclass(frozen=True)
class Told:
    """An analysis: its document, and the runs it is made of."""

    document: dict[str, Any]
    runs: tuple[Run, ...]

    def of(self, partition: str) -> list[Run]:
        """The ended runs in a partition, by job id."""
        return [run for run in self.runs if run.partition == partition]

    def kinds(self, partition: str) -> dict[str, str | None]:
        """The kind of each run in a partition, by job id."""
        return {run.job: run.kind for run in self.of(partition)}

    def walls(self, partition: str) -> set[str]:
        """The wall-ended runs in a partition."""
        return {run.job for run in self.of(partition) if run.wall_ended}

    def usage(self, partition: str) -> dict[str, Any]:
        """A partition's row in the breakdown by partition."""
        rows: list[dict[str, Any]] = self.document["breakdowns"]["partition"]
        return next(one for one in rows if one["value"] == partition)

    def check(self, name: str) -> list[tuple[str, str]]:
        """State and detail of the checks of quality that have this name."""
        found = self.document["quality"]
        return [(one["state"], one["detail"]) for one in found if one["check"] == name]

    def chains(self, user: str) -> list[tuple[str, list[str]]]:
        """Tier and job ids of a user's repeats, shown by name."""
        return [
            (chain["tier"], [attempt["job"] for attempt in chain["attempts"]])
            for chain in self.document["repeats"]["chains"]
            if chain["user"] == user
        ]


_RUNS = (
    "SELECT job, partition, state, kind, wall_ended, cause, coverable, elapsed, nodes, cpus, gpus, "
    "gpu_model, memory, node_seconds, records FROM ended ORDER BY job, submit, start, cluster"
)


def analysed(*paths: Path, wanted: Filter | None = None, **options: Any) -> Told:
    """Analyse files, with user names and every row of every table."""
    with load(paths, wanted=wanted, **options) as tables:
        shown = analysis.Options(timezone=options.get("zone"), top=1000)
        document = analysis.analyse(tables, shown)
        rows = tables.connection.execute(_RUNS).fetchall()
    return Told(document, tuple(Run(*one) for one in rows))
