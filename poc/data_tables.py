"""The analysis document as tables of plain figures, for `--data`.

Shares are fractions from 0 to 1. A figure that cannot be computed is `unknown`; a table whose
columns are missing from the input is one row of `unknown`; a cell where no figure belongs is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cedana_poc.output import Cell, Table

UNKNOWN = "unknown"
USAGE = (
    "runs",
    "node_hours",
    "node_equivalent_hours",
    "cpu_hours",
    "gpu_hours",
    "billing_hours",
)
WALL_ENDED = tuple(f"wall_ended_{column}" for column in USAGE)
NEAR_LIMIT = tuple(f"near_limit_{column}" for column in USAGE)
_NONE = dict.fromkeys(USAGE, 0)

_BREAKDOWNS = {
    "partitions": ("partition", "partition"),
    "limit_bands": ("limit_band", "limit_band"),
    "sizes": ("size", "size"),
    "gpu_models": ("gpu_model", "gpu_model"),
    "users": ("user", "user"),
    "weeks": ("week", "week_from"),
}


def tables(analysis: Mapping[str, Any]) -> dict[str, Table]:
    """Return every table of the analysis by the name of its file."""
    wall = analysis["wall_ended"]
    return {
        "by_kind": _by_kind(wall["by_kind"]),
        "by_state": _by_state(analysis),
        "addressable": _addressable(wall),
        "rows": _rows(analysis["rows"]),
        **{
            name: _breakdown(title, analysis["breakdowns"][key])
            for name, (key, title) in _BREAKDOWNS.items()
        },
        "elapsed_over_limit": _elapsed_over_limit(analysis["elapsed_over_limit"]),
        "concentration": _concentration(analysis["concentration"]),
        "repeats": _repeats(analysis["repeats"]),
        "chains": _chains(analysis["repeats"]["chains"]),
        "applications": _listed(
            ("application", "checkpointing", "evidence", *USAGE, "share_of_node_hours"),
            analysis["applications"],
        ),
        "largest_runs": _listed(_RUN, wall["largest_runs"]),
        "quality": _listed(("check", "state", "detail"), analysis["quality"]),
        "inputs": _listed(("path", "dialect", "rows", "bytes", "sha256"), analysis["input"]),
    }


_RUN = (
    "job",
    "user",
    "partition",
    "application",
    "state",
    "nodes",
    "gpus",
    "limit_hours",
    "elapsed_hours",
    "node_hours",
)


def _listed(columns: Sequence[str], items: Any) -> Table:
    """A table whose columns are named like the keys of its items."""
    return _table(columns, items, lambda item: [item[column] for column in columns])


def _table(
    header: Sequence[str], items: Any, cells: Callable[[Mapping[str, Any]], list[Cell]]
) -> Table:
    if items == UNKNOWN:
        return header, [[UNKNOWN] * len(header)]
    return header, [cells(item) for item in items]


def _usage(used: Mapping[str, Any]) -> list[Any]:
    return [used[column] for column in USAGE]


def _minus(whole: Mapping[str, Any], part: Mapping[str, Any]) -> list[Cell]:
    pairs = zip(_usage(whole), _usage(part), strict=True)
    return [UNKNOWN if UNKNOWN in pair else pair[0] - pair[1] for pair in pairs]


def _by_kind(kinds: Mapping[str, Any]) -> Table:
    """Rows that do not overlap: those with `wall_ended` yes add up to what is exposed."""
    near = kinds["near_limit_other_state"]
    reached = near["reached_limit"]
    rows: list[list[Cell]] = [
        *(
            [kind, "", "yes", *_usage(kinds[kind])]
            for kind in ("limit", "session", "limit_unknown")
        ),
        ["near_limit_other_state", "reached_limit", "yes", *_usage(reached)],
        ["near_limit_other_state", "before_limit", "no", *_minus(near, reached)],
        *(
            ["not_the_limit", cause, "no", *_usage(used)]
            for cause, used in kinds["not_the_limit"]["by_cause"].items()
        ),
    ]
    return ("kind", "part", "wall_ended", *USAGE), rows


def _by_state(analysis: Mapping[str, Any]) -> Table:
    wall = analysis["wall_ended"]
    walls, nears = wall["by_state"], wall["by_kind"]["near_limit_other_state"]["by_state"]
    if nears == UNKNOWN:
        nears = dict.fromkeys(analysis["by_state"], dict.fromkeys(USAGE, UNKNOWN))
    rows = [
        [state, *_usage(used), *_usage(walls.get(state, _NONE)), *_usage(nears.get(state, _NONE))]
        for state, used in analysis["by_state"].items()
    ]
    return ("state", *USAGE, *WALL_ENDED, *NEAR_LIMIT), rows


def _addressable(wall: Mapping[str, Any]) -> Table:
    """Rows that do not overlap and add up to what is exposed."""
    rows: list[list[Cell]] = [["yes", "", *_usage(wall["addressable"])]]
    for reason, used in wall["not_addressable"].items():
        rows.append(["no", reason, *_usage(used)])
    return ("addressable", "reason", *USAGE), rows


def _rows(rows: Mapping[str, Any]) -> Table:
    account: list[list[Cell]] = [
        ["read", "", rows["in"]],
        ["in runs", "", rows["runs"]],
        *(["left out", reason, number] for reason, number in rows["left_out"].items()),
        ["repaired", "counted above as well", rows["repaired"]],
    ]
    return ("fate", "reason", "rows"), account


def _breakdown(title: str, items: Any) -> Table:
    header = (title, *USAGE, *WALL_ENDED, "share_of_runs", "share_of_node_hours")

    def cells(item: Mapping[str, Any]) -> list[Cell]:
        shares = [item["share_of_runs"], item["share_of_node_hours"]]
        return [item["value"], *_usage(item), *_usage(item["wall_ended"]), *shares]

    return _table(header, items, cells)


def _elapsed_over_limit(histogram: Any) -> Table:
    header = (
        "over_limit_from",
        "over_limit_to",
        "runs",
        "node_hours",
        "wall_ended_runs",
        "kill_band_from",
    )
    if histogram == UNKNOWN:
        return header, [[UNKNOWN] * len(header)]
    edges: list[Cell] = list(histogram["edges"])
    if histogram["last_is_open"]:
        edges[-1] = "open"
    columns = (histogram[key] for key in header[2:5])
    bins = zip(edges[:-1], edges[1:], *columns, strict=True)
    return header, [[*each, histogram["band_from"]] for each in bins]


def _concentration(ranked: Any) -> Table:
    header = ("rank", "user", "exposed_node_hours", "share_of_exposed", "cumulative_share")
    keys = ("rank", "user", "node_hours", "share", "cumulative_share")
    return _table(header, ranked, lambda item: [item[key] for key in keys])


def _repeats(repeats: Mapping[str, Any]) -> Table:
    facts = ("considered", "false_match_rate", "completed_tested", "horizon_days")
    rows = [
        [
            tier,
            repeats[tier],
            repeats["node_hours"].get(tier, ""),
            *(repeats[fact] for fact in facts),
        ]
        for tier in ("certain", "probable", "ambiguous", "none", "too_recent")
    ]
    return ("follower", "wall_ended_runs", "exposed_node_hours", *facts), rows


def _chains(chains: Iterable[Mapping[str, Any]]) -> Table:
    """One row an attempt; the columns of the chain are the same on each of its rows."""
    attempt = ("job", "state", "end", "limit_hours", "elapsed_hours", "nodes", "node_hours")
    chain = ("tier", "escalating", "user", "application", "exposed_node_hours")
    rows = [
        [
            number,
            each["tier"],
            "yes" if each["escalating"] else "no",
            *(each[column] for column in chain[2:]),
            step,
            *(made[column] for column in attempt),
        ]
        for number, each in enumerate(chains, start=1)
        for step, made in enumerate(each["attempts"], start=1)
    ]
    return ("chain", *chain[:-1], "chain_exposed_node_hours", "attempt", *attempt), rows
