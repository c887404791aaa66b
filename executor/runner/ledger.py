"""What happened to a step: one JSON object a line, never changed, one file a writer.

docs/ledger.md describes the events. Appends from two hosts to one file are not safe on network
file systems, so every writer has a file of its own and the reader merges them.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .durable import private_folder

SCHEMA = 1
EVENTS = (
    "submitted", "assigned", "started", "restored", "restore_failed", "wrong_node", "checkpoint",
    "checkpoint_failed", "pruned", "stopped", "exited", "output_verified",
)  # fmt: skip
COMMON = (
    "workflow", "rule", "wildcards", "step", "allocation", "generation", "host", "engine",
    "engine_version", "kernel", "cpu", "gpu_model", "driver", "cuda",
)  # fmt: skip
UNKNOWN = "unknown"
_MOST_TEXT = 4000  # characters of one value


class Ledger:
    """Appends the events of one writer. What every event carries is given once."""

    def __init__(self, folder: Path, writer: str, common: Mapping[str, object]) -> None:
        private_folder(folder)
        self._path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', writer)[:100]}.jsonl"
        self._common = {name: UNKNOWN for name in COMMON} | dict(common)

    def now(self, **common: object) -> None:
        """From now on every event carries these values."""
        self._common.update(common)

    def write(self, event: str, **fields: object) -> None:
        """Append one event durably. Raises OSError; then the event may be cut in the file."""
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}")
        line = json.dumps(_plain(self._head(event) | fields), ensure_ascii=False, sort_keys=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            data = (line + "\n").encode("utf-8", "backslashreplace")
            if _cut(file):  # what an earlier write left unfinished must not swallow this event
                data = b"\n" + data
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)

    def _head(self, event: str) -> dict[str, object]:
        seconds = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return {
            "schema": SCHEMA,
            "event": event,
            "time": f"{stamp}.{int(seconds % 1 * 1e6):06d}Z",
            "monotonic": round(time.monotonic(), 6),
            **self._common,
        }


def _cut(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _plain(value: object) -> object:
    """Never null and never endless: what is not known is the word for it."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return round(value, 6) if value == value and abs(value) != float("inf") else UNKNOWN
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value[:_MOST_TEXT] if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Reading:
    """The events of all writers in order of time, and how many lines are not events."""

    events: list[dict[str, object]]
    unreadable: int


def read(folder: Path) -> Reading:
    """Merge the files of all writers; a folder that is not there holds no events."""
    events: list[dict[str, object]] = []
    unreadable = 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            event = parse(line)
            if event is not None:
                events.append(event)
            elif line.strip():
                unreadable += 1
    # The sort keeps the order of events of one writer that carry the same time.
    return Reading(sorted(events, key=lambda event: str(event["time"])), unreadable)


def parse(line: bytes) -> dict[str, object] | None:
    """One line's event, or None where it is cut or of a schema that is not known."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(event, dict) and event.get("schema") == SCHEMA
    return event if known and _has(event, ("event", "time", "step")) else None


def _has(event: Mapping[str, object], names: Iterable[str]) -> bool:
    return all(isinstance(event.get(name), str) for name in names)
