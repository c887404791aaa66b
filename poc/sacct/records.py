"""The tables a file is read into, and the making of runs from records, in SQL.

A record is one allocation row: (cluster, JobIDRaw, Submit, Start). A run is one record, or a chain
of RESIZING records of one job whose End is the next Start, or all components of one het job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import duckdb

from cedana_poc.sacct.typed import MACROS, state_table

_TABLES = """
CREATE TABLE records (
  file INTEGER, job VARCHAR, id VARCHAR, leader VARCHAR, "offset" INTEGER, array_id VARCHAR,
  array_task BIGINT, truncated BOOLEAN, cluster VARCHAR, "user" VARCHAR, account VARCHAR,
  partition VARCHAR, qos VARCHAR, reservation VARCHAR, state_text VARCHAR, state VARCHAR,
  exit_code VARCHAR, submit BIGINT, eligible BIGINT, start BIGINT, "end" BIGINT,
  elapsed_text VARCHAR, elapsed BIGINT, wall BIGINT, no_wall BOOLEAN, nodes BIGINT, cpus BIGINT,
  memory_text VARCHAR, alloc_tres VARCHAR, gres VARCHAR, node_list VARCHAR, restarts INTEGER,
  name VARCHAR, work_dir VARCHAR, submit_line VARCHAR, reason VARCHAR
);
CREATE TABLE step_names (job VARCHAR, suffix VARCHAR, name VARCHAR);
CREATE TABLE states (word VARCHAR, word_state VARCHAR, word_reason VARCHAR);
CREATE TABLE copies (r BIGINT, reason VARCHAR);
CREATE TABLE node_sets (node_list VARCHAR, set_cpus BIGINT, set_memory BIGINT, set_gpus BIGINT);
"""

_COMPARED = (
    'cluster, id, submit, start, "end", state_text, elapsed, wall, nodes, cpus, alloc_tres, gres, '
    'memory_text, partition, "user", account, exit_code, name'
)

_COPIES = f"""
INSERT INTO copies
WITH candidates AS (
  SELECT rowid AS r, *, hash({{key}}) AS h FROM records
  WHERE reason IS NULL AND id IS NOT NULL AND NOT truncated
), ranked AS (
  SELECT r, hash({_COMPARED}) AS content,
    first_value(hash({_COMPARED})) OVER same AS kept, row_number() OVER same AS place
  FROM candidates
  WHERE h IN (SELECT h FROM candidates GROUP BY h HAVING count(*) > 1)
  WINDOW same AS (PARTITION BY {{key}}
    ORDER BY "end" DESC NULLS LAST, elapsed DESC, file DESC, hash({_COMPARED}))
)
SELECT r, if(content = kept, 'identical copies', 'older copies') FROM ranked WHERE place > 1
"""

_TRES = """
CREATE TABLE tres AS
SELECT alloc_tres, gres,
  tres_gpus(alloc_tres) AS gpus,
  gres_gpus(gres) AS gpus_per_node,
  gpu_models(alloc_tres, gres) AS gpu_model,
  try_cast(tres(alloc_tres, 'node') AS BIGINT) AS nodes,
  try_cast(tres(alloc_tres, 'cpu') AS BIGINT) AS cpus,
  round(try_cast(tres(alloc_tres, 'billing') AS DOUBLE))::BIGINT AS billing,
  mebibytes(tres(alloc_tres, 'mem')) AS memory
