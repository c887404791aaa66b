"""Jobs as Slurm's database knows them, and their records in every dialect that sacct prints."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import zstandard

DAY = 1_714_521_600
"""2024-05-01T00:00:00 UTC."""

SPELLED = {
    name.lower(): name
    for name in (
        "JobID JobIDRaw Cluster User Account Partition QOS State ExitCode Submit Eligible Start "
        "End Elapsed ElapsedRaw Suspended Timelimit TimelimitRaw NNodes NCPUS AllocCPUS ReqMem "
        "AllocTRES ReqTRES NodeList Reservation Restarts Flags JobName Comment WorkDir SubmitLine"
    ).split()
}
"""How sacct prints the names of its fields."""

RECOMMENDED = tuple(
    "cluster jobidraw jobid user account partition qos state exitcode submit eligible start end "
    "elapsedraw suspended timelimitraw nnodes ncpus alloctres reqtres flags nodelist reservation "
    "workdir jobname".split()
)
DEFAULT = tuple(
    "jobid jobname user partition account qos submit eligible start end elapsed state exitcode "
    "timelimit nnodes alloccpus alloctres nodelist".split()
)
"""Text early, as in sacct's own default columns."""

FREE = frozenset({"jobname", "comment", "workdir", "submitline"})


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a job."""

    suffix: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Job:
    """One allocation. Times are seconds since 1970; None where Slurm has none."""

    id: int
    state: str = "COMPLETED"
    submit: int = DAY
    waited: int = 600
    elapsed: int = 3600
    suspended: int = 0
    limit: int | str = 60
    exit_code: tuple[int, int] = (0, 0)
    cluster: str = "heron"
    user: str = "ada"
    account: str = "physics"
    partition: str = "cpu"
    qos: str = "normal"
    nodes: int = 1
    cpus: int = 8
    gpus: int = 0
    node_list: str = "cn001"
    reservation: str = ""
    array: tuple[int, int] | None = None
    het: tuple[int, int] | None = None
    name: str = "run"
    comment: str = ""
    work_dir: str = "/home/ada"
    submit_line: str = "sbatch run.sh"
    steps: tuple[Step, ...] = ()

    @property
    def printed_id(self) -> str:
        if self.array:
            return f"{self.array[0]}_{self.array[1]}"
        return f"{self.het[0]}+{self.het[1]}" if self.het else str(self.id)

    @property
    def start(self) -> int:
        return self.submit + self.waited

    @property
    def end(self) -> int:
        return self.start + self.elapsed + self.suspended

    @property
    def base_state(self) -> str:
        return self.state.split(" ")[0]


JOBS = (
    Job(101, name="plain"),
    Job(
        102,
        "TIMEOUT",
        elapsed=86_417,
        limit=1440,
        nodes=2,
        cpus=128,
        gpus=8,
        partition="gpu",
        node_list="gn[001,003]",
        name="train",
        steps=(
            Step("batch", "batch", "CANCELLED"),
            Step("extern", "extern", "COMPLETED"),
            Step("0", "python3", "CANCELLED"),
        ),
    ),
    Job(103, "CANCELLED by 1000", elapsed=5, submit=DAY + 100, limit="UNLIMITED"),
    Job(104, "OUT_OF_MEMORY", exit_code=(0, 125), submit=DAY + 200, reservation="maint"),
    Job(105, "FAILED", exit_code=(1, 0), array=(99, 7), submit=DAY + 300, suspended=60),
    Job(106, "NODE_FAIL", elapsed=200_000, limit=4320, submit=DAY + 400, qos="long"),
)
"""A few ended jobs, one of each kind of value."""


def clock(seconds: int) -> str:
    """A time stamp as sacct prints it with TZ=UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def duration(seconds: int) -> str:
    """`[D-]HH:MM:SS`."""
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def tres(job: Job) -> str:
    """TRES as printed since 20.02, in alphabetical order."""
    gpus = f"gres/gpu:a100={job.gpus},gres/gpu={job.gpus}," if job.gpus else ""
    return f"billing={job.cpus},cpu={job.cpus},{gpus}mem={job.cpus * 2}G,node={job.nodes}"


