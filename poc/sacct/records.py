"""The tables a file is read into, and the making of runs from records, in SQL.

A record is one allocation row: (cluster, JobIDRaw, Submit, Start). A run is one record, or a chain
of RESIZING records of one job whose End is the next Start, or all components of one het job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import duckdb

from cedana_poc.sacct.typed import MACROS, types
from cedana_poc.sacct.wanted import Filter, why_not_wanted

_TABLES = """
CREATE TABLE records (
  file INTEGER, job VARCHAR, id VARCHAR, truncated BOOLEAN, cluster VARCHAR, "user" VARCHAR,
  account VARCHAR, partition VARCHAR, qos VARCHAR, reservation VARCHAR,
  state VARCHAR, exit_code VARCHAR, submit BIGINT, eligible BIGINT, start BIGINT, "end" BIGINT,
  elapsed BIGINT, wall BIGINT, no_wall BOOLEAN, nodes BIGINT, cpus BIGINT,
  gpus BIGINT, gpu_model VARCHAR, billing BIGINT, memory DOUBLE, node_list VARCHAR,
  restarts INTEGER, name VARCHAR, work_dir VARCHAR, submit_line VARCHAR, reason VARCHAR,
  problem VARCHAR
);
CREATE TABLE step_names (job VARCHAR, suffix VARCHAR, name VARCHAR);
CREATE TABLE copies (r BIGINT, reason VARCHAR);
CREATE TABLE node_sets (node_list VARCHAR, set_cpus BIGINT, set_memory BIGINT, set_gpus BIGINT);
CREATE VIEW kept AS
SELECT rowid AS r, * EXCLUDE (reason, problem) FROM records WHERE reason IS NULL;
"""

_FROM: Mapping[str, str] = {
    "cluster": "cluster",
    "submit": "submit",
    "start": "start",
    '"end"': "end",
    "state": "state",
    "elapsed": "elapsed elapsedraw end",
    "wall": "timelimit timelimitraw",
    "nodes": "nnodes allocnodes alloctres",
    "cpus": "ncpus alloccpus alloctres",
    "gpus": "alloctres allocgres reqgres",
    "billing": "alloctres",
    "partition": "partition",
    '"user"': "user",
    "account": "account",
    "exit_code": "exitcode",
    "name": "jobname",
}
"""What two copies of a record have in common, and the fields of which a file needs one for it."""

_RICHNESS = " + ".join(
    f"({name} IS NOT NULL)::INTEGER" for name in (*_FROM, "id", "submit_line", "work_dir")
)

_REPEATED_KEYS = """
CREATE TABLE repeated_keys AS
SELECT h FROM (SELECT hash({key}) AS h FROM kept WHERE id IS NOT NULL AND NOT truncated)
GROUP BY h HAVING count(*) > 1
"""

_COPIES = """
INSERT INTO copies
WITH candidates AS (
  SELECT * FROM kept
  WHERE id IS NOT NULL AND NOT truncated AND hash({key}) IN (FROM repeated_keys)
), ranked AS (
  SELECT r, hash({compared}) AS content,
    first_value(hash({compared})) OVER same AS newest, row_number() OVER same AS place
  FROM candidates
  WINDOW same AS (PARTITION BY {key}
    ORDER BY "end" DESC NULLS LAST, elapsed DESC, {richness} DESC, hash({compared}),
    submit_line NULLS LAST, work_dir NULLS LAST)
)
SELECT r, if(content = newest, 'identical copies', 'older copies') FROM ranked WHERE place > 1
"""

_GROUPS = """
CREATE TABLE run_groups AS
WITH candidates AS (
  SELECT *, split_part(job, '+', 1) AS leader, try_cast(split_part(job, '+', 2) AS INTEGER) AS nth
  FROM kept
  WHERE r NOT IN (SELECT r FROM copies)
    AND (contains(job, '+') OR id IN (SELECT id FROM kept WHERE state = 'RESIZING'))
), het AS (
  SELECT r, 'het' AS kind, nth AS place,
    first_value(r) OVER (PARTITION BY {owner} leader, submit ORDER BY nth, r) AS run
  FROM candidates WHERE nth IS NOT NULL
), resized AS (
  SELECT r, cluster, id, start,
    coalesce(lag(state) OVER job = 'RESIZING' AND lag("end") OVER job = start, false) AS goes_on
  FROM candidates WHERE nth IS NULL
  WINDOW job AS (PARTITION BY {owner} id ORDER BY start, "end")
), chains AS (
  SELECT r, cluster, id, start,
    sum((NOT goes_on)::INTEGER) OVER (PARTITION BY {owner} id ORDER BY start, r) AS chain
  FROM resized
)
SELECT r, kind, place, run FROM het
UNION ALL
SELECT r, 'resized', start,
  last_value(r) OVER (PARTITION BY {owner} id, chain ORDER BY start, r
    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
FROM chains
"""

_EQUIVALENT = """
CREATE TABLE equivalents AS
SELECT r, round(elapsed * nodes * least(1, greatest(of_cpus, of_memory, of_gpus)))::BIGINT
  AS node_equivalent_seconds
FROM (
  SELECT r, elapsed, nodes, cpus / set_cpus AS of_cpus,
    if(set_memory > nodes, memory / set_memory, 0) AS of_memory,
    if(set_gpus > 0, gpus / set_gpus, 0) AS of_gpus
  FROM kept JOIN node_sets USING (node_list)
) WHERE of_cpus + of_memory + of_gpus IS NOT NULL
"""
"""The largest share of CPU, memory and GPU of the nodes a run was on, as so many whole nodes; a
node of 1 MB is one whose memory is not configured."""

_PARTS = """
CREATE VIEW parts AS
SELECT r, job, id, truncated, cluster, "user", account, partition, qos, reservation, state,
  exit_code, submit, eligible, start, "end", elapsed, wall, no_wall, restarts, nodes, cpus, gpus,
  gpu_model, memory, nodes * elapsed AS node_seconds, {equivalent} AS node_equivalent_seconds,
  cpus * elapsed AS cpu_seconds, gpus * elapsed AS gpu_seconds, billing * elapsed AS billing_seconds
FROM kept {joined}
"""

_MERGED = """
CREATE TABLE merged AS
SELECT run, count(*)::INTEGER AS records, {of_representative},
  min(submit) AS submit, min(eligible) AS eligible, min(start) AS start, max("end") AS "end",
  if(any_value(kind) = 'het', any_value(elapsed) FILTER (r = run), every_sum(elapsed)) AS elapsed,
  {counts},
  string_agg(DISTINCT gpu_model, '+' ORDER BY gpu_model) AS gpu_model,
  {seconds}
FROM parts JOIN run_groups USING (r) GROUP BY run
"""

_RUNS = """
CREATE VIEW every_run AS
SELECT r AS run, 1 AS records, parts.* EXCLUDE (r) FROM parts {without}
"""

_SHIFTED = """
SELECT a.file, b.file, a.start - b.start AS shift, count(*) AS jobs
FROM kept AS a JOIN kept AS b ON a.{id} = b.{id} AND a.elapsed = b.elapsed AND a.state = b.state
WHERE a.file IN ({ours}) AND b.file NOT IN ({ours}) AND a.submit - b.submit = a.start - b.start
  AND shift <> 0 AND shift % 900 = 0 AND abs(shift) <= 54000
GROUP BY ALL ORDER BY jobs DESC, a.file, b.file, shift LIMIT 1
"""
"""Time zones differ by quarters of an hour, and by 15 hours at the most with a summer time."""

_OF_REPRESENTATIVE = (
    "job id truncated cluster user account partition qos reservation state exit_code wall no_wall "
    "restarts"
).split()
_COUNTS = ("nodes", "cpus", "gpus", "memory")
_SECONDS = ("node", "node_equivalent", "cpu", "gpu", "billing")

NodeSetSize = Callable[[str], tuple[int, int, int] | None]
"""Node list as printed -> (CPUs, memory in MiB, GPUs) of its nodes together; None if unknown."""


def connect(scratch: str, memory_limit: str) -> duckdb.DuckDBPyConnection:
    """A private in-memory database that spills to `scratch`, with the empty tables in it."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "temp_directory": scratch,
    }
    connection = duckdb.connect(":memory:", config=config)
    connection.execute(
        "SET preserve_insertion_order = false; SET force_compression = 'uncompressed'; "
        "SET TimeZone = 'UTC'; SET disabled_optimizers = 'in_clause'; "
        "SET enable_progress_bar = false"
    )
    connection.execute(types())
    connection.execute(MACROS)
    connection.execute("CREATE MACRO every_sum(x) AS if(count(x) = count(*), sum(x)::BIGINT, NULL)")
    connection.execute(_TABLES)
    return connection


