"""Which runs ended at their time limit, and which a checkpoint could have covered.

Slurm stores State TIMEOUT for the time limit, and also for the end of a reservation, a usage limit
and an inactive session; and a run ended by its limit can bear another State. Elapsed against
Timelimit tells them apart.
"""

from __future__ import annotations

import csv
from pathlib import Path

import duckdb

from cedana_poc.applications import Checkpointing, recognise
from cedana_poc.sacct.typed import literal

TOLERANCE = 60
"""Seconds before its limit at which a TIMEOUT still counts as the limit's: slurmctld looks about
every 30 s, and 1 to 29 s past the limit is what real files show."""

NEAR_SECONDS, NEAR_SHARE, NEAR_MOST = 300, 0.02, 0.10
"""A run of another State ended near its limit within max(5 min, 2 %) of it, but never further off
than a tenth of the limit: half of all ten-minute jobs end within five minutes of their limit."""

ADMINISTRATIVE = 5
"""So many TIMEOUTs below their limit in one minute are one administrative event."""

KINDS = ("limit", "session", "near_limit_other_state", "not_the_limit", "limit_unknown")
CAUSES = ("administrative", "reservation", "usage_limit_or_inactivity")
NOT_ADDRESSABLE = (
    "session",
    "several_nodes",
    "nodes_unknown",
    "gpu_not_supported",
    "checkpoints_itself",
)

_UNSUPPORTED_GPU = (
    r"(^|\+)(mi\d|instinct|gfx|vega|radeon|amd|max1\d|pvc|ponte|intel|gaudi|hpu)|\d+g\.\d+gb"
)
"""AMD, Intel and Habana devices and MIG slices, `1g.10gb` or `a100_1g.10gb`, alone or among others:
no open or closed engine restores them."""

_KIND = f"""
CREATE TABLE at_wall AS
WITH kinds AS MATERIALIZED (
  SELECT run, state, "end", reservation, elapsed, wall,
    CASE
      WHEN state = 'TIMEOUT' AND wall IS NULL AND no_wall THEN 'not_the_limit'
      WHEN state = 'TIMEOUT' AND wall IS NULL THEN 'limit_unknown'
      WHEN state = 'TIMEOUT' AND elapsed >= wall - {TOLERANCE} THEN 'limit'
      WHEN state = 'TIMEOUT' THEN 'not_the_limit'
      WHEN wall > 0 AND elapsed >= wall - least(
        greatest({NEAR_SECONDS}, {NEAR_SHARE} * wall), {NEAR_MOST} * wall)
        THEN 'near_limit_other_state'
    END AS kind
  FROM runs
  WHERE state = 'TIMEOUT' OR elapsed >= {1 - NEAR_MOST}::DOUBLE * wall - 1
)
SELECT run, kind,
  kind IN ('limit', 'limit_unknown') OR (kind = 'near_limit_other_state' AND elapsed >= wall
    AND state IN ('FAILED', 'CANCELLED', 'REQUEUED')) AS wall_ended,
  CASE WHEN kind <> 'not_the_limit' THEN NULL
    WHEN "end" IS NOT NULL
      AND count(*) OVER (PARTITION BY kind, "end" // 60) >= {ADMINISTRATIVE} THEN 'administrative'
    WHEN reservation IS NOT NULL THEN 'reservation'
    ELSE 'usage_limit_or_inactivity' END AS cause
FROM kinds WHERE kind IS NOT NULL
"""

_EVIDENCE = """
SELECT at_wall.run, coalesce(submit_line, ''), coalesce(steps, []), coalesce(name, ''),
  coalesce(work_dir, ''), coalesce(records.partition, ''),
  coalesce(list_contains(suffixes, 'interactive'), false)
FROM at_wall JOIN records ON records.rowid = at_wall.run
LEFT JOIN (
  SELECT job, list(name ORDER BY try_cast(suffix AS BIGINT)) FILTER (suffix <> 'interactive')
    AS steps, list(suffix) AS suffixes
  FROM step_names
  WHERE job IN (SELECT records.job FROM records JOIN at_wall ON records.rowid = run)
  GROUP BY job
) AS named ON named.job = records.job
"""

_WALLS = f"""
CREATE TABLE walls AS
SELECT at_wall.* EXCLUDE (kind),
  if(kind IN ('limit', 'limit_unknown') AND checkpointing = '{Checkpointing.SESSION}',
    'session', kind) AS kind,
  application, checkpointing, evidence,
  CASE
    WHEN NOT wall_ended THEN NULL
    WHEN checkpointing = '{Checkpointing.SESSION}' THEN 'session'
    WHEN nodes > 1 THEN 'several_nodes'
    WHEN nodes IS NULL THEN 'nodes_unknown'
    WHEN gpus > 0 AND regexp_matches(lower(gpu_model), '{_UNSUPPORTED_GPU}')
      THEN 'gpu_not_supported'
    WHEN checkpointing = '{Checkpointing.DEFAULT}' THEN 'checkpoints_itself'
    ELSE 'addressable'
  END AS coverable
FROM at_wall JOIN runs USING (run) JOIN recognised USING (run)
"""


def classify(connection: duckdb.DuckDBPyConnection, scratch: Path) -> None:
    """Make table `walls` from `runs`: one row for each run that ended at or near its limit.

    Columns: run, kind (of `KINDS`), wall_ended, cause (of `CAUSES`, for not_the_limit),
    application, checkpointing, evidence, coverable (`addressable`, one of `NOT_ADDRESSABLE`, or
    NULL for a run that is not wall-ended). And view `ended`: `runs` with these columns.
    """
    connection.execute(_KIND)
    _recognise(connection, scratch / "recognised")
    connection.execute(_WALLS)
    connection.execute(
        "CREATE VIEW ended AS SELECT runs.*, walls.* EXCLUDE (run, wall_ended), "
        "coalesce(wall_ended, false) AS wall_ended FROM runs LEFT JOIN walls USING (run)"
    )


def _recognise(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Make table `recognised`: the application of every run in `at_wall`."""
    with file.open("w", newline="") as out:
        write = csv.writer(out).writerow
        rows = connection.cursor().execute(_EVIDENCE)
        while batch := rows.fetchmany(10_000):
            for run, submit_line, steps, name, work_dir, partition, interactive in batch:
                found = recognise(submit_line, tuple(steps), name, work_dir, partition, interactive)
                application = found.application
                write((run, application.name, application.checkpointing, found.evidence))
    columns = (
        "{'run': 'BIGINT', 'application': 'VARCHAR', 'checkpointing': 'VARCHAR', "
        "'evidence': 'VARCHAR'}"
    )
    connection.execute(
        f"CREATE TABLE recognised AS FROM read_csv({literal(str(file))}, columns={columns}, "
        "header=false, auto_detect=false, delim=',', quote='\"', escape='\"')"
    )
    file.unlink()
