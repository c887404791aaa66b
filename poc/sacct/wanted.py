"""Which runs are asked for, by their end and partition."""

from __future__ import annotations

from dataclasses import dataclass

from cedana_poc.sacct.typed import literal


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs to keep, by End (seconds since 1970) and partition.

    A run is kept or left out whole, with all of its records.

    Attributes:
        since, until: End in [since, until).
        partitions: any of them; empty for all.
    """

    since: int | None = None
    until: int | None = None
    partitions: tuple[str, ...] = ()


def why_not_wanted(wanted: Filter) -> str:
    """SQL over runs: the reason one was not asked for, NULL for one that was."""
    cases: list[tuple[str, str]] = []
    if wanted.partitions:
        names = ", ".join(literal(name) for name in wanted.partitions)
        cases.append((f"partition IS NULL OR partition NOT IN ({names})", "other partition"))
    if wanted.since is not None or wanted.until is not None:
        cases.append(('"end" IS NULL', "no end time"))
    if wanted.since is not None:
        cases.append((f'"end" < {wanted.since}', "before --since"))
    if wanted.until is not None:
        cases.append((f'"end" >= {wanted.until}', "after --until"))
    branches = " ".join(f"WHEN {condition} THEN {literal(name)}" for condition, name in cases)
    return f"CASE {branches} END" if branches else "NULL"