def make_runs(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[AbstractSet[str]],
    wanted: Filter,
    size: NodeSetSize | None,
) -> None:
    """Fill `copies` from `records` and make the views `every_run` and `runs`, those wanted.

    A run is known by the number of its representative record: the only one, the last of a chain,
    or the leader of a het job.

    Args:
        files: the canonical names of the fields of each file.
        size: tells the size of the nodes in a node list.
    """
    key, compared = _key(files), ", ".join(_common(files))
    connection.execute(_REPEATED_KEYS.format(key=key))
    if _count(connection, "repeated_keys"):
        connection.execute(_COPIES.format(key=key, compared=compared, richness=_RICHNESS))
    _make_parts(connection, size)
    connection.execute(_GROUPS.format(owner="cluster, " if "cluster" in _common(files) else ""))
    without = []
    if _count(connection, "copies"):
        without.append("r NOT IN (SELECT r FROM copies)")
    if _count(connection, "run_groups"):
        _merge(connection)
        without.append("r NOT IN (SELECT r FROM run_groups)")
    runs = _RUNS.format(without=f"WHERE {' AND '.join(without)}" if without else "")
    if _count(connection, "run_groups"):
        runs += "UNION ALL BY NAME SELECT * FROM merged"
    connection.execute(runs)
    connection.execute(
        f"CREATE VIEW asked AS SELECT *, {why_not_wanted(wanted)} AS not_wanted FROM every_run"
    )
    connection.execute(
        "CREATE VIEW runs AS SELECT * EXCLUDE (not_wanted) FROM asked WHERE not_wanted IS NULL"
    )


