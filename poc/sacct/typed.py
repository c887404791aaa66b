"""From the text sacct prints to typed columns, as SQL over a table of text columns.

Units: seconds, counts, mebibytes. A value that is not there, or that Slurm calls Unknown, None or
INVALID, is NULL. Times are seconds since 1970 UTC; without a known time zone they are the wall
clock's reading taken as UTC, good for order and length but not for comparison with other clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cedana_poc.sacct.grammar import CODES, ENDED, NOT_ENDED, STATES, base_state

MACROS = r"""
CREATE MACRO given(x) AS
  CASE WHEN x IN ('', 'Unknown', 'None', 'N/A', 'INVALID', '(null)') THEN NULL ELSE x END;
CREATE MACRO starts_with_digit(x) AS ascii(x) BETWEEN 48 AND 57;
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
CREATE MACRO either(x, y) AS CASE WHEN x IS NOT NULL THEN x ELSE y END;
CREATE MACRO whole(x) AS
  CASE
    WHEN NOT contains(x, '.') AND try_cast(x AS BIGINT) IS NOT NULL THEN try_cast(x AS BIGINT)
    WHEN regexp_full_match(x, '[\d.]+[KMGTP]') THEN round(scaled(x, 1024))::BIGINT
  END;
CREATE MACRO mebibytes(x) AS
  CASE
    WHEN ends_with(x, 'M') THEN try_cast(x[:-2] AS DOUBLE)
    WHEN try_cast(x AS DOUBLE) IS NOT NULL THEN try_cast(x AS DOUBLE)
    ELSE scaled(x, 1024) / 1048576
  END;
CREATE MACRO tres(x, item) AS
  nullif(CASE
    WHEN starts_with(x, item || '=') THEN regexp_extract(x, '^' || item || '=([^,]*)', 1)
    ELSE split_part(split_part(x, ',' || item || '=', 2), ',', 1)
  END, '');
CREATE MACRO tres_gpus(x) AS
  CASE
    WHEN contains(x, 'gres/gpu=') THEN try_cast(tres(x, 'gres/gpu') AS BIGINT)
    ELSE coalesce(list_sum([try_cast(n AS BIGINT)
      FOR n IN regexp_extract_all(x, '(?:^|,)gres/gpu:[^=,]+=(\d+)', 1)])::BIGINT, 0)
  END;
CREATE MACRO gres_part(x, part) AS
  [regexp_extract(item, '^(?:gres[:/])?gpu(?::([^:=(]+?))??(?:[:=](\d+))?(?:\(.*)?$', part)
    FOR item IN string_split(x, ',')
    IF regexp_matches(item, '^(?:gres[:/])?gpu(?:[:=(]|$)')];
CREATE MACRO gres_gpus(x, nodes) AS
  CASE
    WHEN regexp_matches(x, '(?:^|,)gres/gpu[^,]*=') THEN tres_gpus(x)
    ELSE nodes * coalesce(
      list_sum([coalesce(try_cast(n AS BIGINT), 1) FOR n IN gres_part(x, 2)])::BIGINT, 0)
  END;
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
    [model FOR model IN gres_part(gres, 1) IF model <> '']))), 'string_agg', '+'), '');
CREATE MACRO gpu_model_of(x, gres) AS
  CASE
    WHEN gres IS NOT NULL OR contains(x[strpos(x, 'gres/gpu:') + 9:], 'gres/gpu:')
      THEN gpu_models(x, gres)
    ELSE nullif(regexp_extract(x, 'gres/gpu:([^=,]+)=[1-9]', 1), '')
  END;
