"""The analysis document: everything `cedana-poc analyze` says, as plain data.

Its schema, `cedana-poc/analysis/1`, is described in docs/analysis.md. Terminal, JSON, CSV and HTML
are renderings of this one document; a figure that cannot be computed is the string `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cedana_poc import __version__, capacity, quality, repeats, walls
from cedana_poc.exposure import (
    LIMIT_BANDS,
    SIZES,
    UNKNOWN,
    Exposure,
    breakdown,
    most_exposed_first,
    ratio,
    shares,
    wall_ended,
)
from cedana_poc.moments import iso
from cedana_poc.nodes import Nodes
from cedana_poc.pseudonyms import pseudonyms
from cedana_poc.sacct.load import Loaded
from cedana_poc.sacct.typed import literal

SCHEMA = "cedana-poc/analysis/1"
HISTOGRAM_EDGES = tuple(round(place * 0.05, 2) for place in range(22))


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, as it is shown in the report.

    Attributes:
        since, until: as typed; empty if not given.
        nodes_path, nodes_sha256: of the node list, empty without one.
        key: of the pseudonyms; None to show user names.
        top: rows in tables of users, runs and chains.
    """

    timezone: str | None = None
    since: str = ""
    until: str = ""
    partitions: tuple[str, ...] = ()
    nodes_path: str = ""
    nodes_sha256: str = ""
    key: bytes | None = None
    top: int = 10


def account_only(loaded: Loaded, options: Options) -> dict[str, Any]:
    """The part of the document that holds when too many rows are unreadable for any figure."""
    account = loaded.account
    return {
        "schema": SCHEMA,
        "tool": {"name": "cedana-poc", "version": __version__},
        "input": [
            {
                "path": file.path,
                "sha256": file.sha256,
                "bytes": file.bytes,
                "dialect": file.dialect,
                "rows": file.rows,
            }
            for file in account.inputs
        ],
        "options": _options(options),
        "rows": {
            "in": account.rows_in,
            "runs": account.runs,
            "repaired": account.repaired,
            "left_out": {name: n for name, n in sorted(account.left_out.items()) if n},
        },
        "repairs": [_remark(remark) for remark in account.repairs],
        "unreadable": [_remark(remark) for remark in account.unreadable],
    }


def analyse(loaded: Loaded, options: Options, nodes: Nodes | None = None) -> dict[str, Any]:
    """The whole document for runs that `sacct.read.load` has read."""
    walls.classify(loaded.connection, loaded.scratch)
    return _Analysis(loaded, options, nodes).document()


def _remark(remark: Any) -> dict[str, Any]:
    return {"path": remark.path, "line": remark.line, "problem": remark.problem}


def _options(options: Options) -> dict[str, Any]:
    nodes = {"path": options.nodes_path, "sha256": options.nodes_sha256}
    return {
        "timezone": options.timezone or UNKNOWN,
        "since": options.since,
        "until": options.until,
        "partitions": list(options.partitions),
        "nodes": nodes if options.nodes_path else "",
        "users": "pseudonyms" if options.key else "names",
        "top": options.top,
    }


