"""The same work submitted again after its time limit: how often, how surely, in which chains.

Evidence, strongest first: the same job id with a later Submit (requeue) or a dependency that names
the run are certain; the same user, work directory, normalised name and array index is probable;
where two such runs ever overlapped, or only a name that says nothing is there, it is ambiguous.
Limits are never compared: a longer limit is what a user changes. One follower answers one run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

HORIZON = 7 * 86400
"""Seconds within which a follower is looked for; a third of a short history."""

MOST_TESTED = 20_000
"""About so many COMPLETED runs give the false-match rate, drawn by a hash of their key."""

NEEDED = ("user", "jobname", "submit", "end")
"""Fields without which nothing can be said about repeats (besides a job id)."""

_GENERIC = (
    "bash sh zsh interactive _interactive wrap sbatch job test run run.sh job.sh script script.sh "
    "submit submit.sh slurm slurm.sh allocation main a.out"
).split()

_NAMES = r"""
CREATE TABLE names AS
SELECT name,
  regexp_replace(regexp_replace(regexp_replace(lower(name),
    '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', '#', 'g'),
    '\d{4}-?\d\d-?\d\d|\d{6,}', '#', 'g'),
    '([-_.]?(v|part|run|r|try|attempt|restart|cont|rst|chunk|seg|step)?[-_.]?[\d#]+)+$', '#')
    AS loose
FROM (SELECT DISTINCT name FROM records JOIN runs ON records.rowid = runs.run)
"""

_KEYED = """
CREATE TABLE keyed AS
SELECT runs.run, hash(runs.cluster, runs."user", {identity},
    try_cast(nullif(split_part(runs.job, '_', 2), '') AS BIGINT)) AS key,
  {weak} AS weak, runs.submit, coalesce(runs.start, runs."end" - runs.elapsed) AS start, runs."end",
  coalesce(walls.kind IN ('limit', 'limit_unknown'), false) AS at_limit,
  runs.state = 'COMPLETED' AND walls.run IS NULL AS completed
FROM runs JOIN records ON records.rowid = runs.run JOIN names ON names.name = records.name
LEFT JOIN walls ON walls.run = runs.run
WHERE runs."user" IS NOT NULL AND runs.submit IS NOT NULL AND runs."end" IS NOT NULL
  AND runs.elapsed > 0 AND NOT runs.truncated
"""

_REQUEUED = """
SELECT earlier.run, arg_min(later.run, later.submit)
FROM runs AS earlier
JOIN walls ON walls.run = earlier.run AND kind IN ('limit', 'limit_unknown')
JOIN runs AS later ON later.id = earlier.id AND later.cluster IS NOT DISTINCT FROM earlier.cluster
  AND later."user" = earlier."user" AND later.submit > earlier.submit AND later.elapsed > 0
  AND later.submit <= earlier."end" + ?
GROUP BY earlier.run
"""

_DEPENDENT = """
SELECT runs.run, runs.cluster, runs."user", submit_line
FROM runs JOIN records ON records.rowid = runs.run
WHERE runs.elapsed > 0 AND (contains(submit_line, 'depend') OR contains(submit_line, ' -d'))
ORDER BY runs.submit, runs.job
"""
_AFTER = re.compile(r"after(?:any|notok)((?::\d+(?:_\d+)?(?:\+\d+)?)+)")


@dataclass(frozen=True, slots=True)
class Link:
    """A wall-ended run and the run that went on with its work."""

    run: int
    follower: int
    tier: str


@dataclass(frozen=True, slots=True)
class Repeats:
    """What is known of repeats.

    Attributes:
        links: one for each run that was followed up.
        none: runs at their limit without a follower, all of the horizon being in the history.
        too_recent: those whose horizon reaches past the history's end.
        false_match_rate: share of COMPLETED runs that the probable rule finds a follower for; None
            if there was none to test.
        horizon: seconds.
    """

    links: tuple[Link, ...]
    none: int
    too_recent: int
    completed_tested: int
    false_match_rate: float | None
    horizon: int


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Runs that share keys with others, ordered by key and submit."""

    run: npt.NDArray[np.int64]
    key: npt.NDArray[np.uint64]
    weak: npt.NDArray[np.bool_]
    submit: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.bool_]


