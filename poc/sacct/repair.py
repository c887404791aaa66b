"""Rows that are not well formed: joined, realigned on their typed columns, or given up by name.

sacct neither quotes nor escapes, so a newline or a delimiter inside JobName, Comment, WorkDir or
SubmitLine breaks a row apart. A row is put right only where every way to cut it agrees on every
typed column; text never decides a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cedana_poc.sacct.dialect import Dialect
from cedana_poc.sacct.grammar import Kind, kind_of, well_formed

MOST_LINES = 400
MOST_BYTES = 4 << 20
"""Beyond this many lines or bytes, what is pending is no row of sacct's (SubmitLine: 1 MiB)."""


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
    """A line that belongs to no row that can be read."""

    number: int
    problem: str
    last: bool = False


def cut(dialect: Dialect) -> _Cut:
    """The function that cuts one logical row of this dialect into its fields, or says None."""
    if dialect.shape == "fixed":
        return _FixedWidth(dialect.spans, tuple(map(kind_of, dialect.columns)))
    return _Delimited(
        dialect.delimiter, tuple(map(kind_of, dialect.columns)), trailing=dialect.trailing
    )


class _Cut(Protocol):
    def __call__(self, text: str) -> list[str] | None:
        """The fields of a row, if it is one beyond doubt."""

    def split(self, text: str) -> list[str] | None:
        """The fields of a row whose count of fields is known to be right."""

    def may_begin(self, text: str) -> bool:
        """Whether a row could begin with this line."""

    def why_not(self, text: str) -> str:
        """What keeps a line from being a row."""


@dataclass(frozen=True, slots=True)
class _FixedWidth:
    spans: tuple[tuple[int, int], ...]
    kinds: tuple[Kind, ...]

    def __call__(self, text: str) -> list[str] | None:
        raw = text.encode("utf-8", "surrogateescape")
        if len(raw) <= self.spans[-1][0] - 1 or len(raw) > self.spans[-1][1] + 1:
            return None
        gaps = {a - 1 for a, _ in self.spans[1:]}
        if any(raw[gap : gap + 1] not in (b" ", b"") for gap in gaps):
            return None
        fields = [raw[a:b].decode("utf-8", "replace").strip(" ") for a, b in self.spans]
        return fields if all(map(_cut_or_well_formed, self.kinds, fields)) else None

    def split(self, text: str) -> list[str] | None:
        return None

    def may_begin(self, text: str) -> bool:
        first = text[self.spans[0][0] : self.spans[0][1]].strip()
        return _cut_or_well_formed(self.kinds[0], first)

    def why_not(self, text: str) -> str:
        return "the line does not fit the columns"


def _cut_or_well_formed(kind: Kind, value: str) -> bool:
    return value.endswith("+") or well_formed(kind, value)


@dataclass(frozen=True, slots=True)
class _Delimited:
    delimiter: str
    kinds: tuple[Kind, ...]
    trailing: bool

    def __call__(self, text: str) -> list[str] | None:
        pieces = self.split(text)
        return align(pieces, self.kinds, self.delimiter) if pieces else None

    def split(self, text: str) -> list[str] | None:
        if self.trailing:
            if not text.endswith(self.delimiter):
                return None
            text = text[: -len(self.delimiter)]
        return text.split(self.delimiter)

    def why_not(self, text: str) -> str:
        pieces = text.removesuffix(self.delimiter if self.trailing else "").split(self.delimiter)
        if len(pieces) < len(self.kinds):
            return f"{len(pieces)} fields, {len(self.kinds)} columns"
        if len(pieces) > len(self.kinds):
            return f"{len(pieces)} fields, {len(self.kinds)} columns, more than one way to cut them"
        odd = [i for i, kind in enumerate(self.kinds, 1) if not well_formed(kind, pieces[i - 1])]
        return f"column {odd[0]} holds what sacct does not print there" if odd else "not a row"

    def may_begin(self, text: str) -> bool:
        for kind, value in zip(self.kinds, text.split(self.delimiter), strict=False):
            if kind is Kind.FREE:
                return True
            if not well_formed(kind, value):
                return False
        return True


def align(pieces: Sequence[str], kinds: Sequence[Kind], delimiter: str) -> list[str] | None:
    """Give each column one piece, and surplus pieces to columns that may hold the delimiter.

    Returns:
        The fields; None if no way fits, or if two ways differ in a column that is not free text.
    """
    surplus = len(pieces) - len(kinds)
    if not 0 <= surplus <= MOST_LINES:
        return None
    if surplus == 0:
        return list(pieces) if all(map(well_formed, kinds, pieces)) else None
    table = _Alignments(pieces, kinds, delimiter, surplus)
    return table.fields() if table.agree() else None


