"""What a step is: its key, its fingerprint, its own files.

The key says *which* step it is and stays the same from run to run; the fingerprint says *what*
it would do. Generations of a step count only while its fingerprint stays the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Step:
    """One job of Snakemake, as far as its checkpoints are concerned. All paths are absolute."""

    key: str
    parts: Mapping[str, str]  # name of what counts -> its digest
    name: str
    rule: str
    wildcards: Mapping[str, str]
    workdir: str
    files: tuple[str, ...]
    directories: tuple[str, ...]
    check: str

    @property
    def fingerprint(self) -> str:
        return digest(dict(self.parts))


def digest(value: object) -> str:
    """SHA-256 of a value made of dicts, lists, strings and numbers."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(
    targets: Iterable[tuple[str, Mapping[str, str]]], outputs: Iterable[str], workdir: str
) -> str:
    """The key of a step: hex, the same in every run and whatever the order of its members."""
    members = sorted([rule, sorted(wildcards.items())] for rule, wildcards in targets)
    return digest([members, sorted(outputs), workdir])[:40]


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs between two sets of fingerprint parts, in words."""
    said = [
        f"{name} changed"
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]
    said += [f"{name} was added" for name in sorted(now.keys() - before.keys())]
    said += [f"{name} is gone" for name in sorted(before.keys() - now.keys())]
    return said


def members(job: Any) -> list[Any]:
    """The single jobs of a job or a group, in a fixed order."""
    if not job.is_group():
        return [job]
    return sorted(job.jobs, key=lambda one: (one.rule.name, sorted(one.wildcards_dict.items())))


def describe(job: Any, workdir: Path) -> Step:
    """Read everything that matters from a job of Snakemake."""
    jobs = members(job)
    files, directories = _own(jobs, workdir)
    targets = [(one.rule.name, dict(one.wildcards_dict)) for one in jobs]
    outputs = [*files, *directories]
    parts: dict[str, str] = {}
    for one in jobs:
        parts.update(_code_parts(one))
    for path in sorted({str(path) for path in job.input}):
        parts[f"input {path}"] = _file_state(workdir / path)
    return Step(
        key=key_of(targets, outputs, str(workdir)),
        parts=parts,
        name=name_of(job),
        rule=job.name if job.is_group() else job.rule.name,
        wildcards={} if job.is_group() else {k: str(v) for k, v in job.wildcards_dict.items()},
        workdir=str(workdir),
        files=tuple(files),
        directories=tuple(directories),
        check=_check_of(jobs),
    )


def name_of(job: Any) -> str:
    """How a step is called in messages: on one line, whatever its wildcards hold."""
    if job.is_group():
        return f"group {job.groupid}"
    wildcards = ",".join(f"{k}={v}" for k, v in sorted(job.wildcards_dict.items()))
    text = f"{job.rule.name}({wildcards})" if wildcards else str(job.rule.name)
    return printable(text)


def printable(text: str) -> str:
    """Control characters shown as escapes, so that no name can forge a line or a terminal code."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _flagged(path: Any, *flags: str) -> bool:
    return any(flag in getattr(path, "flags", {}) for flag in flags)


def _own(jobs: list[Any], workdir: Path) -> tuple[list[str], list[str]]:
    """Declared outputs, logs and benchmarks. Pipes and services are no files with content."""
    files: set[str] = set()
    directories: set[str] = set()
    for job in jobs:
        outputs = [path for path in job.output if not _flagged(path, "pipe", "service")]
        for path in outputs:
            (directories if _flagged(path, "directory") else files).add(_absolute(path, workdir))
        files.update(_absolute(path, workdir) for path in job.log)
        if job.benchmark:
            files.add(_absolute(job.benchmark, workdir))
    return sorted(files), sorted(directories)


def _absolute(path: Any, workdir: Path) -> str:
    return str(workdir / str(path))


def _code_parts(job: Any) -> dict[str, str]:
    rule = job.rule
    code = {
        "shell": rule.shellcmd,
        # The text of a shell rule is its command; the generated function says nothing more.
        "run": None if rule.shellcmd else rule.run_func_src,
        "script": rule.script or rule.notebook or rule.wrapper or rule.cwl,
        "content": _script_content(job),
        "environment": [str(rule.conda_env), str(rule.container_img), str(rule.env_modules)],
        "shadow": rule.shadow_depth,
    }
    params = [[name, _stable(value)] for name, value in _params(job)]
    who = f"rule {name_of(job)}"
    return {
        f"{who}: code": digest({k: None if v is None else _stable(v) for k, v in code.items()}),
        f"{who}: params": digest(params),
    }


def _params(job: Any) -> list[tuple[str, object]]:
    """Without those that merely repeat input or output: these have parts of their own."""
    named = getattr(job, "non_derived_params", None)
    if named is not None:
        return sorted((("", value) for value in named), key=lambda pair: repr(_stable(pair[1])))
    return [(str(name or ""), value) for name, value in job.params._allitems()]


def _stable(value: object) -> object:
    """The same text in every process: no memory addresses, no order of sets."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return [
            [str(k), _stable(v)] for k, v in sorted(value.items(), key=lambda pair: str(pair[0]))
        ]
    if isinstance(value, set | frozenset):
        return sorted(repr(_stable(one)) for one in value)
    if isinstance(value, list | tuple):
        return [_stable(one) for one in value]
    return _ADDRESS.sub("", repr(value))


def _script_content(job: Any) -> str | None:
    """Digest of the script or notebook where it is a local file."""
    rule = job.rule
    script = rule.script or rule.notebook
    if not script:
        return None
    try:
        text = job.format_wildcards(str(script))
        base = Path(str(rule.basedir.get_path_or_uri(secret_free=True)))
        return hashlib.sha256((base / text).read_bytes()).hexdigest()
    except Exception:
        # A script from elsewhere, or a name only the step itself can make out: its text counts.
        return None


def _file_state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return "absent"
    return f"{state.st_size} bytes, changed {state.st_mtime_ns}"


def _check_of(jobs: list[Any]) -> str:
    checks = {str(one.resources.get("cedana_check") or "") for one in jobs} - {""}
    return (
        " && ".join(f"( {check} )" for check in sorted(checks))
        if len(checks) > 1
        else "".join(checks)
    )
