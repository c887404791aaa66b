"""`sacct --json` of Slurm 21.08 to 26.05, whose layout each version changes, as rows of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cedana_poc.errors import UserError
from cedana_poc.sacct.grammar import ENDED, NOT_ENDED

COLUMNS = tuple(
    "jobid jobidraw cluster user account partition qos state exitcode submit eligible start end "
    "elapsed suspended timelimit nnodes ncpus alloctres nodelist reservation restarts jobname "
    "workdir submitline".split()
)
"""What `rows` yields, in order; text as `sacct -P` would print it, times in seconds since 1970."""

_NO_VALUE = 0xFFFFFFFE
"""Slurm's NO_VAL; NO_VAL and INFINITE (one more) leaked into JSON as numbers until 22.05."""

Job = Mapping[str, Any]


def jobs(content: bytes, where: str) -> list[Any]:
    """The job objects of a document.

    Raises:
        UserError: not JSON, or not from sacct.
    """
    try:
        document = json.loads(content.decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        raise UserError(
            f"line {error.lineno}: the JSON is damaged or cut off ({error.msg})",
            where=where,
            hint="export it again",
        ) from error
    except (RecursionError, ValueError) as error:
        raise UserError(
            f"this JSON cannot be from sacct ({error})", where=where, hint="export it again"
        ) from error
    found = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise UserError(
            "JSON without a list of jobs", where=where, hint="give what sacct --json printed"
        )
    return found


def row(job: Any) -> list[str] | None:
    """One job as the text of `COLUMNS`; None for what is no job of sacct."""
    try:
        fields = _fields(job)
        return [_text(fields[name]) for name in COLUMNS]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def step_names(job: Any) -> Iterator[tuple[str, str]]:
    """(job id with step suffix, name) of the job's steps."""
    raw = _number(job["job_id"]) if isinstance(job, dict) and "job_id" in job else None
    steps = job.get("steps") if isinstance(job, dict) else None
    for entry in steps if isinstance(steps, list) else []:
        step = entry.get("step") if isinstance(entry, dict) else None
        if not isinstance(step, dict):
            continue
        identity = step.get("id")
        if isinstance(identity, dict):
            suffix = _text(identity.get("step_id"))
        else:
            suffix = _text(identity).rpartition(".")[2]
        yield f"{raw}.{suffix}", _text(step.get("name"))


def _fields(job: Job) -> dict[str, Any]:
    raw = _number(job["job_id"])
    if not raw:
        raise ValueError("a job without an id")
    association = job.get("association") or {}
    time = job["time"]
    return {
        "jobid": _job_id(job, raw),
        "jobidraw": raw,
        "cluster": job.get("cluster") or association.get("cluster"),
        "user": job.get("user") or association.get("user"),
        "account": job.get("account") or association.get("account"),
        "partition": job.get("partition") or association.get("partition"),
        "qos": job.get("qos"),
        "state": _state(job["state"]),
        "exitcode": _exit_code(job.get("exit_code")),
        "submit": _number(time.get("submission")),
        "eligible": _number(time.get("eligible")),
        "start": _start(time),
        "end": _number(time.get("end")),
        "elapsed": _number(time.get("elapsed")),
        "suspended": _seconds(time.get("suspended")),
        "timelimit": _limit(time.get("limit")),
        "nnodes": _number(job.get("allocation_nodes")) or None,
        "ncpus": _allocated_cpus(job),
        "alloctres": _tres((job.get("tres") or {}).get("allocated")),
        "nodelist": job.get("nodes"),
        "reservation": (job.get("reservation") or {}).get("name") or None,
        "restarts": _number(job.get("restart_cnt")),
        "jobname": job.get("name"),
        "workdir": job.get("working_directory"),
        "submitline": job.get("submit_line"),
    }


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> int | None:
    """A number, or Slurm's `{"set": …, "infinite": …, "number": …}`; None where not set."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def _seconds(value: Any) -> int | None:
    is_parted = isinstance(value, dict) and "seconds" in value
    return _number(value["seconds"] if is_parted else value)


def _limit(value: Any) -> str | None:
    """Minutes, printed as a duration."""
    if isinstance(value, dict) and value.get("infinite"):
        return "UNLIMITED"
    minutes = _number(value)
    if minutes is None:
        return None
    return "UNLIMITED" if minutes >= _NO_VALUE else f"{minutes // 60}:{minutes % 60:02}:00"


def _state(state: Any) -> str:
    current = state["current"]
    words = [current] if isinstance(current, str) else list(current)
    known = [word for word in words if word in ENDED or word in NOT_ENDED]
    return str((known or words)[0])


def _exit_code(code: Any) -> str | None:
    """`return code:signal`, as sacct prints it."""
    if not isinstance(code, dict) or "return_code" not in code:
        return None
    signal = code.get("signal") or {}
    number = _number(signal.get("id", signal.get("signal_id")))
    return f"{_number(code['return_code']) or 0}:{number or 0}"


def _start(time: Mapping[str, Any]) -> int | None:
    """Start; 21.08 to 22.05.7 printed the eligible time in its place."""
    start, end = _number(time.get("start")), _number(time.get("end"))
    elapsed, suspended = _number(time.get("elapsed")), _seconds(time.get("suspended")) or 0
    if start and end and elapsed is not None and start == _number(time.get("eligible")):
        return end - elapsed - suspended
    return start


def _job_id(job: Job, raw: int) -> str:
    array, het = job.get("array") or {}, job.get("het") or {}
    if leader := _number(het.get("job_id")):
        return f"{leader}+{_number(het.get('job_offset')) or 0}"
    if parent := _number(array.get("job_id")):
        task = _number(array.get("task_id"))
        if task is not None and task < _NO_VALUE:
            return f"{parent}_{task}"
        if array.get("task"):
            return f"{parent}_[{array['task']}]"
    return str(raw)


def _allocated_cpus(job: Job) -> int | None:
    for item in (job.get("tres") or {}).get("allocated") or []:
        if item["type"] == "cpu":
            return int(item["count"])
    return _number((job.get("required") or {}).get("CPUs"))


def _tres(items: Any) -> str:
    """The list of TRES as sacct prints it; memory is in MB, a negative count is unset."""
    printed = []
    for item in items or []:
        count = int(item["count"])
        if count >= 0:
            name = f"{item['type']}/{item['name']}" if item.get("name") else str(item["type"])
            printed.append(f"{name}={count}{'M' if item['type'] == 'mem' else ''}")
    return ",".join(printed)