"""
"""Grammars: print_fields.c and parse_time.c of Slurm. `gres/gpu=4,gres/gpu:a100=4` is four GPUs;
GRES is `[gres:]gpu[:model][:count][(…)]` of each node, and a model may begin with a digit (MIG);
ReqMem of `…n` is per node, of `…c` per CPU, and 2147483648 in it is the per-CPU flag bit."""

TEXT = tuple(
    "jobid jobidraw cluster user account partition qos state exitcode submit eligible start end "
    "elapsed elapsedraw suspended timelimit timelimitraw nnodes allocnodes ncpus alloccpus reqmem "
    "alloctres allocgres reqgres nodelist reservation restarts jobname workdir submitline".split()
)
"""The fields that are read; others in a file are passed over."""


def types() -> str:
    """SQL: ENUM types of the states as sacct prints them; a cast to them is a quick look-up."""
    every, ended = (", ".join(map(literal, sorted(words))) for words in (STATES, ENDED))
    return f"CREATE TYPE known_state AS ENUM ({every}); CREATE TYPE ended_state AS ENUM ({ended})"


def text_columns(columns: Sequence[str]) -> str:
    """SELECT list that gives every field of `TEXT`, NULL where the file lacks it.

    Args:
        columns: canonical names in file order; the source's columns are called c0, c1, …
    """
    where = {name: f"c{index}" for index, name in enumerate(columns)}
    where["ncpus"] = where.get("ncpus", where.get("alloccpus", "NULL"))
    return ", ".join(f"{where.get(name, 'NULL')}::VARCHAR AS {_quoted(name)}" for name in TEXT)


SCAFFOLD = (
    "word",
    "is_step",
    "is_block",
    "start_text",
    "end_text",
    "submit_text",
    "elapsed_text",
    "wall_text",
    "nodes_text",
    "cpus_text",
    "tres_text",
    "nowhere",
)
"""Columns that only serve `reason` and `PROBLEM`, and are not kept."""

_NOT_READ = {
    "State": ("state IS NULL", "word", "is none of Slurm's"),
    "Start": ("start IS NULL AND start_text <> '0'", "start_text", "is no time"),
    "End": ("\"end\" IS NULL AND end_text <> '0'", "end_text", "is no time"),
    "Submit": ("submit IS NULL AND submit_text <> '0'", "submit_text", "is no time"),
    "Elapsed": (
        "elapsed IS NULL AND elapsed_text IS NOT NULL",
        "elapsed_text",
        "is no duration",
    ),
    "Timelimit": (
        "wall IS NULL AND wall_text IS NOT NULL AND NOT no_wall",
        "wall_text",
        "is no time limit",
    ),
    "NNodes": ("nodes IS NULL AND nodes_text IS NOT NULL", "nodes_text", "is no number"),
    "NCPUS": ("cpus IS NULL AND cpus_text IS NOT NULL", "cpus_text", "is no number"),
    "AllocTRES": ("tres_text <> '' AND NOT contains(tres_text, '=')", "tres_text", "is no list"),
    "JobID": ("job IS NOT NULL AND NOT starts_with_digit(job)", "job", "is no job id"),
}
"""Field -> what is true of a value that sacct cannot have printed, the value, and what to say."""

PROBLEM = "CASE WHEN reason <> 'unreadable' THEN NULL {} END".format(
    " ".join(
        f"WHEN {wrong} THEN concat('{field} ', {value}, ' {saying.replace(chr(39), chr(39) * 2)}')"
        for field, (wrong, value, saying) in _NOT_READ.items()
    )
)
"""SQL: what is wrong with a row that is unreadable."""


def typed_columns(
    columns: Sequence[str], zone: str | None, *, detail: bool, fixed_width: bool
) -> str:
    """SELECT list of the typed columns of a record, over the text columns.

    Args:
        zone: IANA name of the zone of local times; None if it is not known.
        detail: with account, QOS, eligible time, exit code, node list and memory, which few
            figures need.
        fixed_width: job ids may be cut off.
    """
    typed = {
        **_typed(zone),
        "truncated": f"coalesce(ends_with({_JOB}, '+'), false)" if fixed_width else "false",
        "is_step": f"coalesce({_is_step(columns)}, false)",
        "is_block": "contains(coalesce(jobid, jobidraw), '_[')",
        "nowhere": "nodelist IS NULL OR nodelist IN ('', 'None assigned')",
        **(_details(zone) if detail else {}),
    }
    return ", ".join(f"{sql} AS {_quoted(name)}" for name, sql in typed.items())


def reason(columns: Sequence[str]) -> str:
    """SQL: why a row is no ended record; NULL for one that is."""
    cases = [
        ("is_step", "steps"),
        ("is_block", "array blocks"),
        *((wrong, "unreadable") for wrong, _, _ in _NOT_READ.values()),
        (f"state NOT IN {_USUAL_STATES} AND try_cast(state AS ended_state) IS NULL", None),
        (_never_started(columns), "never started"),
        ("elapsed IS NULL", "no elapsed time"),
        ('truncated AND "user" IS NULL AND partition IS NULL', "truncated id"),
    ]
    branches = " ".join(
        f"WHEN {condition} THEN {literal(name) if name else _not_ended()}"
        for condition, name in cases
    )
    return f"CASE {branches} END"


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


_USUAL_STATES = "('COMPLETED', 'FAILED', 'TIMEOUT')"
"""Looked for before all the others."""

_JOB = "coalesce(given(jobid), given(jobidraw))"
_NODES_TEXT = "coalesce(given(nnodes), given(allocnodes))"
_NODES = (
    f"CASE WHEN {_NODES_TEXT} IS NOT NULL THEN whole({_NODES_TEXT}) "
    "ELSE try_cast(tres(alloctres, 'node') AS BIGINT) END"
)
_CPUS = (
    "CASE WHEN given(ncpus) IS NOT NULL THEN whole(given(ncpus)) "
    "ELSE try_cast(tres(alloctres, 'cpu') AS BIGINT) END"
)
_ELAPSED = "coalesce(given(elapsedraw), given(elapsed))"
_WALL = "coalesce(given(timelimitraw), given(timelimit))"
_GRES = "coalesce(given(allocgres), given(reqgres))"


def _typed(zone: str | None) -> Mapping[str, str]:
    start, end = _time("start", zone), _time('"end"', zone)
    given_seconds = "either(try_cast(elapsedraw AS BIGINT), duration(given(elapsed)))"
    return {
        "job": _JOB,
        "id": "coalesce(given(jobidraw), given(jobid))",
        **{
            name: f"nullif({_quoted(name)}, '')"
            for name in ("cluster", "user", "partition", "reservation")
        },
        "word": "state",
        "state": _state(),
        "submit": _time("submit", zone),
        "start": start,
        "end": end,
        "start_text": "given(start)",
        "end_text": 'given("end")',
        "submit_text": "given(submit)",
        "elapsed_text": _ELAPSED,
        "wall_text": _WALL,
        "nodes_text": _NODES_TEXT,
        "cpus_text": "given(ncpus)",
        "tres_text": "given(alloctres)",
        "elapsed": f"CASE WHEN {_ELAPSED} IS NOT NULL THEN {given_seconds} "
        f"ELSE {end} - {start} - coalesce(duration(suspended), 0) END",
        "wall": "either(try_cast(timelimitraw AS BIGINT) * 60, duration(given(timelimit)))",
        "no_wall": f"{_WALL} IN ('UNLIMITED', 'Partition_Limit')",
        "nodes": _NODES,
        "cpus": _CPUS,
        "gpus": f"""CASE
          WHEN contains(alloctres, 'gres/gpu') THEN tres_gpus(alloctres)
          WHEN {_GRES} IS NOT NULL THEN gres_gpus({_GRES}, {_NODES})
          WHEN alloctres <> '' THEN 0 END""",
        "gpu_model": f"""CASE
          WHEN contains(alloctres, 'gres/gpu:') OR contains({_GRES}, 'gpu:')
          THEN gpu_model_of(coalesce(alloctres, ''), {_GRES}) END""",
        "billing": "try_cast(tres(alloctres, 'billing') AS BIGINT)",
        "restarts": "try_cast(given(restarts) AS INTEGER)",
        "name": "jobname",
        "work_dir": "nullif(workdir, '')",
        "submit_line": "nullif(submitline, '')",
    }


def _state() -> str:
    """The base state: as it stands, without ` by uid`, or for a compact or truncated one."""
    odd = {word: base_state(word) for word in (*CODES, *_truncated_states())}
    cases = " ".join(f"WHEN {literal(word)} THEN {literal(s)}" for word, s in odd.items() if s)
    word = "split_part(state, ' ', 1)"
    return (
        f"CASE WHEN state IN {_USUAL_STATES} "
        f"OR try_cast(state AS known_state) IS NOT NULL THEN state "
        f"WHEN try_cast({word} AS known_state) IS NOT NULL THEN {word} "
        f"ELSE CASE {word} {cases} END END"
    )


def _truncated_states() -> list[str]:
    return [f"{state[:n]}+" for state in STATES for n in range(2, len(state) + 1)]


def _not_ended() -> str:
    cases = " ".join(f"WHEN {literal(s)} THEN {literal(why)}" for s, why in NOT_ENDED.items())
    return f"CASE state {cases} END"


def _details(zone: str | None) -> Mapping[str, str]:
    return {
        "account": "nullif(account, '')",
        "qos": "nullif(qos, '')",
        "exit_code": "nullif(exitcode, '')",
        "node_list": "nullif(given(nodelist), 'None assigned')",
        "eligible": _time("eligible", zone),
        "memory": "either(mebibytes(tres(alloctres, 'mem')), "
        f"req_mebibytes(reqmem, {_NODES}, {_CPUS}))",
    }


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
    """Without a job id: what only allocations have is missing. With one, steps do not come here."""
    if {"jobid", "jobidraw"} & set(columns):
        return "false"
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
        tests.append("elapsed = 0 AND nowhere")
    elif has & {"alloctres"}:
        tests.append("elapsed = 0 AND billing IS NULL AND state IN ('CANCELLED', 'DEADLINE')")
    else:
        tests.append("elapsed = 0 AND state IN ('CANCELLED', 'DEADLINE')")
    return " OR ".join(f"({test})" for test in tests)
