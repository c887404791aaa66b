"""From the text sacct prints to typed columns, as SQL over a table of text columns.

Units: seconds, counts, mebibytes. A value that is not there, or that Slurm calls Unknown, None or
INVALID, is NULL. Times are seconds since 1970 UTC; without a known time zone they are the wall
clock's reading taken as UTC, good for order and length but not for comparison with other clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cedana_poc.sacct.grammar import CODES, NOT_ENDED, STATES, base_state

MACROS = r"""
CREATE MACRO given(x) AS
  CASE WHEN x IN ('', 'Unknown', 'None', 'N/A', 'INVALID', '(null)') THEN NULL ELSE x END;
CREATE MACRO duration(x) AS
  CASE
    WHEN x LIKE '%_:__:__%'
      THEN floor(epoch(try_cast(replace(x, '-', ' days ') AS INTERVAL)))::BIGINT
    WHEN contains(x, ':')
      THEN floor(epoch(try_cast('00:' || x AS INTERVAL)))::BIGINT
    ELSE try_cast(x AS BIGINT)
  END;
CREATE MACRO scaled(x, base) AS
  CASE
    WHEN given(x) IS NULL THEN NULL
    WHEN regexp_full_match(x, '[\d.]+[KMGTP]') THEN
      try_cast(x[:-2] AS DOUBLE) * pow(base, strpos('KMGTP', x[-1:]))
    ELSE try_cast(x AS DOUBLE)
  END;
CREATE MACRO whole(x) AS coalesce(try_cast(x AS BIGINT), round(scaled(x, 1024))::BIGINT);
CREATE MACRO mebibytes(x) AS
  CASE WHEN regexp_full_match(x, '[\d.]+') THEN try_cast(x AS DOUBLE)
       ELSE scaled(x, 1024) / 1048576 END;
CREATE MACRO tres(x, item) AS
  nullif(regexp_extract(x, '(?:^|,)' || item || '=([^,]*)', 1), '');
CREATE MACRO tres_gpus(x) AS
  coalesce(
    try_cast(tres(x, 'gres/gpu') AS BIGINT),
    list_sum([try_cast(n AS BIGINT)
      FOR n IN regexp_extract_all(x, '(?:^|,)gres/gpu:[^=,]+=(\d+)', 1)])::BIGINT);
CREATE MACRO gres_gpus(x) AS
  list_sum([coalesce(try_cast(nullif(n, '') AS BIGINT), 1)
    FOR n IN regexp_extract_all(x, '(?:^|,)gpu(?::[A-Za-z][^:,(]*)?(?::(\d+))?', 1)])::BIGINT;
CREATE MACRO req_mebibytes(x, nodes, cpus) AS
  CASE
    WHEN given(x) IS NULL THEN NULL
    WHEN ends_with(x, 'c') THEN mebibytes(x[:-2]) * cpus
    WHEN ends_with(x, 'n') AND mebibytes(x[:-2]) >= 2147483648
      THEN (mebibytes(x[:-2]) - 2147483648) * cpus
    WHEN ends_with(x, 'n') THEN mebibytes(x[:-2]) * nodes
    ELSE mebibytes(x)
  END;
CREATE MACRO gpu_models(x, gres) AS
  nullif(list_aggregate(list_sort(list_distinct(list_concat(
    regexp_extract_all(x, '(?:^|,)gres/gpu:([^=,]+)=[1-9]', 1),
    regexp_extract_all(gres, '(?:^|,)gpu:([A-Za-z][^:,(]*)', 1)))), 'string_agg', '+'), '');
