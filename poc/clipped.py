"""Runs that `sacct -T` cut: it sets Start and End to the edges of the window it was asked for.

Exported day by day, a run that crosses midnight is then two records, neither of them at its limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from cedana_poc.walls import TOLERANCE

MANY = 10
"""So many runs, submitted at as many times, do not start or end in one second by chance."""

_MOST_INSTANTS = 100

# Slurm keeps one record for each (job, Submit): a second Start of it is another cut. A minute, for
# windows that end at 23:59:59 or 23:59 and begin at 00:00.
_CONTINUATIONS = """
CREATE TABLE continuations AS
WITH pieces AS (
  SELECT rowid AS run, cluster, id, submit, start, "end", hash(cluster, id, submit) AS job
  FROM records
  WHERE (reason IS NULL AND rowid NOT IN (SELECT r FROM copies) OR reason = 'running')
    AND id IS NOT NULL AND NOT truncated AND state <> 'RESIZING' AND start IS NOT NULL
), several AS (
  SELECT job FROM pieces GROUP BY job HAVING count(*) > 1
), ordered AS (
  SELECT run, job, start, lag(start) OVER one AS previous, lag("end") OVER one AS stopped
  FROM pieces WHERE job IN (FROM several)
  WINDOW one AS (PARTITION BY cluster, id, submit ORDER BY start, "end", run)
)
SELECT run, job, start FROM ordered WHERE previous < start AND start <= stopped + 60
"""

_BEGUN = f"""
SELECT start, count(*), count(DISTINCT "end") >= {MANY}, count(DISTINCT "end" // 60)
  FILTER (state = 'TIMEOUT' AND elapsed < wall - {TOLERANCE} AND reservation IS NULL) >= 3
FROM runs WHERE start % 60 = 0
GROUP BY start HAVING count(DISTINCT submit) FILTER (submit < start) >= {MANY}
"""
"""Whole minutes at which many waiting jobs began; how many; whether they ended at many times; and
whether some timed out before their limit, not all at once."""

_ENDED = f"""
SELECT ("end" + 1) // 60 * 60 AS instant, count(*), count(DISTINCT start) >= {MANY}
FROM runs WHERE "end" % 60 IN (0, 59)
GROUP BY instant HAVING count(DISTINCT submit) >= {MANY}
"""
"""Whole minutes at which, or a second before which, many jobs ended; how many; and whether they had
begun at many times."""

_OUTER = 'SELECT min(start), (max("end") + 1) // 60 * 60 FROM runs'

_CROSSED = """
SELECT instant, count(*) FROM runs JOIN (SELECT unnest(?) AS instant) ON start < instant
  AND "end" > instant GROUP BY instant
"""


@dataclass(frozen=True, slots=True)
class Cuts:
    """What was cut, and where.

    Attributes:
        runs: how many runs.
        instants: seconds since 1970, in order.
        certain: the pieces of the runs were found; else only their sum shows it.
    """

    runs: int
    instants: list[int]
    certain: bool


def find(connection: duckdb.DuckDBPyConnection) -> Cuts | None:
    """The runs that seem cut; None if none does.

    Makes table `continuations`: the runs that are a later piece of one that another record began.
    """
    connection.execute(_CONTINUATIONS)
    instants = connection.execute("SELECT DISTINCT start FROM continuations ORDER BY 1").fetchall()
    if instants:
        row = connection.execute("SELECT count(DISTINCT job) FROM continuations").fetchone()
        return Cuts(row[0] if row else 0, [instant for (instant,) in instants], certain=True)
    return _by_instants(connection)


def _by_instants(connection: duckdb.DuckDBPyConnection) -> Cuts | None:
    """Where pieces cannot be told to be of one run: edges that many runs share and few cross.

    A shared Start alone is no edge: jobs that waited for maintenance to end share it too. It is one
    if many runs end at it; or if it is the first of all, and the last End is shared like it; or if
    runs that began at it timed out one by one before their limit.
    """
    begun = {row[0]: row[1:] for row in connection.execute(_BEGUN).fetchall()}
    if not begun:
        return None
    ended = {row[0]: row[1:] for row in connection.execute(_ENDED).fetchall()}
    edges = begun.keys() & ended.keys() | {at for at, (_, _, short) in begun.items() if short}
    first, last = connection.execute(_OUTER).fetchone() or (None, None)
    if begun.get(first, (0, False))[1] and ended.get(last, (0, False))[1]:
        edges |= {first, last}
    counts = {at: begun.get(at, (0,))[0] + ended.get(at, (0,))[0] for at in edges}
    kept = _hardly_crossed(connection, counts)
    if not kept:
        return None
    return Cuts(sum(counts[instant] for instant in kept), kept, certain=False)


def _hardly_crossed(connection: duckdb.DuckDBPyConnection, counts: dict[int, int]) -> list[int]:
    """The instants that fewer runs go on through than start or end at them."""
    largest = sorted(counts, key=lambda instant: (-counts[instant], instant))[:_MOST_INSTANTS]
    crossed = dict(connection.execute(_CROSSED, [largest]).fetchall()) if largest else {}
    return sorted(instant for instant in largest if crossed.get(instant, 0) < counts[instant])
