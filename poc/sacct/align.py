"""One logical row into fields, where text columns may hold the delimiter or a newline.

sacct neither quotes nor escapes. Typed columns are what tells where a text ends: a row is cut only
if every way to cut it gives the same value to every column that is not free text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Protocol

from cedana_poc.sacct.grammar import CALENDAR, PATTERNS, STATES, Kind, kind_of, well_formed

if TYPE_CHECKING:
    from cedana_poc.sacct.dialect import Dialect

MOST_SURPLUS = 20_000
"""Delimiters too many, beyond which a line is no row of sacct's."""

_MORE = {
    kind: re.compile(pattern, re.ASCII)
    for kind, pattern in {
        Kind.ID: r"[\d\-%:.]+\]?",
        Kind.TRES: r"[A-Za-z][^\s=,]*=\S*",
        Kind.NODES: r"[\w.\-\[\]]+",
        Kind.LIST: r"[\w.:;()+@#%* \-]+",
    }.items()
}
"""Kinds whose values hold commas, as in `123_[1,5-7]`, and what may follow one."""

TELLING = (Kind.ID, Kind.STATE)
"""Kinds that every row has a value of, which looks like no other."""

_ANY_STATE = re.compile(rf"({'|'.join(STATES)})( by \S+)?", re.ASCII)

_CLOCK = re.compile(rf"{CALENDAR}|\d{{9,11}}|(\d+-)?\d+:\d\d:\d\d|\d+:\d+", re.ASCII)
"""Time stamps, durations and exit codes."""


class Walk(Protocol):
    """A logical row read line by line.

    Attributes:
        complete: the lines so far may be a whole row.
        goes_on: they may be the beginning of one, broken by a newline in a text column.
        cut: they may be the beginning of one that ends anywhere.
    """

    complete: bool
    goes_on: bool
    cut: bool

    def add(self, text: str) -> None:
        """Take the next line."""


class Layout(Protocol):
    """Where the columns of a row are."""

    kinds: tuple[Kind, ...]

    def parse(self, text: str) -> list[str] | None:
        """The fields of a row, if it is one beyond doubt."""

    def split(self, text: str) -> list[str] | None:
        """The fields of a row whose count of delimiters is known to be right."""

    def walk(self) -> Walk:
        """A row that no line has been read of."""

    def begins(self, text: str) -> bool:
        """Whether typed columns say that a row begins with this line."""

    def holds_a_state(self, text: str) -> bool:
        """Whether a line holds a state of Slurm between delimiters."""

    def resembles(self, text: str) -> bool:
        """Whether a line holds so much of a row that it is no mere text."""

    def why_not(self, text: str) -> str:
        """What keeps a line from being a row."""


def layout(dialect: Dialect) -> Layout:
    """The layout of a dialect's rows."""
    kinds = tuple(map(kind_of, dialect.columns))
    if dialect.shape == "fixed":
        return _FixedWidth(kinds, dialect.spans, dialect.trailing)
    return _Delimited(kinds, dialect.delimiter, dialect.trailing)


class _FixedWidth:
    """Columns by byte positions; a text that was cut off ends in `+`."""

    def __init__(
        self, kinds: tuple[Kind, ...], spans: tuple[tuple[int, int], ...], padded: bool
    ) -> None:
        self.kinds = kinds
        self.width = spans[-1][1]
        self.least = spans[-1][0] if padded else spans[0][1]
        self._spans = spans
        self._gaps = [a - 1 for a, _ in spans[1:]]

    def parse(self, text: str) -> list[str] | None:
        raw = text.encode("utf-8", "surrogateescape")
        if not self.least < len(raw) <= self.width + 1:
            return None
        if any(raw[gap : gap + 1] not in (b" ", b"") for gap in self._gaps):
            return None
        fields = [raw[a:b].decode("utf-8", "replace").strip(" ") for a, b in self._spans]
        return fields if all(map(_cut_or_well_formed, self.kinds, fields)) else None

    def split(self, text: str) -> list[str] | None:
        return None

    def walk(self) -> Walk:
        return _FixedWalk(self)

    def begins(self, text: str) -> bool:
        first = text[self._spans[0][0] : self._spans[0][1]].strip()
        return self.kinds[0] is not Kind.FREE and _cut_or_well_formed(self.kinds[0], first)

    def holds_a_state(self, text: str) -> bool:
        return any(map(_ANY_STATE.fullmatch, text.split()))

    def resembles(self, text: str) -> bool:
        return self.begins(text)

    def why_not(self, text: str) -> str:
        return "the line does not fit the columns"


