"""How much the runs used, and how much of it is exposed: sums over tables `runs` and `walls`.

Seconds are summed as integers, so the order of rows cannot change a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from cedana_poc import walls

Usage = dict[str, Any]

UNKNOWN = "unknown"
HOURS = {
    "node_hours": "node_seconds",
    "node_equivalent_hours": "node_equivalent_seconds",
    "cpu_hours": "cpu_seconds",
    "gpu_hours": "gpu_seconds",
    "billing_hours": "billing_seconds",
}
"""Each figure of a Usage and the column of `runs` it sums."""

_NO_USAGE = dict.fromkeys(("runs", *HOURS), UNKNOWN)
_UNKNOWN_NEAR = {**_NO_USAGE, "by_state": UNKNOWN, "reached_limit": _NO_USAGE}

MOST_MISSING = 0.01
"""Share of runs that may lack a unit before its sums are unknown instead of a lower bound."""

LIMIT_BANDS = (
    (3600, "up to 1 h"),
    (14400, "1 to 4 h"),
    (28800, "4 to 8 h"),
    (86400, "8 to 24 h"),
    (172800, "1 to 2 d"),
    (345600, "2 to 4 d"),
    (604800, "4 to 7 d"),
    (None, "over 7 d"),
)
SIZES = (
    (1, "1 node"),
    (4, "2 to 4 nodes"),
    (16, "5 to 16 nodes"),
    (64, "17 to 64 nodes"),
    (None, "over 64 nodes"),
)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Answers questions about usage from one connection.

    Attributes:
        missing: runs that used time but lack a unit, by the unit's column.
        counted: the figures that can be given at all.
    """

    connection: duckdb.DuckDBPyConnection
    missing: Mapping[str, int]
    counted: frozenset[str]

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection) -> Exposure:
        """Find out which units the runs have; table `runs` must be there."""
        counts = ", ".join(
            f"count(*) FILTER ({column} IS NULL AND elapsed > 0)" for column in HOURS.values()
        )
        row = connection.execute(f"SELECT count(*), {counts} FROM runs").fetchone() or ()
        missing = dict(zip(HOURS.values(), row[1:], strict=True))
        few = {name for name, column in HOURS.items() if missing[column] <= row[0] * MOST_MISSING}
        return cls(connection, missing, frozenset(few))

    def usage(self, where: str = "true") -> Usage:
        """What the runs that fit a condition over view `ended` used."""
        return self.by("true", where).get(True) or self._usage((0, *(0 for _ in HOURS)))

    def by(self, key: str, where: str = "true") -> dict[Any, Usage]:
        """The same for each value of an expression, in the order of the values."""
        sums = ", ".join(f"coalesce(sum({column}), 0)::BIGINT" for column in HOURS.values())
        rows = self.connection.execute(
            f"SELECT {key} AS key, count(*), {sums} FROM ended WHERE {where} "
            "GROUP BY key ORDER BY key"
        ).fetchall()
        return {row[0]: self._usage(row[1:]) for row in rows}

    def _usage(self, sums: tuple[int, ...]) -> Usage:
        hours = {
            name: round(seconds / 3600, 4) if name in self.counted else UNKNOWN
            for name, seconds in zip(HOURS, sums[1:], strict=True)
        }
        return {"runs": sums[0], **hours}


def wall_ended(exposure: Exposure, totals: Usage, *, limits_known: bool) -> dict[str, Any]:
    """The wall-ended runs: by kind, by state, and what a checkpoint could cover.

    Args:
        limits_known: the input has time limits; else it is unknown what ended near one.
    """
    kinds = exposure.by("kind", "kind IS NOT NULL")
    causes = exposure.by("cause", "kind = 'not_the_limit'")
    coverable = exposure.by("coverable", "wall_ended")
    nothing = exposure.usage("false")
    by_kind: dict[str, Any] = {kind: kinds.get(kind, nothing) for kind in walls.KINDS}
    by_kind["near_limit_other_state"] = _near_limit(exposure) if limits_known else _UNKNOWN_NEAR
    by_kind["not_the_limit"] = {
        **by_kind["not_the_limit"],
        "by_cause": {cause: causes.get(cause, nothing) for cause in walls.CAUSES},
    }
    ended = exposure.usage("wall_ended")
    return {
        **ended,
        **shares(ended, totals),
        "by_state": exposure.by("state", "wall_ended"),
        "by_kind": by_kind,
        "addressable": coverable.get("addressable", nothing),
        "not_addressable": {
            reason: coverable[reason] for reason in walls.NOT_ADDRESSABLE if reason in coverable
        },
    }


def _near_limit(exposure: Exposure) -> dict[str, Any]:
    near = "kind = 'near_limit_other_state'"
    return {
        **exposure.usage(near),
        "by_state": exposure.by("state", near),
        "reached_limit": exposure.usage(f"{near} AND wall_ended"),
    }


def shares(part: Usage, whole: Usage) -> dict[str, Any]:
    """Fractions of a whole: by number and by each resource."""
    return {
        "share_of_runs": ratio(part["runs"], whole["runs"]),
        **{
            f"share_of_{unit}": ratio(part[unit], whole[unit])
            for unit in ("node_hours", "cpu_hours", "gpu_hours")
        },
    }


def ratio(part: Any, whole: Any) -> float | str:
    """A fraction, or unknown where either side is or the whole is nothing."""
    if UNKNOWN in (part, whole) or not whole:
        return UNKNOWN
    return round(float(part / whole), 6)


def breakdown(exposure: Exposure, key: str) -> list[dict[str, Any]]:
    """All usage and the wall-ended part of it for each value of an expression, in its order."""
    everything, at_wall = exposure.by(key), exposure.by(key, "wall_ended")
    nothing = exposure.usage("false")
    rows = []
    for value, usage in everything.items():
        ended = at_wall.get(value, nothing)
        rows.append(
            {
                "value": value,
                **usage,
                "wall_ended": ended,
                "share_of_runs": ratio(ended["runs"], usage["runs"]),
                "share_of_node_hours": ratio(ended["node_hours"], usage["node_hours"]),
            }
        )
    return rows


def most_exposed_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a breakdown ordered by exposed node-hours, or by runs where those are unknown."""

    def size(row: dict[str, Any]) -> tuple[float, int, str]:
        hours = row["wall_ended"]["node_hours"]
        return (
            -(0.0 if hours == UNKNOWN else hours),
            -row["wall_ended"]["runs"],
            str(row["value"]),
        )

    return sorted(rows, key=size)
