"""Checks of the history itself: what may be missing from it, and what that takes away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cedana_poc import capacity, clipped
from cedana_poc.exposure import HOURS, Exposure
from cedana_poc.moments import iso
from cedana_poc.nodes import Nodes
from cedana_poc.sacct.load import Loaded

Check = dict[str, str]

TAKEN_AWAY = (
    (("jobid", "jobidraw"), "repeats and duplicate records"),
    (("user",), "concentration by user, the figures without the top user, and repeats"),
    (("partition",), "figures by partition"),
    (("timelimit", "timelimitraw"), "which TIMEOUTs were the limit, and runs near it"),
    (("nnodes", "allocnodes", "alloctres"), "node-hours"),
    (("ncpus", "alloccpus", "alloctres"), "CPU-hours"),
    (("alloctres", "allocgres", "reqgres"), "GPU-hours and GPU models"),
    (("alloctres",), "billing-hours"),
    (("submit",), "repeats"),
    (("start",), "runs told apart by their start"),
    (("end",), "the period covered, weeks, administrative events, and repeats"),
    (("jobname",), "repeats, and applications by job name"),
    (("submitline",), "applications by submit line, and dependencies between jobs"),
    (("workdir",), "repeats told apart by work directory"),
    (("nodelist",), "node-equivalent hours"),
)
"""Fields of which one is needed, and what cannot be said, or less surely, without them."""


_NO_SIZE = """
SELECT DISTINCT node_list FROM kept
WHERE elapsed > 0 AND r NOT IN (SELECT r FROM copies)
  AND node_list NOT IN (SELECT node_list FROM node_sets)
"""
_ON_NODES = """
SELECT count(DISTINCT coalesce(run, r)) FROM kept LEFT JOIN run_groups USING (r)
WHERE elapsed > 0 AND r NOT IN (SELECT r FROM copies)
  AND node_list IN (SELECT unnest(?))
"""


def checks(
    loaded: Loaded, exposure: Exposure, nodes: Nodes | None, share_of_capacity: float | str
) -> list[Check]:
    """All checks, each with its state: ok, note, warning, or unknown.

    Args:
        nodes: the list that was given.
        share_of_capacity: as computed, which may be above 1.
    """
    found: list[Check] = []
    for check in (
        _clipped,
        _rows,
        _columns,
        _zone,
        _coverage,
        _requeues,
        _users,
        _truncated,
        _units,
    ):
        found.extend(check(loaded, exposure))
    if nodes:
        found.extend(_nodes(loaded, exposure, nodes))
    found.extend(_capacity(share_of_capacity))
    return found


def _check(check: str, state: str, detail: str) -> Check:
    return {"check": check, "state": state, "detail": detail}


def _first_few(names: list[str]) -> str:
    """Names in a sentence: the first three, and how many more there are."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more:,} more" if more > 0 else "")


def _value(loaded: Loaded, sql: str) -> tuple[Any, ...]:
    return loaded.connection.execute(sql).fetchone() or ()


