"""Rows that are not well formed: joined, realigned on their typed columns, or given up by name.

A newline or a delimiter inside JobName, Comment, WorkDir or SubmitLine breaks a row apart. A row
is put right only where every way to cut it agrees on every typed column; text never decides a
number.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from cedana_poc.sacct.align import TELLING, layout
from cedana_poc.sacct.dialect import BOM, Dialect, header_names, other_header
from cedana_poc.sacct.grammar import Kind

MOST_LINES = 20_000
MOST_BYTES = 4 << 20
"""Beyond this many lines or bytes, what is pending is no row of sacct's (SubmitLine: 1 MiB)."""

_MOST_BEGINNINGS = 8
"""A row that holds more lines that look like the beginning of one is none."""

_NEWLINE = "newline in a text column"

_MESSAGE = re.compile(r"(sacct|slurm\w*): ")
"""How messages begin that sacct writes beside its rows."""

_WHOLE = re.compile(r"(\d+-)?\d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
"""Values whose form tells that nothing is missing at their end."""


@dataclass(frozen=True, slots=True)
class Line:
    """One physical line that needs a look, with its number in the file and its raw bytes."""

    number: int
    raw: bytes
    sound: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One logical row, cut into fields. `problem` is empty for a row that was well formed."""

    number: int
    fields: list[str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that cannot be read; `last` if the file was cut off in it."""

    number: int
    problem: str
    last: bool = False


@dataclass(frozen=True, slots=True)
class _Pending:
    """A line that is no row by itself; `begins` if typed columns say that one begins with it."""

    line: Line
    text: str
    begins: bool


@dataclass(slots=True)
class _Open:
    """The latest row, readable or not: more of its last column may follow."""

    row: Row | Unreadable
    more: list[str] = field(default_factory=list)
    blanks: int = 0
    size: int = 0

    def extend(self, text: str) -> None:
        self.more += [*[""] * self.blanks, text]
        self.blanks = 0
        self.size += len(text)

    def closed(self) -> Row | Unreadable:
        row = self.row
        if isinstance(row, Unreadable) or not self.more:
            return row
        last = "\n".join([row.fields[-1], *self.more])
        return Row(row.number, [*row.fields[:-1], last], _NEWLINE)


@dataclass(frozen=True, slots=True)
class _Joined:
    """What some pending lines came to: a row, none, or one that goes on after the last of them."""

    lines: int
    row: Row | None = None
    goes_on: bool = False


def cut_off(last: Row | Unreadable, kind: Kind) -> Row | Unreadable:
    """The last row of a file that ends without a newline: a number in it may lack its end.

    Args:
        kind: of the last column.
    """
    if isinstance(last, Unreadable):
        return last
    value = last.fields[-1]
    if kind in (Kind.FREE, Kind.STATE, Kind.EXIT) or _WHOLE.fullmatch(value):
        return last
    return Unreadable(last.number, "the last row may be cut off: no newline after it", last=True)


class Joiner:
    """Turns a stream of lines that need a look into logical rows.

    Feed it lines in file order; call `gap` where well-formed lines were passed over, and
    `finish` at the end of the file. Each call yields the rows and unreadable lines that are
    settled by then.

    Args:
        where: the file's name, for error messages.
    """

    def __init__(self, dialect: Dialect, where: str = "") -> None:
        self._layout = layout(dialect)
        self._dialect = dialect
        self._where = where
        self._header = dialect.header
        self._fixed = dialect.shape == "fixed"
        kinds = self._layout.kinds
        self._closed = dialect.trailing and not self._fixed
        self._grows = kinds[-1] is Kind.FREE and not self._fixed and not dialect.trailing
        self._text_first = kinds[0] is Kind.FREE
        before_text = takewhile(lambda kind: kind is not Kind.FREE, kinds)
        self._text_hides_rows = not set(before_text) & set(TELLING)
        self._previous: _Open | None = None
        self._pending: list[_Pending] = []
        self._size = 0

    def feed(self, line: Line) -> Iterator[Row | Unreadable]:
        """Take the next line.

        Raises:
            UserError: the line is a header with other columns.
        """
        raw = line.raw.removesuffix(b"\r").removeprefix(BOM)
        text = raw.decode("utf-8", "surrogateescape" if self._fixed else "replace")
        if self._repeats_header(line.number, raw, text):
            yield from self.finish()
            return
        fields = self._layout.parse(text)
        if fields is None and line.sound and not self._pending:
            fields = self._layout.split(text)
        if fields is not None:
            yield from self._take(Row(line.number, fields, "" if line.sound else _problem(line)))
            return
        if _MESSAGE.match(text):
            yield from self.gap()
            yield Unreadable(line.number, f"a message of sacct's: {text[:100]}")
            return
        self._pending.append(_Pending(line, text, self._layout.begins(text)))
        self._size += len(text)
        if len(self._pending) > MOST_LINES or self._size > MOST_BYTES:
            yield from self._give_up((yield from self._settle()))

    def gap(self) -> Iterator[Row | Unreadable]:
        """Well-formed lines follow that are read elsewhere: nothing pending can join them."""
        yield from self._give_up((yield from self._settle()))
        yield from self._emit()

    def finish(self, *, cut: bool = False) -> Iterator[Row | Unreadable]:
        """No line follows: a row that is still open was cut off.

        Args:
            cut: the last line has no newline, so that it may itself be cut off.
        """
        unfinished = yield from self._settle(cut=cut)
        if cut and not unfinished and not self._closed and self._previous:
            self._previous.row = cut_off(self._previous.row, self._layout.kinds[-1])
        yield from self._emit()
        if unfinished:
            yield Unreadable(unfinished[0].line.number, "the last row is cut off", last=True)

    def _repeats_header(self, number: int, raw: bytes, text: str) -> bool:
        """Whether a line is the header again, where one file was appended to another."""
        if self._fixed and re.fullmatch(rb"-[- ]*", raw):
            return True
        if raw == self._header != b"":
            return True
        names = header_names(text.split(self._dialect.delimiter or None))
        if names and names != self._dialect.columns:
            raise other_header(number, self._where)
        return names is not None

    def _take(self, row: Row) -> Iterator[Row | Unreadable]:
        """A whole row; open lines before it may be text of its first column."""
        before = yield from self._settle()
        if before and self._text_first and not any(self._layout.resembles(p.text) for p in before):
            first = "\n".join([*(p.text for p in before), row.fields[0]])
            row = Row(before[0].line.number, [first, *row.fields[1:]], _NEWLINE)
        else:
            yield from self._give_up(before)
        yield from self._open(row)

    def _emit(self) -> Iterator[Row | Unreadable]:
        if self._previous:
            yield self._previous.closed()
            self._previous = None

    def _settle(
        self, *, cut: bool = False
    ) -> Generator[Row | Unreadable, None, Sequence[_Pending]]:
        """Make rows of what is pending; returned are the lines at its end that begin a row."""
        pending, self._pending, self._size = self._pending, [], 0
        place = 0
        while place < len(pending):
            this, step = pending[place], 1
            if not this.text.strip():
                self._pass_blank()
            elif (joined := self._join(pending, place)).row:
                yield from self._open(joined.row)
                step = joined.lines
            elif cut and place == len(pending) - 1 and self._is_cut(this.text):
                return pending[place:]
            elif this.line.sound and (fields := self._layout.split(this.text)):
                yield from self._open(Row(this.line.number, fields))
            elif self._continues(this):
                end = place + (joined.lines if joined.goes_on else 1)
                step = self._extend(pending[place:end])
            elif joined.goes_on:
                return pending[place:]
            else:
                yield from self._give_up(pending[place : place + joined.lines])
                step = joined.lines
            place += step
        return []

    def _open(self, row: Row | Unreadable) -> Iterator[Row | Unreadable]:
        yield from self._emit()
        self._previous = _Open(row)

    def _pass_blank(self) -> None:
        if self._previous:
            self._previous.blanks += 1

    def _is_cut(self, text: str) -> bool:
        walk = self._layout.walk()
        walk.add(text)
        return walk.cut

    def _continues(self, this: _Pending) -> bool:
        """Whether a line belongs to the last column of the row before it."""
        return (
            self._grows
            and self._previous is not None
            and self._previous.size < MOST_BYTES
            and not this.begins
            and not self._layout.resembles(this.text)
        )

    def _extend(self, lines: Sequence[_Pending]) -> int:
        """Add lines to the last column of the row before them; how many there were."""
        for count, this in enumerate(lines):
            if not self._previous or not self._continues(this):
                return count
            self._previous.extend(this.text)
        return len(lines)

    def _give_up(self, lines: Sequence[_Pending]) -> Iterator[Row | Unreadable]:
        """One row that cannot be read, and one for each further line that resembles a row."""
        for place, pending in enumerate(lines):
            is_row = self._layout.resembles(pending.text)
            if place == 0 or is_row:
                yield from self._emit()
                unreadable = Unreadable(pending.line.number, self._layout.why_not(pending.text))
                if is_row or pending.begins:
                    self._previous = _Open(unreadable)
                else:
                    yield unreadable

    def _join(self, pending: Sequence[_Pending], start: int) -> _Joined:
        """The shortest row that begins with the line at `start`."""
        walk, beginnings, place = self._layout.walk(), list[int](), start
        for place in range(start, len(pending)):
            this = pending[place]
            if place > start and (this.begins or (this.line.sound and self._text_hides_rows)):
                beginnings.append(place)
                if this.line.sound or len(beginnings) > _MOST_BEGINNINGS:
                    break
            walk.add(this.text)
            if walk.complete:
                return self._judge(pending, start, place + 1, beginnings)
            if not walk.goes_on:
                break
        else:
            if not beginnings:
                return _Joined(len(pending) - start, goes_on=True)
        end = beginnings[0] if beginnings else max(place, start + 1)
        return _Joined(end - start)

    def _judge(
        self, pending: Sequence[_Pending], start: int, end: int, beginnings: Sequence[int]
    ) -> _Joined:
        """The row that lines can be, unless they can as well be another or more than one."""
        fields = self._parsed(pending[start:end])
        if fields is None:
            return _Joined(end - start)
        for place in beginnings:
            other = self._parsed(pending[place:end])
            if other and self._typed(other) != self._typed(fields):
                return _Joined(end - start)
            if self._hold_a_state(pending[start:place]) and self._hold_a_state(pending[place:end]):
                return _Joined(end - start)
        line = pending[start].line
        problem = _NEWLINE if end - start > 1 else _problem(line)
        return _Joined(end - start, Row(line.number, fields, problem))

    def _parsed(self, lines: Sequence[_Pending]) -> list[str] | None:
        return self._layout.parse("\n".join(pending.text for pending in lines))

    def _typed(self, fields: Sequence[str]) -> list[str]:
        kinds = self._layout.kinds
        return [value for value, kind in zip(fields, kinds, strict=True) if kind is not Kind.FREE]

    def _hold_a_state(self, lines: Sequence[_Pending]) -> bool:
        return any(self._layout.holds_a_state(pending.text) for pending in lines)


def _problem(line: Line) -> str:
    try:
        line.raw.decode("utf-8")
    except UnicodeDecodeError:
        return "text that is not UTF-8"
    if b"\r" in line.raw or b"\0" in line.raw:
        return "control character in a text column"
    return "delimiter in a text column"