def find(connection: duckdb.DuckDBPyConnection, columns: frozenset[str]) -> Repeats | None:
    """Repeats among the runs; tables of `walls.classify` must be there.

    Args:
        columns: canonical names of the fields in the files.

    Returns:
        None where the fields it takes are missing.
    """
    if not set(NEEDED) <= columns or not {"jobid", "jobidraw"} & columns:
        return None
    horizon, last_end = _period(connection)
    _make_keys(connection, "workdir" in columns)
    certain = _certain(connection, horizon)
    followed = {link.run for link in certain}
    taken = {link.follower for link in certain}
    likely = _follow(_rows(connection, "at_limit", "true"), horizon, followed, taken)
    links = (*certain, *likely)
    none, too_recent = _unfollowed(connection, links, last_end - horizon)
    tested, rate = _false_matches(connection, horizon, last_end)
    return Repeats(links, none, too_recent, tested, rate, horizon)


def _period(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    row = connection.execute('SELECT min("end"), max("end") FROM runs').fetchone()
    first, last = row if row and row[0] is not None else (0, 0)
    return min(HORIZON, (last - first) // 3), last


def _make_keys(connection: duckdb.DuckDBPyConnection, has_work_dir: bool) -> None:
    generic = ", ".join(f"'{name}'" for name in _GENERIC)
    connection.execute(_NAMES)
    says_nothing = f"lower(records.name) IN ({generic}) OR records.name LIKE 'sys/dashboard%'"
    if has_work_dir:
        identity, weak = "coalesce(records.work_dir, ''), names.loose", "records.work_dir IS NULL"
    else:
        identity, weak = "records.name", says_nothing
    connection.execute(_KEYED.format(identity=identity, weak=weak))


def _certain(connection: duckdb.DuckDBPyConnection, horizon: int) -> list[Link]:
    """Requeues of the same job, and dependencies on it; each follower once."""
    links: dict[int, Link] = {}
    taken: set[int] = set()
    requeued = connection.execute(_REQUEUED, [horizon]).fetchall()
    for run, follower in (*sorted(requeued), *_dependent(connection)):
        if run not in links and follower not in taken and run != follower:
            links[run] = Link(run, follower, "certain")
            taken.add(follower)
    return list(links.values())


def _dependent(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, int]]:
    at_limit = connection.execute(
        "SELECT run, cluster, \"user\", id, job, split_part(job, '_', 1) "
        "FROM runs JOIN walls USING (run) "
        "WHERE kind IN ('limit', 'limit_unknown') ORDER BY submit, job"
    ).fetchall()
    named: dict[tuple[Any, ...], int] = {}
    for run, cluster, user, *ids in at_limit:
        for one in ids:
            if one:
                named[cluster, user, one] = run
    for follower, cluster, user, submit_line in connection.execute(_DEPENDENT).fetchall():
        for match in _AFTER.finditer(submit_line):
            for one in match[1].split(":")[1:]:
                run = named.get((cluster, user, one))
                if run is not None:
                    yield run, follower


def _rows(connection: duckdb.DuckDBPyConnection, wanted: str, sample: str) -> _Keyed:
    """All runs of the keys that have more than one run and at least one that is wanted."""
    found = connection.execute(
        f"""
        SELECT keyed.run, key, weak, keyed.submit, keyed.start, keyed."end", {wanted} AS wanted
        FROM keyed JOIN runs ON runs.run = keyed.run
        WHERE key IN (SELECT key FROM keyed WHERE {sample}
          GROUP BY key HAVING count(*) > 1 AND bool_or({wanted}))
        ORDER BY key, keyed.submit, keyed.start, keyed."end", job
        """
    ).fetchnumpy()
    return _Keyed(**{name: np.asarray(found[name]) for name in _Keyed.__slots__})


def _follow(rows: _Keyed, horizon: int, followed: set[int], taken: set[int]) -> list[Link]:
    """For each wanted run the first free run of its key that was submitted after its end."""
    links = []
    free = ~np.isin(rows.run, list(taken))
    for first, last in _groups(rows.key):
        ends = rows.end[first:last]
        for at in first + np.argsort(ends, kind="stable"):
            if not rows.wanted[at] or int(rows.run[at]) in followed:
                continue
            follower = _first_free(rows, free, int(at), last, horizon)
            if follower is not None:
                free[follower] = False
                doubtful = rows.weak[at] or _overlapped(rows, int(at), first, last)
                tier = "ambiguous" if doubtful else "probable"
                links.append(Link(int(rows.run[at]), int(rows.run[follower]), tier))
    return links


def _groups(key: npt.NDArray[np.uint64]) -> Iterable[tuple[int, int]]:
    if not len(key):
        return []
    borders = np.flatnonzero(key[1:] != key[:-1]) + 1
    edges = [0, *borders.tolist(), len(key)]
    return pairwise(edges)


def _first_free(
    rows: _Keyed, free: npt.NDArray[np.bool_], at: int, last: int, horizon: int
) -> int | None:
    end = int(rows.end[at])
    place = at + 1 + int(np.searchsorted(rows.submit[at + 1 : last], end))
    while place < last and rows.submit[place] <= end + horizon:
        if free[place]:
            return place
        place += 1
    return None


def _overlapped(rows: _Keyed, at: int, first: int, last: int) -> bool:
    """Whether another run of the same key ran at the same time: a sweep, not a repetition."""
    start, end = rows.start[first:last], rows.end[first:last]
    return int(((start < rows.end[at]) & (end > rows.start[at])).sum()) > 1


def _unfollowed(
    connection: duckdb.DuckDBPyConnection, links: Iterable[Link], observed_until: int
) -> tuple[int, int]:
    followed = {link.run for link in links}
    ends = connection.execute(
        'SELECT run, "end" FROM runs JOIN walls USING (run) '
        "WHERE kind IN ('limit', 'limit_unknown')"
    ).fetchall()
    left = [end for run, end in ends if run not in followed]
    recent = sum(end is None or end > observed_until for end in left)
    return len(left) - recent, recent


def _false_matches(
    connection: duckdb.DuckDBPyConnection, horizon: int, last_end: int
) -> tuple[int, float | None]:
    """The probable rule tried on runs that needed no follower: COMPLETED ones."""
    old_enough = f'completed AND keyed."end" <= {last_end - horizon}'
    row = connection.execute(f"SELECT count(*) FROM keyed WHERE {old_enough}").fetchone()
    every = max(1, -(-(row[0] if row else 0) // MOST_TESTED))
    sample = f"key % {every} = 0"
    row = connection.execute(
        f"SELECT count(*) FROM keyed WHERE {old_enough} AND {sample}"
    ).fetchone()
    tested = int(row[0]) if row else 0
    if not tested:
        return 0, None
    links = _follow(_rows(connection, old_enough, sample), horizon, set(), set())
    return tested, sum(link.tier == "probable" for link in links) / tested


def chains(links: Iterable[Link]) -> list[tuple[str, list[int]]]:
    """Links joined end to end: (tier of the weakest link, run ids from first to last)."""
    by_run: Mapping[int, Link] = {link.run: link for link in links}
    followers = {link.follower for link in by_run.values()}
    tiers = ("certain", "probable", "ambiguous")
    found = []
    for first in by_run:
        if first in followers:
            continue
        runs, weakest = [first], 0
        while (link := by_run.get(runs[-1])) and link.follower not in runs:
            weakest = max(weakest, tiers.index(link.tier))
            runs.append(link.follower)
        found.append((tiers[weakest], runs))
    return found
