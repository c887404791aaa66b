"""Sizes in messages."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """A size as people read it: 1.2 GB, powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