def _rows(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    account = loaded.account
    bad, repaired = account.left_out["unreadable"], account.repaired
    detail = f"{bad:,} of {account.rows_in:,} rows could not be read, {repaired:,} were repaired"
    yield _check("rows", "warning" if bad else "note" if repaired else "ok", detail)
    if account.left_out["cut last row"] or any(file.cut for file in account.inputs):
        yield _check("end of file", "warning", "a file is cut off; what it lacks is unknown")
    copies = account.left_out["identical copies"] + account.left_out["older copies"]
    if copies:
        yield _check(
            "copies", "note", f"{copies:,} records were there more than once, counted once"
        )


def _columns(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    missing = [
        (fields, loss) for fields, loss in TAKEN_AWAY if not loaded.columns.intersection(fields)
    ]
    for fields, loss in missing:
        yield _check("missing column", "unknown", f"no {' or '.join(fields)}: {loss}")
    if not missing:
        yield _check("columns", "ok", "every field that a figure is made of is in the input")


def _zone(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    if not loaded.columns & {"submit", "eligible", "start", "end"}:
        return
    if loaded.zone:
        detail = f"local times are read as {loaded.zone}"
        yield _check("time zone", "ok", detail)
    elif any(file.local_times for file in loaded.account.inputs):
        yield _check(
            "time zone",
            "note",
            "the stamps carry no zone and --timezone was not given: hours are right where Elapsed "
            "is in the file, days and weeks are the cluster's own",
        )
    else:
        yield _check("time zone", "ok", "times are seconds since 1970")


def _coverage(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    """Days without an ended run, and first days so thin that older records may be purged."""
    days = loaded.connection.execute(
        'SELECT "end" // 86400 AS day, count(*) FROM runs WHERE "end" IS NOT NULL '
        "GROUP BY day ORDER BY day"
    ).fetchall()
    if not days:
        yield _check("days covered", "unknown", "no run has an end time")
        return
    span = days[-1][0] - days[0][0] + 1
    empty = span - len(days)
    detail = f"{len(days):,} of {span:,} days have ended runs"
    yield _check("days covered", "warning" if empty else "ok", detail)
    counts = dict(days)
    typical = sorted(counts.values())[len(counts) // 2]
    opening = [counts.get(days[0][0] + n, 0) for n in range(max(3, span // 10))]
    if span >= 14 and max(opening) < typical * 0.2:
        yield _check(
            "purge",
            "warning",
            f"the first {len(opening)} days have under a fifth of the usual runs: "
            "older records may be purged from slurmdbd",
        )


def _clipped(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    """`sacct -T` sets Start and End to the edges of the window; makes table `continuations`."""
    cuts = clipped.find(loaded.connection)
    if cuts:
        seen = "were" if cuts.certain else "seem"
        instants = _first_few([iso(loaded, instant) for instant in cuts.instants])
        yield _check(
            "window edges",
            "warning",
            f"{cuts.runs:,} runs {seen} cut by sacct -T: no piece is as long as its run, so "
            f"wall-ended runs are missed; export without -T; cut at {instants}",
        )


def _requeues(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    if not loaded.columns & {"jobid", "jobidraw"}:
        return
    repeated, restarted = _value(
        loaded,
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM runs "
        "WHERE id IS NOT NULL AND run NOT IN (SELECT run FROM continuations) "
        "GROUP BY cluster, id HAVING count(*) > 1)), "
        "(SELECT count(*) FROM runs WHERE restarts > 0)",
    )
    if repeated:
        yield _check("requeues", "ok", f"visible: {repeated:,} job ids have several records")
    elif restarted:
        detail = f"{restarted:,} runs were restarted, their earlier records are not in the input"
        yield _check("requeues", "warning", f"{detail}; export with sacct -D")
    else:
        detail = "no job id has a second record: there were no requeues, or the export lacks -D"
        yield _check("requeues", "note", detail)


def _users(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    if "user" not in loaded.columns:
        return
    users, total = _value(loaded, 'SELECT count(DISTINCT "user"), count(*) FROM runs')
    if users == 1 and total > 20:
        yield _check(
            "users",
            "warning",
            "all runs are of one user: without sacct -a, or under PrivateData, others are hidden "
            "and shares are of that user only",
        )
    elif users:
        yield _check("users", "ok", f"{users:,} users")


def _truncated(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    cut = loaded.account.truncated
    if cut:
        columns = ", ".join(f"{name} in {n:,} rows" for name, n in sorted(cut.items()))
        yield _check(
            "truncated values",
            "warning",
            f"fixed width has cut {columns}: such jobs cannot be matched; export with sacct -P",
        )


def _units(loaded: Loaded, exposure: Exposure) -> Iterator[Check]:
    for figure, column in HOURS.items():
        if figure != "node_equivalent_hours":
            yield from _unit(exposure, figure, exposure.missing[column])


def _unit(exposure: Exposure, figure: str, missing: int) -> Iterator[Check]:
    if missing <= 0:
        return
    unit = figure.replace("_", "-").replace("cpu", "CPU").replace("gpu", "GPU")
    if figure in exposure.counted:
        detail = f"{missing:,} runs lack what {unit} are made of: their sums are lower bounds"
        yield _check("units", "warning", detail)
    else:
        yield _check("units", "unknown", f"{missing:,} runs lack what {unit} are made of")


def _nodes(loaded: Loaded, exposure: Exposure, nodes: Nodes) -> Iterator[Check]:
    """Nodes that the list lacks, and runs whose size is not known for other reasons."""
    figure = "node_equivalent_hours"
    missing = exposure.missing[HOURS[figure]]
    lists = [text for (text,) in loaded.connection.execute(_NO_SIZE).fetchall()]
    names = {text: unlisted for text in lists if (unlisted := nodes.unlisted(text))}
    if names:
        (runs,) = loaded.connection.execute(_ON_NODES, [list(names)]).fetchone() or (0,)
        missing -= runs
        every = sorted(set().union(*names.values()))
        known = figure in exposure.counted
        yield _check(
            "nodes not listed",
            "warning",
            f"{runs:,} runs were on {len(every):,} nodes that the list lacks: "
            f"{_first_few(every)}; add them, retired ones too: node-equivalent hours are "
            f"{'lower bounds' if known else 'unknown'}",
        )
    yield from _unit(exposure, figure, missing)


def _capacity(share: float | str) -> Iterator[Check]:
    if capacity.too_large(share):
        yield _check(
            "share of capacity",
            "warning",
            f"unknown: wall-ended runs held {share:,.1f} times what the listed nodes had; the node "
            "list lacks nodes, or they are larger than it says, or runs shared them beyond their "
            "size",
        )