def record(job: Job, *, epoch: bool = False) -> dict[str, str]:
    """What sacct prints for the allocation, by canonical field name."""
    stamp: Callable[[int], str] = str if epoch else clock
    limit = job.limit if isinstance(job.limit, str) else duration(job.limit * 60)
    return {
        "jobid": job.printed_id,
        "jobidraw": str(job.id),
        "cluster": job.cluster,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "state": job.state,
        "exitcode": f"{job.exit_code[0]}:{job.exit_code[1]}",
        "submit": stamp(job.submit),
        "eligible": stamp(job.submit),
        "start": stamp(job.start),
        "end": stamp(job.end),
        "elapsed": duration(job.elapsed),
        "elapsedraw": str(job.elapsed),
        "suspended": duration(job.suspended),
        "timelimit": limit,
        "timelimitraw": str(job.limit),
        "nnodes": str(job.nodes),
        "ncpus": str(job.cpus),
        "alloccpus": str(job.cpus),
        "reqmem": f"{job.cpus * 2}G",
        "alloctres": tres(job),
        "reqtres": tres(job),
        "nodelist": job.node_list,
        "reservation": job.reservation,
        "restarts": "0",
        "flags": "SchedMain",
        "jobname": job.name,
        "comment": job.comment,
        "workdir": job.work_dir,
        "submitline": job.submit_line,
    }


def records(job: Job, *, epoch: bool = False) -> list[dict[str, str]]:
    """The allocation and its steps; a step has no user, partition, QOS or limit."""
    whole = record(job, epoch=epoch)
    empty = dict.fromkeys(
        "user partition qos timelimit timelimitraw reservation flags reqtres comment "
        "workdir submitline restarts".split(),
        "",
    )
    steps = [
        {
            **whole,
            **empty,
            "jobid": f"{job.printed_id}.{step.suffix}",
            "jobidraw": f"{job.id}.{step.suffix}",
            "state": step.state,
            "jobname": step.name,
        }
        for step in job.steps
    ]
    return [whole, *steps]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def delimited(
    jobs: Sequence[Job],
    columns: Sequence[str] = RECOMMENDED,
    *,
    delimiter: str = "|",
    header: bool = True,
    trailing: bool = False,
    epoch: bool = False,
    spell: Callable[[str], str] = SPELLED.__getitem__,
) -> bytes:
    """`-P`, or `-p` if trailing. Bytes that are not UTF-8 stand in text as surrogate escapes."""
    rows = [[r[c] for c in columns] for job in jobs for r in records(job, epoch=epoch)]
    if header:
        rows.insert(0, [spell(c) for c in columns])
    end = delimiter if trailing else ""
    return b"".join(_encoded(delimiter.join(row) + end + "\n") for row in rows)


def quoted(
    jobs: Sequence[Job],
    columns: Sequence[str] = RECOMMENDED,
    *,
    delimiter: str = ",",
    every: bool = False,
    header: bool = True,
) -> bytes:
    """CSV as other tools write it from a table of records."""
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter=delimiter,
        quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL,
        lineterminator="\n",
    )
    if header:
        writer.writerow([SPELLED[c] for c in columns])
    writer.writerows([r[c] for c in columns] for job in jobs for r in records(job))
    return _encoded(text.getvalue())


def fixed(
    jobs: Sequence[Job],
    columns: Mapping[str, int],
    *,
    stripped: bool = False,
    header: bool = True,
) -> bytes:
    """As sacct prints to a terminal.

    Args:
        columns: width of each; negative for left-justified.
        stripped: without the space after the last column, as editors leave it.
    """

    def cell(value: bytes, width: int) -> bytes:
        size = abs(width)
        if len(value) > size:
            value = value[: size - 1] + b"+"
        return value.ljust(size) if width < 0 else value.rjust(size)

    names = [_encoded(SPELLED[c])[: abs(w)].rjust(abs(w)) for c, w in columns.items()]
    rows = [
        [cell(_encoded(r[c]), w) for c, w in columns.items()] for job in jobs for r in records(job)
    ]
    if header:
        rows = [names, [b"-" * abs(w) for w in columns.values()], *rows]
    lines = [b" ".join(row) + b" " for row in rows]
    return b"".join((line.rstrip() if stripped else line) + b"\n" for line in lines)


def as_json(jobs: Sequence[Job], version: str) -> bytes:
    """`sacct --json` of Slurm 21.08, 22.05, 23.02, 23.11 (and 24.05) or 24.11 (and later)."""
    document = {"meta": {"Slurm": {"version": version}}, "errors": []}
    return json.dumps({**document, "jobs": [json_job(job, version) for job in jobs]}).encode()