"""
"""Grammars: print_fields.c and parse_time.c of Slurm. `gres/gpu=4,gres/gpu:a100=4` is four GPUs;
ReqMem of `…n` is per node, of `…c` per CPU, and 2147483648 in it is the per-CPU flag bit."""

TEXT = tuple(
    "jobid jobidraw cluster user account partition qos state exitcode submit eligible start end "
    "elapsed elapsedraw suspended timelimit timelimitraw nnodes allocnodes ncpus alloccpus reqmem "
    "alloctres allocgres reqgres nodelist reservation restarts jobname workdir submitline".split()
)
"""The fields that are read; others in a file are passed over."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to keep, by End (seconds since 1970) and partition.

    Attributes:
        since, until: End in [since, until).
        partitions: any of them; empty for all.
    """

    since: int | None = None
    until: int | None = None
    partitions: tuple[str, ...] = ()


def state_table() -> list[tuple[str, str, str | None]]:
    """(word as printed, state, reason why a record in this state is no ended run)."""
    words = {*STATES, *CODES}
    words |= {f"{state[:n]}+" for state in STATES for n in range(2, len(state))}
    known = ((word, base_state(word)) for word in sorted(words))
    return [(word, state, NOT_ENDED.get(state)) for word, state in known if state]


def text_columns(columns: Sequence[str]) -> str:
    """SELECT list that gives every field of `TEXT`, NULL where the file lacks it.

    Args:
        columns: canonical names in file order; the source's columns are called c0, c1, …
    """
    where = {name: f"c{index}" for index, name in enumerate(columns)}
    where["ncpus"] = where.get("ncpus", where.get("alloccpus", "NULL"))
    return ", ".join(f"{where.get(name, 'NULL')}::VARCHAR AS {_quoted(name)}" for name in TEXT)


def typed_columns(columns: Sequence[str], zone: str | None) -> str:
    """SELECT list of the typed columns of a record, over the text columns."""
    typed = {
        **_typed(zone),
        "is_step": f"coalesce({_is_step(columns)}, false)",
        "is_block": "contains(coalesce(jobid, jobidraw, ''), '_[')",
    }
    return ", ".join(f"{sql} AS {_quoted(name)}" for name, sql in typed.items())


def reason(columns: Sequence[str], wanted: Filter) -> str:
    """SQL: why a row is no ended run that was asked for; NULL for one that is."""
    cases = [
        ("is_step", "steps"),
        ("is_block", "array blocks"),
        ("word_state IS NULL", "unreadable"),
        ("word_reason IS NOT NULL", None),
        ("elapsed IS NULL AND elapsed_text IS NOT NULL", "unreadable"),
        (_never_started(columns), "never started"),
        ("elapsed IS NULL", "no elapsed time"),
        ('truncated AND "user" IS NULL AND partition IS NULL', "truncated id"),
    ]
    if wanted.partitions:
        names = ", ".join(literal(name) for name in wanted.partitions)
        cases.append((f"partition IS NULL OR partition NOT IN ({names})", "other partition"))
    if wanted.since is not None or wanted.until is not None:
        cases.append(('"end" IS NULL', "no end time"))
    if wanted.since is not None:
        cases.append((f'"end" < {wanted.since}', "before --since"))
    if wanted.until is not None:
        cases.append((f'"end" >= {wanted.until}', "after --until"))
    branches = " ".join(
        f"WHEN {condition} THEN {literal(name) if name else 'word_reason'}"
        for condition, name in cases
    )
    return f"CASE {branches} END"


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _typed(zone: str | None) -> Mapping[str, str]:
    seconds = "coalesce(try_cast(given(elapsedraw) AS BIGINT), duration(elapsed))"
    start, end = _time("start", zone), _time('"end"', zone)
    job = "coalesce(given(jobid), given(jobidraw))"
    return {
        "job": job,
        "id": "coalesce(given(jobidraw), given(jobid))",
        "leader": f"CASE WHEN contains({job}, '+') AND NOT ends_with({job}, '+') "
        f"THEN split_part({job}, '+', 1) END",
        "offset": f"CASE WHEN contains({job}, '+') "
        f"THEN try_cast(split_part({job}, '+', 2) AS INTEGER) END",
        "array_id": f"CASE WHEN contains({job}, '_') THEN split_part({job}, '_', 1) END",
        "array_task": f"CASE WHEN contains({job}, '_') "
        f"THEN try_cast(split_part({job}, '_', 2) AS BIGINT) END",
        "truncated": f"coalesce(ends_with({job}, '+'), false)",
        **{name: f"given({_quoted(name)})" for name in _WORDS},
        "state_text": "given(state)",
        "exit_code": "given(exitcode)",
        "submit": _time("submit", zone),
        "eligible": _time("eligible", zone),
        "start": start,
        "end": end,
        "elapsed_text": "coalesce(given(elapsedraw), given(elapsed))",
        "elapsed": f"coalesce({seconds}, {end} - {start} - coalesce(duration(suspended), 0))",
        "wall": "coalesce(try_cast(given(timelimitraw) AS BIGINT) * 60, duration(timelimit))",
        "no_wall": "coalesce(given(timelimitraw), given(timelimit)) "
        "IN ('UNLIMITED', 'Partition_Limit')",
        "nodes": "coalesce(whole(nnodes), whole(allocnodes))",
        "cpus": "whole(ncpus)",
        "memory_text": "given(reqmem)",
        "alloc_tres": "coalesce(alloctres, '')",
        "gres": "coalesce(given(allocgres), given(reqgres))",
        "node_list": "nullif(given(nodelist), 'None assigned')",
        "restarts": "try_cast(given(restarts) AS INTEGER)",
        "name": "jobname",
        "work_dir": "given(workdir)",
        "submit_line": "given(submitline)",
    }


_WORDS = ("cluster", "user", "account", "partition", "qos", "reservation")


def _time(column: str, zone: str | None) -> str:
    local = f"try_cast({column} AS TIMESTAMP)"
    aware = f"timezone({literal(zone)}, {local})" if zone else local
    return (
        f"CASE WHEN given({column}) IS NULL THEN NULL "
        f"WHEN length({column}) <= 11 AND regexp_full_match({column}, '\\d+') "
        f"THEN nullif({column}::BIGINT, 0) "
        f"WHEN length({column}) > 19 AND regexp_full_match({column}, '.*(Z|[+-]\\d\\d:?\\d\\d)') "
        f"THEN epoch(try_cast({column} AS TIMESTAMPTZ))::BIGINT "
        f"ELSE epoch({aware})::BIGINT END"
    )


def _is_step(columns: Sequence[str]) -> str:
    """With a job id: it has a suffix. Without one: what only allocations have is missing."""
    if {"jobid", "jobidraw"} & set(columns):
        return "contains(coalesce(jobid, jobidraw, ''), '.')"
    tests = ["jobname IN ('batch', 'extern', 'interactive')"] if "jobname" in columns else []
    for name in ("user", "partition", "timelimit", "timelimitraw"):
        if name in columns:
            tests.append(f"{_quoted(name)} IS NULL OR {_quoted(name)} = ''")
    return " OR ".join(f"({test})" for test in tests) or "false"


def _never_started(columns: Sequence[str]) -> str:
    """No start time; or no time used and no node given to it."""
    has = set(columns)
    tests = []
    if "start" in has:
        tests.append("start IS NULL AND coalesce(elapsed, 0) = 0")
    if "nodelist" in has:
        tests.append("elapsed = 0 AND node_list IS NULL")
    elif has & {"alloctres"}:
        tests.append("elapsed = 0 AND alloc_tres = '' AND word_state IN ('CANCELLED', 'DEADLINE')")
    else:
        tests.append("elapsed = 0 AND word_state IN ('CANCELLED', 'DEADLINE')")
    return " OR ".join(f"({test})" for test in tests)