FROM (SELECT DISTINCT alloc_tres, gres FROM records WHERE reason IS NULL)
"""

_GROUPS = """
CREATE TABLE run_groups AS
WITH candidates AS (
  SELECT rowid AS r, * FROM records
  WHERE reason IS NULL AND rowid NOT IN (SELECT r FROM copies)
    AND (leader IS NOT NULL OR id IN (SELECT id FROM records WHERE state = 'RESIZING'))
), het AS (
  SELECT r, 'het' AS kind, "offset" AS place,
    first_value(r) OVER (PARTITION BY cluster, leader, submit ORDER BY "offset", r) AS run
  FROM candidates WHERE leader IS NOT NULL
), resized AS (
  SELECT r, cluster, id, start,
    coalesce(lag(state) OVER job = 'RESIZING' AND lag("end") OVER job = start, false) AS goes_on
  FROM candidates WHERE leader IS NULL
  WINDOW job AS (PARTITION BY cluster, id ORDER BY start, "end")
), chains AS (
  SELECT r, cluster, id, start,
    sum((NOT goes_on)::INTEGER) OVER (PARTITION BY cluster, id ORDER BY start, r) AS chain
  FROM resized
)
SELECT r, kind, place, run FROM het
UNION ALL
SELECT r, 'resized', start,
  last_value(r) OVER (PARTITION BY cluster, id, chain ORDER BY start, r
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
FROM chains
"""

_PARTS = """
CREATE VIEW parts AS
SELECT records.rowid AS r, job, id, array_id, array_task, cluster, "user", account, partition, qos,
  reservation, state, exit_code, submit, eligible, start, "end", elapsed, wall, no_wall, restarts,
  truncated,
  coalesce(records.nodes, tres.nodes) AS nodes,
  coalesce(records.cpus, tres.cpus) AS cpus,
  coalesce(tres.gpus, gpus_per_node * coalesce(records.nodes, tres.nodes),
    if(records.alloc_tres <> '' OR records.gres IS NOT NULL, 0, NULL)) AS gpus,
  gpu_model, billing,
  coalesce(memory, req_mebibytes(memory_text, coalesce(records.nodes, tres.nodes),
    coalesce(records.cpus, tres.cpus))) AS memory,
  set_cpus, set_memory, set_gpus
FROM records
JOIN tres ON records.alloc_tres = tres.alloc_tres AND records.gres IS NOT DISTINCT FROM tres.gres
LEFT JOIN node_sets ON records.node_list = node_sets.node_list
WHERE reason IS NULL AND records.rowid NOT IN (SELECT r FROM copies)
"""

_EQUIVALENT = """round(elapsed * nodes * least(1, greatest(
  cpus / set_cpus, if(set_memory > nodes, memory / set_memory, 0),
  if(set_gpus > 0, gpus / set_gpus, 0))))::BIGINT"""
"""The largest share of CPU, memory and GPU of the nodes a run was on, as so many whole nodes; a
node of 1 MB is one whose memory is not configured."""

_SECONDS = ", ".join(
    f"{{sum}}({product}) AS {name}_seconds"
    for name, product in (
        ("node", "nodes * elapsed"),
        ("node_equivalent", _EQUIVALENT),
        ("cpu", "cpus * elapsed"),
        ("gpu", "gpus * elapsed"),
        ("billing", "billing * elapsed"),
    )
)

_RUNS = f"""
CREATE TABLE runs AS
SELECT r AS run, 1 AS records, parts.* EXCLUDE (r, billing, set_cpus, set_memory, set_gpus), {_SECONDS.format(sum="")}
FROM parts WHERE r NOT IN (SELECT r FROM run_groups)
UNION ALL BY NAME
SELECT run, count(*)::INTEGER AS records, {{of_representative}},
  min(submit) AS submit, min(eligible) AS eligible, min(start) AS start, max("end") AS "end",
  if(any_value(kind) = 'het', any_value(elapsed) FILTER (r = run), every_sum(elapsed)::BIGINT)
    AS elapsed,
  if(any_value(kind) = 'het', every_sum(nodes)::BIGINT, any_value(nodes) FILTER (r = run)) AS nodes,
  if(any_value(kind) = 'het', every_sum(cpus)::BIGINT, any_value(cpus) FILTER (r = run)) AS cpus,
  if(any_value(kind) = 'het', every_sum(gpus)::BIGINT, any_value(gpus) FILTER (r = run)) AS gpus,
  string_agg(DISTINCT gpu_model, '+' ORDER BY gpu_model) AS gpu_model,
  if(any_value(kind) = 'het', every_sum(memory), any_value(memory) FILTER (r = run)) AS memory,
  {_SECONDS.format(sum="every_sum")}
FROM parts JOIN run_groups USING (r) GROUP BY run
"""

NodeSetSize = Callable[[str], tuple[int, int, int] | None]
"""Node list as printed -> (CPUs, memory in MiB, GPUs) of its nodes together; None if unknown."""

_OF_REPRESENTATIVE = (
    "job id array_id array_task cluster user account partition qos reservation state exit_code "
    "wall no_wall restarts truncated"
).split()


def connect(scratch: str, memory_limit: str, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A private in-memory database that spills to `scratch`, with the empty tables in it."""
    config = {"memory_limit": memory_limit, "temp_directory": scratch}
    if threads:
        config["threads"] = str(threads)
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
    connection.execute(MACROS)
    connection.execute(
        "CREATE MACRO every_sum(x) AS if(count(x) = count(*), sum(x)::BIGINT, NULL)"
    )
    connection.execute(_TABLES)
    words = list(zip(*state_table(), strict=True))
    connection.execute(
        "INSERT INTO states SELECT unnest(?), unnest(?), unnest(?)", [list(w) for w in words]
    )
    return connection


def make_runs(
    connection: duckdb.DuckDBPyConnection, columns: Iterable[str], size: NodeSetSize | None
) -> None:
    """Fill `copies` and `runs` from `records`.

    Args:
        columns: canonical names that at least one file has.
        size: tells the size of the nodes in a node list.
    """
    if size:
        _fill_node_sets(connection, size)
    has = set(columns)
    key = 'cluster, id, submit, start' if has & {"submit", "start"} else _COMPARED
    connection.execute(_COPIES.format(key=key))
    connection.execute(_TRES)
    connection.execute(_GROUPS)
    connection.execute(_PARTS)
    representative = ", ".join(
        f'any_value("{name}") FILTER (r = run) AS "{name}"' for name in _OF_REPRESENTATIVE
    )
    connection.execute(_RUNS.format(of_representative=representative))


def _fill_node_sets(connection: duckdb.DuckDBPyConnection, size: NodeSetSize) -> None:
    lists = connection.cursor().execute(
        "SELECT DISTINCT node_list FROM records WHERE reason IS NULL AND node_list IS NOT NULL"
    )
    while batch := lists.fetchmany(10_000):
        known = [(text, *found) for (text,) in batch if (found := size(text))]
        columns = list(zip(*known, strict=True))
        if known:
            connection.execute(
                "INSERT INTO node_sets SELECT unnest(?), unnest(?), unnest(?), unnest(?)",
                [list(column) for column in columns],
            )


def left_out(connection: duckdb.DuckDBPyConnection) -> Counter[str]:
    """How many records were left out, by reason."""
    counts = connection.execute(
        "SELECT reason, count(*) FROM "
        "(SELECT reason FROM records WHERE reason IS NOT NULL UNION ALL SELECT reason FROM copies) "
        "GROUP BY reason"
    ).fetchall()
    return Counter(dict(counts))


def record_count(connection: duckdb.DuckDBPyConnection) -> int:
    """How many records became part of runs."""
    row = connection.execute("SELECT coalesce(sum(records), 0)::BIGINT FROM runs").fetchone()
    return int(row[0]) if row else 0


def unreadable(connection: duckdb.DuckDBPyConnection, most: int) -> list[tuple[int, str, str]]:
    """(file, job id, what is wrong) of the first few records with a value nobody can read."""
    return connection.execute(
        """
        SELECT file, coalesce(job, 'without id'),
          if(state IS NULL, 'State ' || coalesce(state_text, 'empty') || ' is none of Slurm''s',
            'Elapsed ' || coalesce(elapsed_text, '') || ' is no duration')
        FROM records WHERE reason = 'unreadable' ORDER BY ALL LIMIT ?
        """,
        [most],
    ).fetchall()