class _Analysis:
    """One document in the making."""

    def __init__(self, loaded: Loaded, options: Options, nodes: Nodes | None) -> None:
        self._loaded = loaded
        self._options = options
        self._nodes = nodes
        self._connection = loaded.connection
        self._exposure = Exposure.of(loaded.connection)
        self._totals = self._exposure.usage()
        self._shown = self._shown_users()

    def document(self) -> dict[str, Any]:
        wall = wall_ended(
            self._exposure, self._totals, limits_known=self._has("timelimit", "timelimitraw")
        )
        first, last = self._period()
        given = capacity.of_nodes(self._nodes, first, last)
        share = capacity.share(self._exposure, given, first)
        return {
            **account_only(self._loaded, self._options),
            "window": {
                "first_end": self._iso(first),
                "last_end": self._iso(last),
                "days": UNKNOWN if first is None else round((last - first) / 86400, 2),
            },
            "totals": {**self._totals, "users": len(self._shown) or UNKNOWN},
            "capacity": given,
            "by_state": self._exposure.by("state"),
            "wall_ended": {
                **wall,
                "share_of_capacity": UNKNOWN if capacity.too_large(share) else share,
                **self._top_user(wall),
                "largest_runs": self._largest_runs(),
            },
            "breakdowns": self._breakdowns(),
            "elapsed_over_limit": self._histogram(),
            "concentration": self._concentration(wall),
            "repeats": self._repeats(),
            "applications": self._applications(wall),
            "quality": quality.checks(self._loaded, self._exposure, self._nodes, share),
        }

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _has(self, *fields: str) -> bool:
        return bool(self._loaded.columns.intersection(fields))

    def _shown_users(self) -> dict[str, str]:
        """Every user, and the name to show for it."""
        names = [name for (name,) in self._query('SELECT DISTINCT "user" FROM runs ORDER BY 1')]
        known = [name for name in names if name is not None]
        if self._options.key is None:
            return {name: name for name in known}
        return pseudonyms(known, self._options.key)

    def _user(self, name: str | None) -> str:
        return UNKNOWN if name is None else self._shown[name]

    def _iso(self, seconds: int | None) -> str:
        return UNKNOWN if seconds is None else iso(self._loaded, seconds)

    def _period(self) -> tuple[Any, Any]:
        return self._query('SELECT min("end"), max("end") FROM runs')[0][:2]

    def _top_user(self, wall: dict[str, Any]) -> dict[str, Any]:
        """The user with the most exposed node-hours, and the figures without that user."""
        unknown = {"top_user": UNKNOWN, "without_top_user": UNKNOWN}
        if UNKNOWN in (wall["node_hours"], self._totals["node_hours"]) or not self._shown:
            return unknown
        users = self._exposure.by('"user"', 'wall_ended AND "user" IS NOT NULL')
        if not users:
            return unknown
        top = min(users, key=lambda name: (-users[name]["node_hours"], name))
        others = f'"user" IS DISTINCT FROM {literal(top)}'
        rest = self._exposure.usage(f"wall_ended AND {others}")
        rest_shares = shares(rest, self._exposure.usage(others))
        del rest_shares["share_of_cpu_hours"]
        share = ratio(users[top]["node_hours"], wall["node_hours"])
        return {
            "top_user": {"user": self._user(top), "share_of_node_hours": share},
            "without_top_user": {**rest, **rest_shares},
        }

    def _largest_runs(self) -> list[dict[str, Any]]:
        order = "node_seconds DESC NULLS LAST, elapsed DESC, job, submit"
        rows = self._query(
            'SELECT job, "user", partition, application, state, nodes, gpus, wall, elapsed, '
            f"node_seconds FROM ended WHERE wall_ended ORDER BY {order} LIMIT {self._options.top}"
        )
        names = ("job", "user", "partition", "application", "state", "nodes", "gpus")
        return [
            {
                **dict(zip(names, map(_or_unknown, row), strict=False)),
                "user": self._user(row[1]),
                "limit_hours": _hours(row[7]),
                "elapsed_hours": _hours(row[8]),
                "node_hours": _hours(row[9]),
            }
            for row in rows
        ]

    def _breakdowns(self) -> dict[str, Any]:
        monday = '("end" // 86400 - ("end" // 86400 + 3) % 7)'
        gpus = "CASE WHEN gpus IS NULL THEN 'not stated' WHEN gpus = 0 THEN 'no GPU' " + (
            "ELSE coalesce(gpu_model, 'model not stated') END"
        )
        return {
            "partition": self._ranked("partition", "partition"),
            "limit_band": self._banded("wall", LIMIT_BANDS, "timelimit", "timelimitraw"),
            "size": self._banded("nodes", SIZES, "nnodes", "allocnodes", "alloctres"),
            "gpu_model": self._ranked(gpus, "alloctres", "allocgres", "reqgres"),
            "user": self._by_user(),
            "week": self._weekly(monday),
        }

    def _ranked(self, key: str, *fields: str) -> Any:
        if not self._has(*fields):
            return UNKNOWN
        rows = breakdown(self._exposure, f"coalesce({key}, '{UNKNOWN}')")
        return most_exposed_first(rows)

    def _banded(self, column: str, bands: Iterable[tuple[int | None, str]], *fields: str) -> Any:
        if not self._has(*fields):
            return UNKNOWN
        names = [name for _, name in bands]
        cases = " ".join(
            f"WHEN {column} <= {top} THEN {place}"
            for place, (top, _) in enumerate(bands)
            if top is not None
        )
        none = len(names)
        key = f"CASE WHEN {column} IS NULL THEN {none} {cases} ELSE {none - 1} END"
        names.append("no limit" if column == "wall" else UNKNOWN)
        rows = breakdown(self._exposure, key)
        return [{**row, "value": names[row["value"]]} for row in rows]

    def _by_user(self) -> Any:
        """The top users, and all others in one row."""
        if not self._has("user"):
            return UNKNOWN
        ranked = most_exposed_first(breakdown(self._exposure, '"user"'))
        top = ranked[: self._options.top]
        rows = [{**row, "value": self._user(row["value"])} for row in top]
        others = len(ranked) - len(top)
        if others:
            names = ", ".join(literal(row["value"]) for row in top if row["value"] is not None)
            none = ' AND "user" IS NOT NULL' if any(r["value"] is None for r in top) else ""
            key = f'coalesce("user" NOT IN ({names}), true){none}'
            merged = [row for row in breakdown(self._exposure, key) if row["value"]]
            rows += [{**row, "value": f"other users ({others:,})"} for row in merged]
        return rows

    def _weekly(self, monday: str) -> Any:
        if not self._has("end"):
            return UNKNOWN
        weeks = breakdown(self._exposure, monday)
        return [
            {**row, "value": (date(1970, 1, 1) + timedelta(days=row["value"])).isoformat()}
            for row in weeks
            if row["value"] is not None
        ]

    def _histogram(self) -> Any:
        """Runs by Elapsed over Timelimit; the last bin is open."""
        bins = len(HISTOGRAM_EDGES) - 1
        rows = self._query(
            f"SELECT least(elapsed * 20 // wall, {bins - 1})::INTEGER AS bin, count(*), "
            "coalesce(sum(node_seconds), 0)::BIGINT, count(*) FILTER (wall_ended) "
            "FROM ended WHERE wall > 0 GROUP BY bin"
        )
        if not rows:
            return UNKNOWN
        found = {row[0]: row[1:] for row in rows}
        columns = list(zip(*(found.get(place, (0, 0, 0)) for place in range(bins)), strict=True))
        return {
            "edges": list(HISTOGRAM_EDGES),
            "last_is_open": True,
            "runs": list(columns[0]),
            "node_hours": [_hours(seconds) for seconds in columns[1]],
            "wall_ended_runs": list(columns[2]),
            "band_from": 1 - walls.NEAR_SHARE,
        }

    def _concentration(self, wall: Mapping[str, Any]) -> Any:
        if not self._has("user") or UNKNOWN == wall["node_hours"] or not wall["node_hours"]:
            return UNKNOWN
        users = self._exposure.by('"user"', 'wall_ended AND "user" IS NOT NULL')
        ranked = sorted(users.items(), key=lambda item: (-item[1]["node_hours"], item[0]))
        rows, cumulative = [], 0.0
        for rank, (user, usage) in enumerate(ranked[: self._options.top], start=1):
            cumulative += usage["node_hours"]
            rows.append(
                {
                    "rank": rank,
                    "user": self._user(user),
                    "node_hours": usage["node_hours"],
                    "share": ratio(usage["node_hours"], wall["node_hours"]),
                    "cumulative_share": ratio(cumulative, wall["node_hours"]),
                }
            )
        return rows

    def _applications(self, wall: Mapping[str, Any]) -> Any:
        if not self._has("submitline", "jobname", "workdir"):
            return UNKNOWN
        rows = [
            {
                "application": key["application"],
                "checkpointing": key["checkpointing"],
                "evidence": key["evidence"] or "none",
                **usage,
                "share_of_node_hours": ratio(usage["node_hours"], wall["node_hours"]),
            }
            for key, usage in self._by_application()
        ]
        last = "not recognised"
        return sorted(
            rows,
            key=lambda row: (
                row["application"] == last,
                -row["node_hours"] if row["node_hours"] != UNKNOWN else 0,
                -row["runs"],
                row["application"],
                row["checkpointing"],
            ),
        )

    def _by_application(self) -> Iterable[tuple[dict[str, str], dict[str, Any]]]:
        """Usage by application and class, with the kinds of evidence that named them."""
        separator = "\x1f"
        kinds = dict(
            self._query(
                f"SELECT concat_ws('{separator}', application, checkpointing), "
                "string_agg(DISTINCT evidence, ', ' ORDER BY evidence) "
                "FROM walls WHERE wall_ended AND evidence <> '' GROUP BY ALL"
            )
        )
        key = f"concat_ws('{separator}', application, checkpointing)"
        for joined, usage in self._exposure.by(key, "wall_ended").items():
            application, checkpointing = joined.split(separator)
            evidence = kinds.get(joined, "")
            names = ("application", "checkpointing", "evidence")
            yield dict(zip(names, (application, checkpointing, evidence), strict=True)), usage

    def _repeats(self) -> dict[str, Any]:
        found = repeats.find(self._connection, self._loaded.columns)
        if found is None:
            names = ("certain", "probable", "ambiguous", "none", "too_recent", "considered")
            return {
                **dict.fromkeys(names, UNKNOWN),
                "false_match_rate": UNKNOWN,
                "completed_tested": 0,
                "horizon_days": repeats.HORIZON // 86400,
                "node_hours": dict.fromkeys(names[:3], UNKNOWN),
                "chains": [],
            }
        tiers = ("certain", "probable", "ambiguous")
        counts = {tier: sum(link.tier == tier for link in found.links) for tier in tiers}
        runs = self._described({run for link in found.links for run in (link.run, link.follower)})
        rate = found.false_match_rate
        return {
            **counts,
            "none": found.none,
            "too_recent": found.too_recent,
            "considered": sum(counts.values()) + found.none,
            "false_match_rate": UNKNOWN if rate is None else round(rate, 6),
            "completed_tested": found.completed_tested,
            "horizon_days": round(found.horizon / 86400, 2),
            "node_hours": {
                tier: _sum_hours(
                    runs[link.run]["node_seconds"] for link in found.links if link.tier == tier
                )
                for tier in tiers
            },
            "chains": self._chains(found.links, runs),
        }

    def _described(self, wanted: set[int]) -> dict[int, dict[str, Any]]:
        names = ("job", "user", "state", "end", "wall", "elapsed", "nodes", "node_seconds")
        rows = self._connection.execute(
            'SELECT run, job, "user", state, "end", wall, elapsed, nodes, node_seconds, '
            "application, wall_ended FROM ended WHERE run IN (SELECT unnest(?))",
            [sorted(wanted)],
        ).fetchall()
        return {
            row[0]: dict(zip((*names, "application", "wall_ended"), row[1:], strict=True))
            for row in rows
        }

    def _chains(self, links: Iterable[Any], runs: dict[int, Any]) -> list[dict[str, Any]]:
        """The chains with the most exposed node-hours; a last run that completed is not exposed."""

        def size(chain: tuple[str, list[int]]) -> tuple[int, int, str]:
            exposed = sum(runs[run]["node_seconds"] or 0 for run in _exposed(chain[1], runs))
            return (-exposed, -len(chain[1]), runs[chain[1][0]]["job"])

        largest = sorted(repeats.chains(links), key=size)[: self._options.top]
        return [self._chain(tier, members, runs) for tier, members in largest]

    def _chain(self, tier: str, members: list[int], runs: dict[int, Any]) -> dict[str, Any]:
        attempts = [runs[member] for member in members]
        limits = [attempt["wall"] for attempt in attempts]
        exposed = (runs[run]["node_seconds"] for run in _exposed(members, runs))
        return {
            "tier": tier,
            "escalating": None not in limits and limits == sorted(set(limits)),
            "user": self._user(attempts[0]["user"]),
            "application": attempts[0]["application"] or UNKNOWN,
            "exposed_node_hours": _sum_hours(exposed),
            "attempts": [self._attempt(attempt) for attempt in attempts],
        }

    def _attempt(self, attempt: dict[str, Any]) -> dict[str, Any]:
        return {
            "job": attempt["job"],
            "state": attempt["state"],
            "end": self._iso(attempt["end"]),
            "limit_hours": _hours(attempt["wall"]),
            "elapsed_hours": _hours(attempt["elapsed"]),
            "nodes": _or_unknown(attempt["nodes"]),
            "node_hours": _hours(attempt["node_seconds"]),
        }


def _exposed(members: list[int], runs: Mapping[int, Any]) -> list[int]:
    return members[:-1] if runs[members[-1]]["state"] == "COMPLETED" else members


def _or_unknown(value: Any) -> Any:
    return UNKNOWN if value is None else value


def _hours(seconds: int | None) -> float | str:
    return UNKNOWN if seconds is None else round(seconds / 3600, 4)


def _sum_hours(seconds: Iterable[int | None]) -> float | str:
    listed = list(seconds)
    return UNKNOWN if None in listed else round(sum(s for s in listed if s) / 3600, 4)


def seconds_of(text: str, zone: str | None) -> int:
    """A date or time as typed, as seconds since 1970 in the zone of the input.

    Raises:
        ValueError: not a date or time of ISO 8601.
    """
    stamp = datetime.fromisoformat(text)
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
    return int(stamp.timestamp())
