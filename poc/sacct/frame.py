"""Runs as a polars frame, for notebooks and other programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from cedana_poc.errors import UserError
from cedana_poc.sacct.account import Account
from cedana_poc.sacct.load import load

if TYPE_CHECKING:
    import polars as pl

_TIMES = ("submit", "eligible", "start", "end")
_SELECT = """
SELECT runs.job, runs.id, runs.records, runs.cluster, runs."user", runs.account, runs.partition,
  runs.qos, runs.reservation, runs.state, runs.exit_code,
  runs.submit, runs.eligible, runs.start, runs."end",
  runs.elapsed AS elapsed_seconds, runs.wall AS limit_seconds, runs.nodes, runs.cpus, runs.gpus,
  runs.gpu_model, runs.memory AS memory_mib,
  runs.node_seconds / 3600 AS node_hours, runs.cpu_seconds / 3600 AS cpu_hours,
  runs.gpu_seconds / 3600 AS gpu_hours, runs.billing_seconds / 3600 AS billing_hours,
  runs.restarts, records.node_list, records.name, records.work_dir, records.submit_line
FROM runs JOIN records ON records.rowid = runs.run
ORDER BY runs."end", runs.job, runs.submit, runs.start
"""


@dataclass(frozen=True, slots=True)
class Runs:
    """The ended runs of some files, and the account of every row that is not among them.

    Attributes:
        frame: one row a run, ordered by end. Columns and dtypes:
            job (String): JobID as printed; id (String): JobIDRaw; records (Int32): how many
            allocation records make up the run;
            cluster, user, account, partition, qos, reservation, state, exit_code (String);
            submit, eligible, start, end (Datetime in microseconds; UTC where the zone of the input
            is known, else without a zone and in the cluster's own time);
            elapsed_seconds (Int64); limit_seconds (Int64, null without a limit);
            nodes, cpus, gpus (Int64); gpu_model (String); memory_mib (Float64);
            node_hours (nodes touched), cpu_hours, gpu_hours, billing_hours (Float64);
            restarts (Int32); node_list, name, work_dir, submit_line (String).
            What a file does not say is null.
        account: how many rows were read, repaired, and left out for which reason;
            `account.rows_in == account.runs + sum(account.left_out.values())`.
    """

    frame: pl.DataFrame
    account: Account

    def __len__(self) -> int:
        return self.frame.height


def read(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    columns: Sequence[str] = (),
    timezone: str | None = None,
) -> Runs:
    """Read sacct output of any dialect; the runs are those of `cedana-poc analyze`.

    The frame is held in memory: about 400 bytes a run, 700 with long names, paths and submit
    lines. Reading itself spills to disk and takes no more than a few hundred megabytes.

    Args:
        paths: one file or several, which may overlap.
        columns: names of the columns of files without a header.
        timezone: IANA name of the zone that local times are in.

    Raises:
        UserError: a file cannot be read or is not sacct output, or too many rows are unreadable
            for any figure to be trusted.
    """
    import polars as pl

    named = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    with load(
        [Path(path) for path in named], columns=columns, zone=timezone, detail=True
    ) as loaded:
        account = loaded.account
        if not account.readable:
            first = account.unreadable[0]
            raise UserError(
                f"{account.left_out['unreadable']:,} of {account.rows_in:,} rows are unreadable",
                where=f"{first.path}:{first.line}",
                hint=first.problem,
            )
        frame = pl.DataFrame(loaded.connection.sql(_SELECT))
        local = timezone is None and any(file.local_times for file in account.inputs)
    zone = None if local else "UTC"
    stamps = [
        pl.from_epoch(name, time_unit="s").dt.cast_time_unit("us").dt.replace_time_zone(zone)
        for name in _TIMES
    ]
    return Runs(frame.with_columns(stamps), account)
