"""Files of sacct output -> records -> runs, with an account of every row left out."""

from __future__ import annotations

import csv
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

from cedana_poc.errors import UserError
from cedana_poc.sacct import records, sacctjson
from cedana_poc.sacct.account import FIRST_FEW, Account, Input, Remark
from cedana_poc.sacct.dialect import Dialect, header_names, other_header, sniff
from cedana_poc.sacct.grammar import kind_of
from cedana_poc.sacct.repair import MOST_LINES, Joiner, Line, Row, Unreadable, cut_off
from cedana_poc.sacct.scan import STEP_DELIMITER, Scanner
from cedana_poc.sacct.source import Source, blocks, mode
from cedana_poc.sacct.wanted import Filter
from cedana_poc.sacct.writer import Writer

MEMORY_LIMIT = "230MB"
"""What DuckDB may hold before it spills to disk."""

MOST_JSON = 256 << 20
"""Bytes of JSON that are read at the most: they are held in memory."""

Progress = Callable[[str, int, int], None]
"""Told (path, bytes of that file read so far, logical rows read so far of all files)."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Runs and records in a database, and the account of all rows.

    Attributes:
        connection: tables `runs`, `records` and `step_names`, see `records.py`.
        scratch: a private folder that goes with the database.
        columns: canonical names of the fields that at least one file has.
        zone: IANA name of the zone of local times; None if it is not known.
    """

    connection: duckdb.DuckDBPyConnection
    scratch: Path
    account: Account
    columns: frozenset[str]
    zone: str | None


@contextmanager
def load(
    paths: Iterable[Path],
    *,
    columns: Sequence[str] = (),
    zone: str | None = None,
    wanted: Filter | None = None,
    node_set_size: records.NodeSetSize | None = None,
    detail: bool = False,
    progress: Progress | None = None,
) -> Iterator[Loaded]:
    """Read files into a temporary database that lives as long as the context.

    Args:
        paths: files; overlapping days are recognised.
        columns: names of the columns of files without a header.
        zone: IANA name of the zone that local times are in.
        wanted: which runs to keep; the others are left out by name.
        node_set_size: tells the size of the nodes in a node list, for node-equivalent hours.
        detail: with account, QOS, eligible time, exit code and memory.

    Raises:
        UserError: a file cannot be read or is not sacct output.
    """
    files = list(paths)
    with tempfile.TemporaryDirectory(prefix="cedana-poc-") as name:
        scratch = Path(name)
        settings = _Settings(tuple(columns), zone, detail or bool(node_set_size))
        careful = not all(stat.S_ISREG(mode(path)) for path in files)
        connection, account = _read_all(files, scratch, settings, careful, progress)
        try:
            if not careful and records.unreadable(connection, 1):
                connection.close()
                connection, account = _read_all(files, scratch, settings, True, progress)
            each = [frozenset(file.columns) for file in account.inputs]
            records.make_runs(connection, each, wanted or Filter(), node_set_size)
            _refuse_shifted(connection, account.inputs, each)
            _settle(connection, account)
            yield Loaded(connection, scratch, account, frozenset().union(*each), zone)
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class _Settings:
    columns: tuple[str, ...]
    zone: str | None
    detail: bool


def _read_all(
    files: Iterable[Path],
    scratch: Path,
    settings: _Settings,
    careful: bool,
    progress: Progress | None,
) -> tuple[duckdb.DuckDBPyConnection, Account]:
    """All files into a new database.

    Fast at first, and a second time `careful`ly if a value turned up that is not sacct's: it
    betrays a broken row whose pieces have the right number of delimiters by chance.
    """
    account = Account()
    connection = records.connect(str(scratch), MEMORY_LIMIT)
    try:
        reader = _Reader(connection, scratch, account, settings, careful, progress)
        for path in files:
            reader.read(path)
    except BaseException:
        connection.close()
        raise
    return connection, account


def _refuse_shifted(
    connection: duckdb.DuckDBPyConnection,
    inputs: Sequence[Input],
    fields: Sequence[frozenset[str]],
) -> None:
    """Refuse local times that other files, which know the zone, show to be read in a wrong one.

    Raises:
        UserError: the same jobs are in both, and would be counted twice.
    """
    local = [place for place, file in enumerate(inputs) if file.local_times]
    if not 0 < len(local) < len(inputs) or not all({"submit", "start"} <= has for has in fields):
        return
    if found := records.shifted(connection, fields, local):
        ours, other, seconds, jobs = found
        raise UserError(
            f"{jobs:,} jobs that {inputs[other].path} has too are {abs(seconds) / 3600:g} h "
            f"{'later' if seconds > 0 else 'earlier'} in its local times",
            where=inputs[ours].path,
            hint="give the zone of the cluster with --timezone, such as Europe/Helsinki",
        )


