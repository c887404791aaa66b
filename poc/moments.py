"""Points in time, as the documents print them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cedana_poc.sacct.load import Loaded


def iso(loaded: Loaded, seconds: int) -> str:
    """A stamp with its offset, or without one where the zone of the input is not known."""
    stamp = datetime.fromtimestamp(seconds, UTC)
    if loaded.zone:
        return stamp.astimezone(ZoneInfo(loaded.zone)).isoformat()
    if any(file.local_times for file in loaded.account.inputs):
        return stamp.replace(tzinfo=None).isoformat()
    return stamp.isoformat()
