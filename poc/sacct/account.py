"""The account of every row: what was read, what was put right, what was left out and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cedana_poc.errors import UserError

FIRST_FEW = 10

REASONS = {
    "steps": "step of a job, never counted as a job",
    "array blocks": "array tasks that have no record of their own (`_[…]`)",
    "pending": "still pending",
    "running": "still running",
    "suspended": "suspended, not ended",
    "revoked": "sibling of a federated job that ran elsewhere",
    "never started": "ended without having started",
    "no elapsed time": "no usable elapsed time",
    "truncated id": "job id cut off by fixed width, job or step unknown",
    "other partition": "not in the partitions asked for",
    "no end time": "no end time, so not known to be in the period asked for",
    "before --since": "ended before --since",
    "after --until": "ended at or after --until",
    "identical copies": "identical copy of a record already read",
    "older copies": "older copy of a record (same id, submit and start, other content)",
    "cut last row": "last row of a file, cut off",
    "unreadable": "not readable as a row of sacct",
}
"""Every reason a row can be left out for."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file as read.

    Attributes:
        cut: compressed, and ended before its end mark.
        local_times: has time stamps without a zone.
    """

    path: str
    sha256: str
    bytes: int
    dialect: str
    rows: int
    columns: tuple[str, ...]
    cut: bool = False
    local_times: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A row that was repaired or could not be read: where it is and what was wrong with it."""

    path: str
    line: int
    problem: str


@dataclass(slots=True)
class Account:
    """Counts of logical rows; `rows_in == runs + sum(left_out.values())` once reading is done.

    Attributes:
        runs: records that became part of runs.
        truncated: rows with a value cut off by fixed width, by column.
    """

    inputs: list[Input] = field(default_factory=list)
    rows_in: int = 0
    runs: int = 0
    repaired: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    truncated: Counter[str] = field(default_factory=Counter)
    repairs: list[Remark] = field(default_factory=list)
    unreadable: list[Remark] = field(default_factory=list)

    def repair(self, path: str, line: int, problem: str) -> None:
        """Note a repaired row."""
        self.repaired += 1
        if len(self.repairs) < FIRST_FEW:
            self.repairs.append(Remark(path, line, problem))

    def leave_out(self, reason: str, path: str, line: int, problem: str) -> None:
        """Note a row that could not be read."""
        self.left_out[reason] += 1
        if len(self.unreadable) < FIRST_FEW:
            self.unreadable.append(Remark(path, line, problem))

    @property
    def readable(self) -> bool:
        """Whether few enough rows are unreadable for any figure to be given: at most 1 or 0.1 %."""
        return self.left_out["unreadable"] <= max(1, self.rows_in // 1000)

    def refuse_doubled(self) -> None:
        """Refuse files of the same content whose rows have no whole job id to know them again by.

        Raises:
            UserError: their jobs would count twice.
        """
        seen: dict[str, Input] = {}
        ids_cut = {"jobid", "jobidraw"} & self.truncated.keys()
        for file in self.inputs:
            first = seen.setdefault(file.sha256, file)
            known = {"jobid", "jobidraw"} & set(file.columns) and not ids_cut
            if first is not file and file.rows and not known:
                raise UserError(
                    f"the same content as {first.path}, and no job ids to tell rows apart",
                    where=file.path,
                    hint="name it once",
                )

    def check(self) -> None:
        """Assert that every row is accounted for."""
        total = self.runs + sum(self.left_out.values())
        if self.rows_in != total:
            raise AssertionError(f"{self.rows_in} rows in, {total} accounted for")
        unknown = self.left_out.keys() - REASONS.keys()
        if unknown:
            raise AssertionError(f"rows left out without a known reason: {sorted(unknown)}")