def _common(files: Sequence[AbstractSet[str]]) -> list[str]:
    """The compared columns that every file has something for."""
    return [
        column
        for column, fields in _FROM.items()
        if all(not file.isdisjoint(fields.split()) for file in files)
    ]


def _id(files: Sequence[AbstractSet[str]]) -> str:
    """The job id that all files print in the same form: of `7_1`, JobID is that, JobIDRaw 8."""
    raw = ["jobidraw" in file for file in files]
    return "id" if all(raw) or not any(raw) else "job"


def _key(files: Sequence[AbstractSet[str]]) -> str:
    """What tells records apart, of what every file says: a copy may come from another export."""
    common = _common(files)
    names = ("cluster", "submit", "start") if {"submit", "start"} & set(common) else common
    return ", ".join([_id(files), *(name for name in names if name in common)])


def shifted(
    connection: duckdb.DuckDBPyConnection, files: Sequence[AbstractSet[str]], ours: Sequence[int]
) -> tuple[int, int, int, int] | None:
    """Whether the clock of some files is off: the same jobs, at times shifted by whole quarters.

    Args:
        ours: places of the files whose clock is in doubt.

    Returns:
        (file of ours, other file, seconds ours is ahead, jobs); None if no job is in both so.
    """
    sql = _SHIFTED.format(id=_id(files), ours=", ".join(map(str, ours)))
    return connection.execute(sql).fetchone()


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def _make_parts(connection: duckdb.DuckDBPyConnection, size: NodeSetSize | None) -> None:
    if size:
        _fill_node_sets(connection, size)
        connection.execute(_EQUIVALENT)
        joined, equivalent = "LEFT JOIN equivalents USING (r)", "node_equivalent_seconds"
    else:
        joined, equivalent = "", "NULL::BIGINT"
    connection.execute(_PARTS.format(joined=joined, equivalent=equivalent))


def _merge(connection: duckdb.DuckDBPyConnection) -> None:
    """Make table `merged`: the runs that several records make up."""
    representative = (
        f'any_value("{name}") FILTER (r = run) AS "{name}"' for name in _OF_REPRESENTATIVE
    )
    counts = (
        f"if(any_value(kind) = 'het', every_sum({name}), any_value({name}) FILTER (r = run)) "
        f"AS {name}"
        for name in _COUNTS
    )
    seconds = (f"every_sum({name}_seconds) AS {name}_seconds" for name in _SECONDS)
    connection.execute(
        _MERGED.format(
            of_representative=", ".join(representative),
            counts=", ".join(counts),
            seconds=", ".join(seconds),
        )
    )


def _fill_node_sets(connection: duckdb.DuckDBPyConnection, size: NodeSetSize) -> None:
    lists = connection.cursor().execute(
        "SELECT DISTINCT node_list FROM kept WHERE node_list IS NOT NULL"
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
        "GROUP BY reason UNION ALL SELECT not_wanted, sum(records)::BIGINT FROM asked "
        "WHERE not_wanted IS NOT NULL GROUP BY not_wanted"
    ).fetchall()
    return Counter(dict(counts))


def partitions(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int]]:
    """The partitions of all runs, also of those not asked for, by number of runs."""
    return connection.execute(
        "SELECT partition, count(*) FROM every_run WHERE partition IS NOT NULL "
        "GROUP BY partition ORDER BY count(*) DESC, partition"
    ).fetchall()


def record_count(connection: duckdb.DuckDBPyConnection) -> int:
    """How many records became part of runs."""
    row = connection.execute("SELECT coalesce(sum(records), 0)::BIGINT FROM runs").fetchone()
    return int(row[0]) if row else 0


def unreadable(connection: duckdb.DuckDBPyConnection, most: int) -> list[tuple[int, str, str]]:
    """(file, job id, what is wrong) of the first few records with a value nobody can read."""
    return connection.execute(
        "SELECT file, coalesce(job, 'without id'), problem FROM records "
        "WHERE reason = 'unreadable' ORDER BY ALL LIMIT ?",
        [most],
    ).fetchall()