@dataclass(slots=True)
class _Alignments:
    """All ways to spread `surplus` extra pieces, by dynamic programming over (column, shift).

    `begins[c]` holds the shifts s for which the first c columns fit the first c + s pieces;
    `ends[c]` those from which the columns after them fit all the rest.
    """

    pieces: Sequence[str]
    kinds: Sequence[Kind]
    delimiter: str
    surplus: int
    begins: list[set[int]] = field(default_factory=list)
    ends: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begins = [{0}]
        for column in range(len(self.kinds)):
            self.begins.append({t for s in self.begins[-1] for t in self._next(column, s)})
        self.ends = [{self.surplus}]
        for column in reversed(range(len(self.kinds))):
            shifts = self.begins[column]
            self.ends.append({s for s in shifts if self.ends[-1] & set(self._next(column, s))})
        self.ends.reverse()

    def _absorbs(self, kind: Kind) -> bool:
        return self.delimiter == "," and kind in (Kind.TRES, Kind.NODES, Kind.WORD)

    def _value(self, column: int, shift: int, after: int) -> str:
        return self.delimiter.join(self.pieces[column + shift : column + after + 1])

    def _next(self, column: int, shift: int) -> Iterator[int]:
        kind = self.kinds[column]
        if kind is Kind.FREE:
            yield from range(shift, self.surplus + 1)
            return
        furthest = self.surplus if self._absorbs(kind) else shift
        for after in range(shift, furthest + 1):
            if well_formed(kind, self._value(column, shift, after)):
                yield after

    def agree(self) -> bool:
        """Whether some way fits, and all that fit give the same value to every typed column."""
        if 0 not in self.ends[0]:
            return False
        for column, kind in enumerate(self.kinds):
            if kind is Kind.FREE:
                continue
            values = {
                self._value(column, shift, after)
                for shift in self.ends[column]
                for after in self._next(column, shift)
                if after in self.ends[column + 1]
            }
            if len(values) != 1:
                return False
        return True

    def fields(self) -> list[str]:
        """The way that gives surplus pieces to the earliest column that may hold them."""
        shift, fields = 0, []
        for column in range(len(self.kinds)):
            after = max(t for t in self._next(column, shift) if t in self.ends[column + 1])
            fields.append(self._value(column, shift, after))
            shift = after
        return fields


class Joiner:
    """Turns a stream of lines that need a look into logical rows.

    Feed it lines in file order; call `gap` where well-formed lines were passed over, and
    `finish` at the end of the file. Each call yields the rows and unreadable lines that are
    settled by then.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._parse = cut(dialect)
        self._header = dialect.header
        self._on_bad_bytes = "surrogateescape" if dialect.shape == "fixed" else "replace"
        kinds = [kind_of(name) for name in dialect.columns]
        self._grows = kinds[-1] is Kind.FREE and dialect.shape != "fixed" and not dialect.trailing
        self._previous: Row | None = None
        self._pending: list[tuple[Line, str]] = []

    def feed(self, line: Line) -> Iterator[Row | Unreadable]:
        """Take the next line."""
        raw = line.raw[:-1] if line.raw.endswith(b"\r") else line.raw
        if raw == self._header and raw:
            return
        text = raw.decode("utf-8", self._on_bad_bytes)
        fields = self._parse(text)
        if fields is None and line.sound and not self._pending:
            fields = self._parse.split(text)
        if fields is not None:
            yield from self.gap()
            self._previous = Row(line.number, fields, "" if line.sound else _problem(line, text, 0))
            return
        self._pending.append((line, text))
        if len(self._pending) > MOST_LINES or sum(len(t) for _, t in self._pending) > MOST_BYTES:
            yield from self._settle()

    def gap(self) -> Iterator[Row | Unreadable]:
        """Well-formed lines follow that are read elsewhere: nothing pending can join them."""
        yield from self._settle()
        yield from self._emit()

    def _emit(self) -> Iterator[Row]:
        if self._previous:
            yield self._previous
            self._previous = None

    def finish(self) -> Iterator[Row | Unreadable]:
        """No line follows: a row that is still open was cut."""
        settled = list(self.gap())
        if settled and isinstance(settled[-1], Unreadable):
            cut_off = settled.pop()
            settled.append(Unreadable(cut_off.number, "the last row is cut off", last=True))
        yield from settled

    def _settle(self) -> Iterator[Row | Unreadable]:
        pending, self._pending = self._pending, []
        position = 0
        while position < len(pending):
            line, text = pending[position]
            taken = 1
            if self._continues(text):
                self._extend(text)
            elif row := self._join(pending, position):
                yield from self._emit()
                self._previous, taken = row
            elif text.strip() and line.sound and (fields := self._parse.split(text)):
                yield from self._emit()
                self._previous = Row(line.number, fields)
            elif text.strip():
                yield Unreadable(line.number, self._parse.why_not(text))
            position += taken

    def _continues(self, text: str) -> bool:
        """Whether a line belongs to the last column of the row before it."""
        return bool(self._previous and self._grows and not self._parse.may_begin(text))

    def _extend(self, text: str) -> None:
        row = self._previous
        if row:
            fields = [*row.fields[:-1], f"{row.fields[-1]}\n{text}"]
            self._previous = Row(row.number, fields, "newline in the last column")

    def _join(
        self, pending: Sequence[tuple[Line, str]], position: int
    ) -> tuple[Row, int] | None:
        line, text = pending[position]
        if not text.strip() or not self._parse.may_begin(text):
            return None
        for last in range(position + 1, len(pending)):
            joined = "\n".join(text for _, text in pending[position : last + 1])
            fields = self._parse(joined)
            if fields is not None:
                problem = _problem(line, joined, last - position)
                return Row(line.number, fields, problem), last - position + 1
        return None


def _problem(line: Line, joined: str, joins: int) -> str:
    if joins:
        return "newline in a text column"
    try:
        line.raw.decode("utf-8")
    except UnicodeDecodeError:
        return "text that is not UTF-8"
    return "control character in a text column" if "\r" in joined else "delimiter in a text column"
