"""`status`: a table of the steps in a folder. Standard library only; it changes nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .events import Event
from .runner import lease, ledger
from .runner.durable import read_json
from .runner.sizes import bytes_text
from .runner.spec import Exit, read_exit
from .stepdir import MALFORMED, MOST_BYTES

DEFAULT = Path(".snakemake/auxiliary/cedana")
COLUMNS = ("step", "state", "allocations", "generation", "age", "size", "last event")
_STARTED = ("started", "restored")


class NoSteps(Exception):
    """There is nothing to show: the text says where was looked."""


@dataclass(frozen=True, slots=True)
class Row:
    step: str
    state: str
    allocations: str
    generation: str
    age: str
    size: str
    last: str


def table(folder: Path, now: float | None = None) -> str:
    """The table for a `--cedana-dir`, or for a working directory of Snakemake. Raises NoSteps."""
    rows = list(_rows(_steps_folder(folder), time.time() if now is None else now))
    lines = [COLUMNS, *((r.step, r.state, r.allocations, r.generation, r.age, r.size, r.last)
                        for r in sorted(rows, key=lambda row: row.step))]  # fmt: skip
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _steps_folder(folder: Path) -> Path:
    for place in (folder / "steps", folder / DEFAULT / "steps"):
        if place.is_dir():
            return place
    raise NoSteps(f"there are no steps in {folder}, nor in {folder / DEFAULT}")


def _rows(steps: Path, now: float) -> Iterator[Row]:
    for stepdir in sorted(steps.iterdir()):
        if not stepdir.is_dir() or stepdir.is_symlink():
            continue
        try:
            yield _row(stepdir, now)
        except MALFORMED as error:
            yield Row(stepdir.name, "unreadable", "", "", "", "", _one_line(str(error)))


def _row(stepdir: Path, now: float) -> Row:
    events = ledger.read(stepdir / "ledger").events
    published = _published(stepdir)
    number = max(published, default=0)
    allocations = {str(event.get("allocation")) for event in events if event["event"] in _STARTED}
    return Row(
        step=_name(stepdir),
        state=_state(stepdir),
        allocations=str(len(allocations)),
        generation=str(number) if number else "-",
        age=_age_text(now - published[number].stat().st_mtime) if number else "-",
        size=bytes_text(_size(stepdir)),
        last=_last(events),
    )


def _published(stepdir: Path) -> dict[int, Path]:
    found = (stepdir / "generations").glob("*.json")
    return {int(path.stem): path for path in found if path.stem.isdecimal()}


def _name(stepdir: Path) -> str:
    spec: Any = read_json(stepdir / "spec.json", MOST_BYTES)
    wildcards = ",".join(f"{k}={v}" for k, v in sorted(spec["wildcards"].items()))
    return _one_line(f"{spec['rule']}({wildcards})" if wildcards else spec["rule"])


def _state(stepdir: Path) -> str:
    holder = lease.current(stepdir)
    living = lease.alive(holder) if holder is not None else False
    if living:
        return "running"
    if living is None and holder is not None:
        return f"unknown ({_one_line(holder.host)})"
    return _ended(read_exit(stepdir), bool(_published(stepdir)))


def _ended(record: Exit | None, checkpointed: bool) -> str:
    if record is None:
        return "interrupted" if checkpointed else "not started"
    if record.reason == "ended":
        return "done" if record.rc == 0 else f"failed ({record.rc})"
    return record.reason if record.reason in ("held", "uncheckpointable") else "interrupted"


def _size(stepdir: Path) -> int:
    """Bytes on disk of checkpoints: holes and shared blocks count as the file system has it."""
    total = 0
    for name in ("generations", "store"):
        for path in (stepdir / name).rglob("*"):
            try:
                found = path.lstat()
            except OSError:
                continue  # pruned meanwhile
            total += found.st_blocks * 512 if not path.is_dir() else 0
    return total


def _last(events: list[Event]) -> str:
    if not events:
        return "-"
    event = events[-1]
    number = event.get("generation")
    more = f" {number}" if isinstance(number, int) and number > 0 else ""
    return _one_line(f"{event['event']}{more} {event['time']}")


def _age_text(seconds: float) -> str:
    """Clocks of file servers differ: an age below zero is none."""
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _one_line(text: str) -> str:
    """No name can forge a line or a terminal code."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