def json_job(job: Job, version: str) -> dict[str, Any]:
    """One element of `jobs`."""
    newer = version >= "23.02"
    listed = version >= "23.11"

    def number(value: int | None) -> Any:
        if not newer:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    def state(text: str) -> Any:
        return [text] if listed else text

    limit: Any = number(job.limit) if isinstance(job.limit, int) else 0xFFFFFFFF
    if newer and not isinstance(job.limit, int):
        limit = {"set": False, "infinite": True, "number": 0}
    found: dict[str, Any] = {
        "job_id": job.id,
        "cluster": job.cluster,
        "account": job.account,
        "user": job.user,
        "partition": job.partition,
        "qos": job.qos,
        "association": {"account": job.account, "cluster": job.cluster, "user": job.user},
        "allocation_nodes": job.nodes,
        "array": {
            "job_id": job.array[0] if job.array else 0,
            "task_id": number(job.array[1] if job.array else None),
            "task": "" if newer else None,
        },
        "het": {
            "job_id": job.het[0] if job.het else 0,
            "job_offset": number(job.het[1] if job.het else None),
        },
        "exit_code": _json_exit_code(job, version),
        "name": job.name,
        "nodes": job.node_list,
        "state": {"current": state(job.base_state), "reason": "None"},
        "time": {
            "elapsed": job.elapsed,
            "eligible": job.submit,
            "end": job.end,
            "start": job.start if newer else job.submit,
            "submission": job.submit,
            "suspended": job.suspended,
            "limit": limit,
        },
        "tres": {"allocated": _json_tres(job), "requested": _json_tres(job)},
        "required": {"CPUs": job.cpus},
        "reservation": {"id": 0, "name": job.reservation or (0 if version < "22.05" else "")},
        "working_directory": job.work_dir,
        "steps": [
            {
                "state": state(step.state),
                "step": {"name": step.name, "id": _json_step_id(job, step, version)},
            }
            for step in job.steps
        ],
    }
    if version >= "22.05":
        found["submit_line"] = job.submit_line
    if version >= "24.11":
        found["restart_cnt"] = 0
    return found


def _json_exit_code(job: Job, version: str) -> dict[str, Any]:
    code, signal = job.exit_code
    if version < "23.11":
        found: dict[str, Any] = {"status": "SUCCESS", "return_code": code}
        return {**found, "signal": {"signal_id": signal, "name": "S"}} if signal else found
    return {
        "status": ["SUCCESS"],
        "return_code": {"set": True, "infinite": False, "number": code},
        "signal": {"id": {"set": signal > 0, "infinite": False, "number": signal}, "name": ""},
    }


def _json_step_id(job: Job, step: Step, version: str) -> Any:
    if version == "23.02":
        return {"job_id": job.id, "step_id": step.suffix}
    return f"{job.id}.{step.suffix}"


def _json_tres(job: Job) -> list[dict[str, Any]]:
    items = [
        ("billing", "", job.cpus),
        ("cpu", "", job.cpus),
        ("energy", "", -2),
        ("gres", "gpu:a100", job.gpus),
        ("gres", "gpu", job.gpus),
        ("mem", "", job.cpus * 2048),
        ("node", "", job.nodes),
    ]
    return [
        {"type": kind, "name": name, "id": place, "count": count}
        for place, (kind, name, count) in enumerate(items, start=1)
        if kind != "gres" or count
    ]


def truth(job: Job) -> dict[str, Any]:
    """The run that must come back, by column of `sacct.read`'s frame; text columns left out."""
    return {
        "job": job.printed_id,
        "id": str(job.id),
        "cluster": job.cluster,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "reservation": job.reservation or None,
        "state": job.base_state,
        "exit_code": f"{job.exit_code[0]}:{job.exit_code[1]}",
        "submit": datetime.fromtimestamp(job.submit, UTC),
        "eligible": datetime.fromtimestamp(job.submit, UTC),
        "start": datetime.fromtimestamp(job.start, UTC),
        "end": datetime.fromtimestamp(job.end, UTC),
        "elapsed_seconds": job.elapsed,
        "limit_seconds": job.limit * 60 if isinstance(job.limit, int) else None,
        "nodes": job.nodes,
        "cpus": job.cpus,
        "gpus": job.gpus,
        "memory_mib": float(job.cpus * 2048),
        "node_hours": job.nodes * job.elapsed / 3600,
        "cpu_hours": job.cpus * job.elapsed / 3600,
        "gpu_hours": job.gpus * job.elapsed / 3600,
        "billing_hours": job.cpus * job.elapsed / 3600,
        "node_list": job.node_list,
    }


def renamed(names: Sequence[str]) -> list[Job]:
    """As many jobs as names, otherwise alike but for id and submit."""
    base = JOBS[1]
    return [
        replace(base, id=200 + n, submit=DAY + n, name=name, steps=())
        for n, name in enumerate(names)
    ]


def gzipped(data: bytes) -> bytes:
    """As gzip compresses it."""
    return gzip.compress(data)


def zstd(data: bytes) -> bytes:
    """As zstd compresses it."""
    return zstandard.compress(data)


def crlf(data: bytes) -> bytes:
    """With the line ends of other systems."""
    return data.replace(b"\n", b"\r\n")


def with_bom(data: bytes) -> bytes:
    """With the byte order mark that some editors put first."""
    return b"\xef\xbb\xbf" + data