def _cut_or_well_formed(kind: Kind, value: str) -> bool:
    return value.endswith("+") or well_formed(kind, value)


class _FixedWalk:
    def __init__(self, columns: _FixedWidth) -> None:
        self._columns = columns
        self._text = ""
        self.complete = self.goes_on = self.cut = False

    def add(self, text: str) -> None:
        self._text = f"{self._text}\n{text}" if self.goes_on else text
        size = len(self._text.encode("utf-8", "surrogateescape"))
        self.complete = self._columns.parse(self._text) is not None
        self.goes_on = self.cut = size < self._columns.width and self._columns.begins(self._text)


class _Delimited:
    """Columns by delimiters.

    A set of columns is an integer: bit c + 1 stands for column c, bit 0 for none yet.
    """

    def __init__(self, kinds: tuple[Kind, ...], delimiter: str, trailing: bool) -> None:
        self.kinds = kinds
        self.delimiter = delimiter
        self.trailing = trailing
        self.last = 1 << len(kinds)
        self._masks = {kind: _mask(k is kind for k in kinds) for kind in set(kinds)}
        self.free = self._masks.get(Kind.FREE, 0)
        telling = next((c for c, kind in enumerate(kinds) if kind in TELLING), len(kinds))
        self._untold = (2 << telling) - 1
        self._lists = {k: m for k, m in self._masks.items() if k in _MORE and delimiter == ","}

    def parse(self, text: str) -> list[str] | None:
        pieces = self.split(text)
        return align(pieces, self.kinds, self.delimiter) if pieces else None

    def split(self, text: str) -> list[str] | None:
        if self.trailing:
            if not text.endswith(self.delimiter):
                return None
            text = text[: -len(self.delimiter)]
        return text.split(self.delimiter)

    def walk(self) -> _DelimitedWalk:
        return _DelimitedWalk(self)

    def begins(self, text: str) -> bool:
        walk = self.walk()
        walk.add(text)
        if walk.closed == 0 or walk.closed & self._untold:
            return False
        return walk.goes_on or walk.complete or text.count(self.delimiter) > 1

    def holds_a_state(self, text: str) -> bool:
        return any(map(_ANY_STATE.fullmatch, text.split(self.delimiter)))

    def resembles(self, text: str) -> bool:
        pieces = text.split(self.delimiter)
        has_state = self.holds_a_state(text)
        clocks = sum(map(bool, map(_CLOCK.fullmatch, pieces)))
        if 2 * len(pieces) < len(self.kinds):
            return has_state and clocks > 0
        return has_state or clocks > 2

    def why_not(self, text: str) -> str:
        pieces = text.removesuffix(self.delimiter if self.trailing else "").split(self.delimiter)
        if len(pieces) < len(self.kinds):
            return f"{len(pieces)} fields, {len(self.kinds)} columns"
        if len(pieces) > len(self.kinds):
            return f"{len(pieces)} fields, {len(self.kinds)} columns, more than one way to cut them"
        for number, (kind, piece) in enumerate(zip(self.kinds, pieces, strict=True), start=1):
            if not well_formed(kind, piece):
                return f"{piece[:40]!r} in column {number} is no {kind.value}"
        return "not a row"

    def after(self, columns: int, piece: str) -> int:
        """The columns that `piece` may stand in, if the piece before it stood in `columns`."""
        entered, reached = columns << 1, columns & self.free
        for kind, mask in self._masks.items():
            if entered & mask and well_formed(kind, piece):
                reached |= entered & mask
        for kind, mask in self._lists.items():
            if columns & mask and _MORE[kind].fullmatch(piece):
                reached |= columns & mask
        return reached


def _mask(flags: Iterable[bool]) -> int:
    return sum(2 << place for place, flag in enumerate(flags) if flag)


class _DelimitedWalk:
    """Follows every way to cut the row at once, as the set of columns reached so far.

    The last piece of a line is open: a newline and more may follow it, in a text column only.
    """

    def __init__(self, columns: _Delimited) -> None:
        self._columns = columns
        self.closed = 1
        self._lines = 0
        self.complete = self.goes_on = self.cut = False

    def add(self, text: str) -> None:
        columns, free = self._columns, self._columns.free
        *closed, last = text.split(columns.delimiter)
        broken, self._lines = self._lines > 0, self._lines + 1
        for piece in closed:
            before = self.closed
            self.closed = (before | before << 1) & free if broken else columns.after(before, piece)
            broken = False
            if not self.closed:
                break
        self._conclude(last, broken=broken)

    def _conclude(self, last: str, *, broken: bool) -> None:
        columns, before = self._columns, self.closed
        self.goes_on = (before | before << 1) & columns.free != 0
        self.cut = before > 1 or (before == 1 and _cut_first(columns.kinds[0], last))
        if columns.trailing:
            self.complete = before & columns.last != 0 and last == "" and not broken
        elif broken:
            self.complete = self.goes_on and (before | before << 1) & columns.last != 0
        else:
            self.complete = columns.after(before, last) & columns.last != 0


