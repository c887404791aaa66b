"""Reading the ledger of a step: JSON lines, one file a writer, the last line maybe torn.

Standard library only, for `status` uses it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .runner.ledger import parse
from .runner.sizes import bytes_text

Event = dict[str, Any]


class Tail:
    """What was added to a ledger since the last look."""

    def __init__(self, folder: Path, *, from_end: bool = False) -> None:
        """`from_end`: what is there already is of no interest."""
        self._folder = folder
        self._read: dict[Path, int] = {}
        if from_end:
            for _ in self.new():
                pass

    def new(self) -> Iterator[Event]:
        """Complete events, in the order of each writer. A line still being written waits."""
        for path in sorted(self._folder.glob("*.jsonl")):
            try:
                with path.open("rb") as file:
                    file.seek(self._read.get(path, 0))
                    lines = file.read().split(b"\n")
            except OSError:
                continue  # an unreachable file system now, may be back at the next look
            self._read[path] = self._read.get(path, 0) + sum(len(line) + 1 for line in lines[:-1])
            yield from filter(None, map(parse, lines[:-1]))


def tell(event: Event) -> str:
    """One event as a sentence that goes on from the step's name; "" for those not told."""
    number = event.get("generation")
    match event["event"]:
        case "checkpoint":
            total = _number(event.get("image_bytes")) + _number(event.get("cut_bytes"))
            frozen = event.get("frozen_seconds")
            froze = f", frozen {frozen:.1f} s" if _is_number(frozen) else ""
            return f"generation {number} sealed ({bytes_text(total)}{froze})"
        case "restored":
            return f"restored generation {number}"
        case "restore_failed":
            return f"generation {event.get('tried', number)} could not be restored ({_why(event)})"
        case "checkpoint_failed":
            return f"a checkpoint failed, the step runs on ({_why(event)})"
        case "wrong_node":
            return f"this machine cannot restore generation {number} ({_why(event)})"
        case "output_verified" if event.get("rc") not in ("not asked for", None):
            return (
                "output check passed"
                if event["rc"] == 0
                else f"output check FAILED ({event['rc']})"
            )
    return ""


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why(event: Event) -> str:
    reason, excerpt = str(event.get("reason", "unknown")), str(event.get("excerpt", ""))
    text = f"{reason}: {excerpt}" if excerpt else reason
    return "".join(c if c.isprintable() else " " for c in text)[:300]
