"""Write a large sacct file for the benchmarks: four rows a job, 29 columns, parsable2.

python benchmarks/make_sacct.py OUT --jobs 500000
"""

from __future__ import annotations

import argparse
from pathlib import Path

import duckdb

DRAW = "CREATE MACRO draw(i, salt) AS (hash(i, salt) % 1000003)::BIGINT"

ROWS = """
WITH job AS (
  SELECT
    1000000 + i AS id,
    draw(i, 'h') AS h,
    draw(i, 'user') % 400 AS u,
    draw(i, 'part') % 5 AS p,
    1767225600 + (i * 7776000 // {jobs}) AS submit,
    [3600, 14400, 28800, 86400, 172800][1 + draw(i, 'limit') % 5]::BIGINT AS lim,
    draw(i, 'state') % 1000 AS s,
    [1, 1, 1, 1, 2, 4, 8][1 + draw(i, 'nodes') % 7] AS n
  FROM range({jobs}) AS r(i)
), timed AS (
  SELECT *,
    CASE WHEN s < 30 THEN 'TIMEOUT' WHEN s < 100 THEN 'FAILED'
         WHEN s < 140 THEN 'CANCELLED by ' || (1000 + u) WHEN s < 150 THEN 'OUT_OF_MEMORY'
         ELSE 'COMPLETED' END AS state,
    CASE WHEN s < 30 THEN lim + h % 28 ELSE 1 + h % (lim - 600) END AS run,
    submit + draw(id, 'wait') % 7200 AS start
  FROM job
), rows AS (
  SELECT id, k,
    id || suffix AS jobid,
    k = 0 AS is_job, *
  FROM timed, (VALUES (0, ''), (1, '.batch'), (2, '.extern'), (3, '.0')) AS step(k, suffix)
)
SELECT
  jobid, jobid AS raw, 'alpha' AS cluster,
  if(is_job, ['cpu', 'long', 'gpu', 'bigmem', 'debug'][1 + p], '') AS part,
  if(is_job, 'normal', '') AS qos,
  'acct' || (u % 40) AS account,
  if(is_job, 'grp' || (u % 40), '') AS grp,
  if(is_job, (5000 + u % 40)::VARCHAR, '') AS gid,
  if(is_job, 'user' || u, '') AS usr,
  if(is_job, (1000 + u)::VARCHAR, '') AS uid,
  strftime(make_timestamp(if(is_job, submit, start) * 1000000), '%Y-%m-%dT%H:%M:%S') AS submit,
  strftime(make_timestamp(if(is_job, submit, start) * 1000000), '%Y-%m-%dT%H:%M:%S') AS eligible,
  strftime(make_timestamp(start * 1000000), '%Y-%m-%dT%H:%M:%S') AS start,
  strftime(make_timestamp((start + run) * 1000000), '%Y-%m-%dT%H:%M:%S') AS fin,
  if(run >= 86400, (run // 86400) || '-', '')
    || strftime(make_timestamp(run % 86400 * 1000000), '%H:%M:%S') AS elapsed,
  if(state = 'FAILED', '1:0', '0:0') AS exitcode,
  if(not is_job and state = 'TIMEOUT', 'CANCELLED', split_part(state, ' ', 1)
    || if(is_job and state LIKE 'CANC%', ' by ' || (1000 + u), '')) AS state,
  n, n * 16 AS ncpus, if(is_job, (n * 16)::VARCHAR, '') AS reqcpus,
  if(is_job, (n * 32) || 'G', '') AS reqmem,
  if(is_job, 'billing=' || n * 16 || ',cpu=' || n * 16 || ',mem=' || n * 32 || 'G,node=' || n, '')
    AS reqtres,
  'billing=' || n * 16 || ',cpu=' || n * 16
    || if(p = 2, ',gres/gpu=' || n * 4 || ',gres/gpu:a100=' || n * 4, '')
    || ',mem=' || n * 32 || 'G,node=' || n AS alloctres,
  if(not is_job, '', if(lim >= 86400, (lim // 86400) || '-', '')
    || strftime(make_timestamp(lim % 86400 * 1000000), '%H:%M:%S')) AS timelimit,
  if(n = 1, 'cn' || (100 + h % 400),
    'cn[' || (100 + h % 400) || '-' || (100 + h % 400 + n - 1) || ']') AS nodelist,
  if(is_job, '/scratch/projects/grp' || (u % 40) || '/user' || u || '/run' || (h % 50), '') AS wd,
  if(is_job, 'SchedBackfill,StartReceived', '') AS flags,
  '' AS reservation,
  CASE k WHEN 1 THEN 'batch' WHEN 2 THEN 'extern'
    WHEN 3 THEN ['python', 'gmx_mpi', 'lmp', 'pw.x'][1 + u % 4]
    ELSE 'job_' || (u % 7) || '_run' || (h % 5) END AS jobname
FROM rows ORDER BY id, k
"""

HEADER = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|GID|User|UID|Submit|Eligible|Start|End|"
    "Elapsed|ExitCode|State|NNodes|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|"
    "WorkDir|Flags|Reservation|JobName"
)


def write(path: Path, jobs: int) -> None:
    """Write `jobs` jobs (4 rows each) to `path`; the same `jobs` gives the same bytes."""
    connection = duckdb.connect(config={"memory_limit": "1GB"})
    connection.execute(DRAW)
    connection.execute("SET preserve_insertion_order = true")
    body = path.with_suffix(".body")
    connection.execute(
        f"COPY ({ROWS.format(jobs=jobs)}) TO '{body}' "
        "(DELIM '|', HEADER false, QUOTE '', ESCAPE '')"
    )
    with path.open("wb") as out, body.open("rb") as rows:
        out.write(HEADER.encode() + b"\n")
        while chunk := rows.read(1 << 24):
            out.write(chunk)
    body.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=500_000)
    arguments = parser.parse_args()
    write(arguments.out, arguments.jobs)