def _cut_first(kind: Kind, piece: str) -> bool:
    """Whether a first column that was cut off could read so."""
    if kind is Kind.ID:
        return re.fullmatch(r"\d+[_+.]?", piece, re.ASCII) is not None
    return piece != "" and (kind in (Kind.FREE, Kind.WORD, Kind.LIST) or well_formed(kind, piece))


@dataclass(frozen=True, slots=True)
class _Column:
    """What may stand in one column, looked up once."""

    kind: Kind
    is_free: bool
    match: Callable[[str], object]
    may_be_empty: bool
    more: Callable[[str], object] | None
    """Matches what may follow a comma that is part of the value; None if no comma is."""

    def fits(self, piece: str) -> bool:
        return self.match(piece) is not None if piece else self.may_be_empty

    def holds_one(self, piece: str) -> bool:
        """Whether nothing but this piece can be the column's value, if it fits."""
        if self.kind is Kind.ID:
            return self.more is None or ("[" not in piece and "]" not in piece)
        return not self.is_free and self.more is None


@cache
def _columns(kinds: tuple[Kind, ...], delimiter: str) -> tuple[_Column, ...]:
    return tuple(
        _Column(
            kind,
            kind is Kind.FREE,
            PATTERNS[kind].fullmatch,
            well_formed(kind, ""),
            _MORE[kind].fullmatch if delimiter == "," and kind in _MORE else None,
        )
        for kind in kinds
    )


def align(pieces: Sequence[str], kinds: tuple[Kind, ...], delimiter: str) -> list[str] | None:
    """Give each column one piece, and surplus pieces to columns that may hold the delimiter.

    Returns:
        The fields; None if no way fits, or if two ways differ in a column that is not free text.
    """
    if not 0 <= len(pieces) - len(kinds) <= MOST_SURPLUS:
        return None
    return _aligned(pieces, _columns(kinds, delimiter), delimiter)


def _aligned(pieces: Sequence[str], columns: Sequence[_Column], delimiter: str) -> list[str] | None:
    """What is certain from either side, and round the state, leaves less to try."""
    surplus = len(pieces) - len(columns)
    if surplus == 0:
        fit = all(column.fits(piece) for column, piece in zip(columns, pieces, strict=True))
        return list(pieces) if fit else None
    left = _certain(columns, pieces)
    right = _certain(columns[left:][::-1], pieces[::-1])
    if surplus < 0 or left + right == len(columns):
        return None
    first, last = list(pieces[:left]), list(pieces[len(pieces) - right :])
    pieces, columns = pieces[left : len(pieces) - right], columns[left : len(columns) - right]
    inner = _round_state(pieces, columns, delimiter, surplus)
    return [*first, *inner, *last] if inner else None


def _round_state(
    pieces: Sequence[str], columns: Sequence[_Column], delimiter: str, surplus: int
) -> list[str] | None:
    state = next((c for c, column in enumerate(columns) if column.kind is Kind.STATE), None)
    if state is not None:
        fitting = [p for p in range(state, state + surplus + 1) if columns[state].fits(pieces[p])]
        if len(fitting) == 1:
            place = fitting[0]
            before = _aligned(pieces[:place], columns[:state], delimiter)
            after = _aligned(pieces[place + 1 :], columns[state + 1 :], delimiter)
            return None if before is None or after is None else [*before, pieces[place], *after]
    table = _Alignments(pieces, columns, delimiter, surplus)
    return table.fields() if table.agree() else None


def _certain(columns: Sequence[_Column], pieces: Sequence[str]) -> int:
    """How many columns at the beginning have their piece for certain."""
    for place, (column, piece) in enumerate(zip(columns, pieces, strict=False)):
        if not column.holds_one(piece) or not column.fits(piece):
            return place
    return len(columns)


