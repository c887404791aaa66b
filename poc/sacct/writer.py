"""Rows of one file on their way into DuckDB: collected in pieces, typed while more is read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

from cedana_poc.sacct.scan import STEP_DELIMITER
from cedana_poc.sacct.typed import (
    PROBLEM,
    SCAFFOLD,
    literal,
    reason,
    text_columns,
    typed_columns,
)

PIECE = 48 << 20
"""Bytes of rows that are handed to DuckDB at a time."""

_QUOTED = "delim=',', quote='\"', escape='\"', parallel=false, max_line_size=8388608"


class _Piece:
    """A file of rows that grows until it is handed over."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._turn = 0
        self._open()

    def _open(self) -> None:
        self._path = self._folder / f"{self._kind}-{self._turn}"
        self._file = self._path.open("wb")
        self.size = 0

    def add(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)

    def hand_over(self) -> Path:
        """The rows so far as a file, and a new file for those to come."""
        self._file.close()
        path = self._path
        self._turn += 1
        self._open()
        return path

    def close(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class Writer:
    """Takes the rows of one file and puts them, typed, into the tables of `records.create`.

    `finish` must be called, or rows are missing.

    Args:
        file: the file's place among those read, kept with each record.
        columns: canonical names in file order.
        delimiter: one byte, of the rows given to `lines`; empty for fixed width.
        trailing: each of those ends with a delimiter.
        zone, detail: see `typed.typed_columns`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        scratch: Path,
        *,
        file: int,
        columns: Sequence[str],
        delimiter: str,
        trailing: bool,
        zone: str | None,
        detail: bool,
    ) -> None:
        self._connection = connection.cursor()
        typed = typed_columns(columns, zone, detail=detail, fixed_width=not delimiter)
        self._records = (
            f"INSERT INTO records BY NAME SELECT * EXCLUDE ({', '.join(SCAFFOLD)}), "
            f"{PROBLEM} AS problem FROM (SELECT *, {reason(columns)} AS reason "
            f"FROM (SELECT {file} AS file, {typed} "
            f"FROM (SELECT {text_columns(columns)} FROM {{rows}})))"
        )
        self._columns = columns
        self._plain_form = f"delim={literal(delimiter or STEP_DELIMITER)}, quote='', escape=''"
        self._plain_width = len(columns) + trailing
        self._thread = ThreadPoolExecutor(1)
        self._working: Future[None] | None = None
        self._plain = _Piece(scratch, "plain")
        self._quoted = _Piece(scratch, "quoted")
        self._steps = _Piece(scratch, "steps")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        for piece in (self._plain, self._quoted, self._steps):
            piece.close()
        self._connection.close()

    def lines(self, data: bytes) -> None:
        """Well-formed rows as they stand in the file, whole lines."""
        self._plain.add(data)
        if self._plain.size > PIECE:
            self._insert_plain()

    def row(self, fields: Sequence[str]) -> None:
        """One row cut into fields, which may hold anything."""
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(fields)
        self._quoted.add(text.getvalue().replace("\0", "").encode("utf-8", "replace"))
        if self._quoted.size > PIECE:
            self._insert_quoted()

    def step_names(self, data: bytes) -> None:
        """Lines of a step's id and its name, `STEP_DELIMITER` between them."""
        self._steps.add(data)
        if self._steps.size > PIECE:
            self._insert_steps()

    def finish(self) -> None:
        """Put in what is left and wait until it is there."""
        if self._plain.size:
            self._insert_plain()
        if self._quoted.size:
            self._insert_quoted()
        if self._steps.size:
            self._insert_steps()
        self._wait()

    def _insert_plain(self) -> None:
        self._insert(self._records, self._plain, self._plain_form, self._plain_width)

    def _insert_quoted(self) -> None:
        self._insert(self._records, self._quoted, _QUOTED, len(self._columns))

    def _insert_steps(self) -> None:
        form = f"delim={literal(STEP_DELIMITER)}, quote='', escape='', ignore_errors=true"
        insert = (
            "INSERT INTO step_names "
            "SELECT split_part(c0, '.', 1), split_part(c0, '.', 2), c1 FROM {rows}"
        )
        self._insert(insert, self._steps, form, 2)

    def _insert(self, insert: str, piece: _Piece, form: str, width: int) -> None:
        self._wait()
        path = piece.hand_over()
        columns = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width))
        rows = (
            f"read_csv({literal(str(path))}, {form}, columns={{{columns}}}, header=false, "
            f"auto_detect=false, new_line='\\n')"
        )
        self._working = self._thread.submit(self._execute, insert.replace("{rows}", rows), path)

    def _execute(self, sql: str, path: Path) -> None:
        self._connection.execute(sql)
        path.unlink()

    def _wait(self) -> None:
        if self._working:
            self._working.result()
            self._working = None