def _settle(connection: duckdb.DuckDBPyConnection, account: Account) -> None:
    """Complete the account from the tables, and assert that it adds up."""
    account.refuse_doubled()
    account.left_out += records.left_out(connection)
    account.runs = records.record_count(connection)
    for file, job, problem in records.unreadable(connection, FIRST_FEW):
        account.unreadable.append(Remark(account.inputs[file].path, 0, f"job {job}: {problem}"))
    del account.unreadable[FIRST_FEW:]
    account.check()


class _Reader:
    """Reads files one after the other into the tables of one connection."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        scratch: Path,
        account: Account,
        settings: _Settings,
        careful: bool,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._scratch = scratch
        self._account = account
        self._settings = settings
        self._careful = careful
        self._progress = progress or (lambda path, size, rows: None)

    def read(self, path: Path) -> None:
        """Read one file."""
        before = self._account.rows_in
        with Source(path) as source:
            stream = blocks(source)
            first = bytes(next(stream, b""))
            if source.truncated and not first:
                raise UserError(
                    "the compressed data is cut off before the end of its first row",
                    where=str(path),
                    hint="copy the file again",
                )
            dialect = sniff(first, self._settings.columns, str(path))
            if dialect.shape == "json":
                dialect = replace(dialect, columns=sacctjson.COLUMNS)
            with self._writer(dialect) as writer:
                self._read_rows(source, dialect, _chained(first, stream), writer)
                writer.finish()
            self._account.inputs.append(
                Input(
                    path=str(path),
                    sha256=source.sha256,
                    bytes=source.bytes_read,
                    dialect=dialect.describe(),
                    rows=self._account.rows_in - before,
                    columns=dialect.columns,
                    cut=source.truncated,
                    local_times=re.search(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", first) is not None,
                )
            )

    def _writer(self, dialect: Dialect) -> Writer:
        return Writer(
            self._connection,
            self._scratch,
            file=len(self._account.inputs),
            columns=dialect.columns,
            delimiter=_one_byte(dialect.delimiter) if dialect.delimiter else "",
            trailing=dialect.trailing,
            zone=self._settings.zone,
            detail=self._settings.detail,
        )

    def _read_rows(
        self, source: Source, dialect: Dialect, stream: Iterator[memoryview], writer: Writer
    ) -> None:
        if dialect.shape == "json":
            self._read_json(source, _skipped(stream, dialect.skip), writer)
        elif dialect.shape == "quoted":
            self._read_quoted(source, dialect, stream, writer)
        elif dialect.shape == "fixed":
            self._read_fixed(source, dialect, stream, writer)
        else:
            self._read_delimited(source, dialect, stream, writer)

    def _read_delimited(
        self, source: Source, dialect: Dialect, stream: Iterator[memoryview], writer: Writer
    ) -> None:
        old, new = dialect.delimiter.encode(), _one_byte(dialect.delimiter).encode()
        header = dialect.header.replace(old, new)
        dialect = replace(dialect, delimiter=new.decode(), header=header)
        scan, join = Scanner(dialect, careful=self._careful), Joiner(dialect, str(source.path))
        take = _RowTaker(self._account, str(source.path), dialect.columns, writer)
        line, previous = 1 + dialect.lines_skipped, 0
        for block in _skipped(stream, dialect.skip):
            if dialect.crlf or old != new:
                block = memoryview(bytes(block).replace(b"\r\n", b"\n").replace(old, new))
            scanned = scan(block, line)
            line += scanned.lines
            writer.lines(scanned.allocations)
            writer.step_names(scanned.step_names)
            self._account.rows_in += scanned.rows + scanned.steps
            self._account.left_out["steps"] += scanned.steps
            for doubtful in scanned.doubtful:
                if doubtful.number != previous + 1:
                    take.all(join.gap())
                take.all(join.feed(doubtful))
                previous = doubtful.number
            self._progress(str(source.path), source.bytes_read, self._account.rows_in)
        take.all(join.finish(cut=source.unterminated or source.truncated))

    def _read_fixed(
        self, source: Source, dialect: Dialect, stream: Iterator[memoryview], writer: Writer
    ) -> None:
        join = Joiner(dialect, str(source.path))
        take = _RowTaker(self._account, str(source.path), dialect.columns, writer)
        number = dialect.lines_skipped
        for block in _skipped(stream, dialect.skip):
            for raw in bytes(block).split(b"\n")[:-1]:
                number += 1
                take.all(join.feed(Line(number, raw, True)))
            self._progress(str(source.path), source.bytes_read, self._account.rows_in)
        take.all(join.finish(cut=source.unterminated or source.truncated))

    def _read_quoted(
        self, source: Source, dialect: Dialect, stream: Iterator[memoryview], writer: Writer
    ) -> None:
        take = _RowTaker(self._account, str(source.path), dialect.columns, writer)
        csv.field_size_limit(8 << 20)
        lines = (
            line.decode("utf-8", "replace")
            for block in _skipped(stream, dialect.skip)
            for line in bytes(block).splitlines(keepends=True)
        )
        reader = csv.reader(lines, delimiter=dialect.delimiter)
        skipped, before = dialect.lines_skipped, 0
        header = next(csv.reader([dialect.header.decode("utf-8", "replace")], reader.dialect), [])
        latest: Row | Unreadable | None = None
        try:
            for fields in reader:
                number, before = skipped + before + 1, reader.line_num
                if reader.line_num - number > MOST_LINES:
                    raise csv.Error("a quote is opened and not closed")
                fields = fields[:-1] if dialect.trailing and fields[-1:] == [""] else fields
                if not fields or fields == header:
                    continue
                if header_names(fields) not in (None, dialect.columns):
                    raise other_header(number, str(source.path))
                if latest:
                    take(latest)
                latest = _cut_into(dialect.columns, number, fields)
                self._progress(str(source.path), source.bytes_read, self._account.rows_in)
        except csv.Error as error:
            raise UserError(
                f"line {skipped + before + 1}: {error}",
                where=str(source.path),
                hint="export with sacct -P, which has no quotes",
            ) from error
        cut = source.unterminated or source.truncated
        if isinstance(latest, Row):
            take(cut_off(latest, kind_of(dialect.columns[-1])) if cut else latest)
        elif latest:
            take(replace(latest, last=cut))

    def _read_json(self, source: Source, stream: Iterator[memoryview], writer: Writer) -> None:
        path = str(source.path)
        take = _RowTaker(self._account, path, sacctjson.COLUMNS, writer)
        content = bytearray()
        for block in stream:
            content += block
            if len(content) > MOST_JSON:
                raise UserError(
                    f"more than {MOST_JSON >> 20} MiB of JSON",
                    where=path,
                    hint="export with sacct -P, which is 30 times smaller, or fewer days at a time",
                )
        for number, job in enumerate(sacctjson.jobs(bytes(content), path), start=1):
            fields = sacctjson.row(job)
            if fields is None:
                take(Unreadable(0, f"job number {number} of the list is not laid out as sacct's"))
                continue
            take(Row(0, fields))
            for step, name in sacctjson.step_names(job):
                take.step_name(step, name)
            self._progress(path, source.bytes_read, self._account.rows_in)


class _RowTaker:
    """Counts single rows and hands them on."""

    def __init__(
        self, account: Account, path: str, columns: tuple[str, ...], writer: Writer
    ) -> None:
        self._account = account
        self._path = path
        self._writer = writer
        self._id = next((columns.index(c) for c in ("jobid", "jobidraw") if c in columns), None)
        self._name = columns.index("jobname") if "jobname" in columns else None
        self._cut = [i for i, c in enumerate(columns) if c in ("jobid", "jobidraw", "state")]
        self._columns = columns

    def all(self, settled: Iterable[Row | Unreadable]) -> None:
        for one in settled:
            self(one)

    def __call__(self, settled: Row | Unreadable) -> None:
        self._account.rows_in += 1
        if isinstance(settled, Unreadable):
            reason = "cut last row" if settled.last else "unreadable"
            self._account.leave_out(reason, self._path, settled.number, settled.problem)
            return
        if settled.problem:
            self._account.repair(self._path, settled.number, settled.problem)
        self._note_truncated(settled.fields)
        job = settled.fields[self._id] if self._id is not None else ""
        if "." in job:
            self._account.left_out["steps"] += 1
            if self._name is not None:
                self.step_name(job, settled.fields[self._name])
        else:
            self._writer.row(settled.fields)

    def step_name(self, step: str, name: str) -> None:
        """Hand on the name of a step, `123.0`."""
        line = f"{step}{STEP_DELIMITER}{' '.join(name.split())}\n"
        self._writer.step_names(line.encode("utf-8", "replace"))

    def _note_truncated(self, fields: list[str]) -> None:
        for index in self._cut:
            if fields[index].endswith("+"):
                self._account.truncated[self._columns[index]] += 1


def _cut_into(columns: Sequence[str], number: int, fields: list[str]) -> Row | Unreadable:
    if len(fields) == len(columns):
        return Row(number, fields)
    return Unreadable(number, f"{len(fields)} fields, {len(columns)} columns")


def _one_byte(delimiter: str) -> str:
    return delimiter if len(delimiter.encode()) == 1 else STEP_DELIMITER


def _chained(first: bytes, rest: Iterator[memoryview]) -> Iterator[memoryview]:
    yield memoryview(first)
    yield from rest


def _skipped(stream: Iterator[memoryview], skip: int) -> Iterator[memoryview]:
    """The blocks without their first `skip` bytes."""
    first = next(stream)
    if len(first) > skip:
        yield first[skip:]
    yield from stream