class _Alignments:
    """All ways to spread `surplus` extra pieces, by dynamic programming over (column, shift).

    `begins[c]` holds the shifts s for which the first c columns fit the first c + s pieces;
    `ends[c]` those of them from which the other columns fit all the rest.
    """

    def __init__(
        self, pieces: Sequence[str], columns: Sequence[_Column], delimiter: str, surplus: int
    ) -> None:
        self._pieces = pieces
        self._columns = columns
        self._delimiter = delimiter
        self._surplus = surplus
        self._known: dict[tuple[int, int], Sequence[int]] = {}
        self._continuing: dict[tuple[Kind, int], bool] = {}
        self._ends: list[set[int]] = []
        begins = [{0}]
        for column in range(len(columns)):
            begins.append(self._forward(column, begins[-1]))
            if not begins[-1]:
                return
        ends = [{surplus} & begins[-1]]
        for column in reversed(range(len(columns))):
            ends.append(self._backward(column, begins[column], ends[-1]))
        self._ends = ends[::-1]

    def _forward(self, column: int, shifts: set[int]) -> set[int]:
        if self._columns[column].is_free:
            return set(range(min(shifts), self._surplus + 1))
        reached: set[int] = set()
        for shift in shifts:
            reached.update(self._reach(column, shift))
        return reached

    def _backward(self, column: int, shifts: set[int], ends: set[int]) -> set[int]:
        if not ends:
            return ends
        if self._columns[column].is_free:
            furthest = max(ends)
            return {shift for shift in shifts if shift <= furthest}
        return {s for s in shifts if not ends.isdisjoint(self._reach(column, s))}

    def _reach(self, column: int, shift: int) -> Sequence[int]:
        """The shifts after a column that is not free text, if `shift` is the one before it."""
        reach = self._known.get((column, shift))
        if reach is None:
            reach = self._known[column, shift] = self._found_reach(column, shift)
        return reach

    def _found_reach(self, column: int, shift: int) -> Sequence[int]:
        this, place = self._columns[column], column + shift
        piece = self._pieces[place]
        if not this.fits(piece):
            return ()
        if this.more is None or not piece:
            return (shift,)
        longest = range(shift, shift + self._list_length(this, place, shift))
        if this.kind in (Kind.ID, Kind.NODES):
            depths = self._depths(place)
            closed = [after for after, depth in zip(longest, depths, strict=False) if depth == 0]
            return closed[: 1 if this.kind is Kind.ID else None] or longest
        return longest

    def _depths(self, place: int) -> Iterator[int]:
        """How many brackets are open after each piece, as in `123_[1`, `5-7]`."""
        return accumulate(p.count("[") - p.count("]") for p in islice(self._pieces, place, None))

    def _list_length(self, column: _Column, place: int, shift: int) -> int:
        """How many pieces the longest list may have that begins here; any shorter one fits too."""
        is_tres = column.kind is Kind.TRES
        names = {_tres_name(self._pieces[place])}
        for more in range(1, self._surplus - shift + 1):
            if not self._continues(column, place + more):
                return more
            if is_tres:
                name = _tres_name(self._pieces[place + more])
                if name in names:
                    return more
                names.add(name)
        return self._surplus - shift + 1

    def _continues(self, column: _Column, place: int) -> bool:
        """Whether a piece may be part of a list that began before it."""
        known = self._continuing.get((column.kind, place))
        if known is None:
            known = column.more is not None and column.more(self._pieces[place]) is not None
            self._continuing[column.kind, place] = known
        return known

    def _value(self, column: int, shift: int, after: int) -> str:
        return self._delimiter.join(self._pieces[column + shift : column + after + 1])

    def _ways(self, column: int) -> Iterator[tuple[int, int]]:
        """The (shift before, shift after) of a column that is not free text in rows that fit."""
        for shift in self._ends[column]:
            for after in self._reach(column, shift):
                if after in self._ends[column + 1]:
                    yield shift, after

    def _is_certain(self, column: int) -> bool:
        before, after = self._ends[column], self._ends[column + 1]
        if self._columns[column].is_free or len(before) == len(after) == 1:
            return True
        ways = self._ways(column)
        first = self._value(column, *next(ways))
        return all(self._value(column, *way) == first for way in ways)

    def agree(self) -> bool:
        """Whether some way fits, and all that fit give the same value to every typed column."""
        if not self._ends or 0 not in self._ends[0]:
            return False
        return all(map(self._is_certain, range(len(self._columns))))

    def fields(self) -> list[str]:
        """The way that gives surplus pieces to the earliest text that may hold them and no path."""
        shift, fields = 0, []
        for column, this in enumerate(self._columns):
            ends = self._ends[column + 1]
            if not this.is_free:
                after = max(ends.intersection(self._reach(column, shift)))
            elif self._pieces[column + shift].startswith("/"):
                after = min(end for end in ends if end >= shift)
            else:
                after = max(ends)
            fields.append(self._value(column, shift, after))
            shift = after
        return fields


def _tres_name(item: str) -> str:
    return item.partition("=")[0]
