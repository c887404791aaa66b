"""Well-formed lines, found fast: delimiters are counted on every line before a parser sees one.

A block of whole lines goes in; out come the allocation rows it holds, untouched and ready for a
CSV parser, the names of its steps, and every line that needs a closer look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cedana_poc.sacct.dialect import Dialect
from cedana_poc.sacct.repair import Line

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

STEP_DELIMITER = "\x1f"
"""Stands between id and name in `Scanned.step_names`."""

_NEWLINE, _RETURN, _DOT = b"\n\r."
_USUAL_ID, _LONGEST_ID = 16, 48
"""Bytes in which a job id usually ends, and in which the dot of any step's id stands."""

_NEAR = 32
"""Bytes from the start or the end of a line in which the name of a step usually stands."""

_LONGEST_LINE = 1 << 16
"""Bytes in which a sound line ends."""

_TELLING = np.zeros(256, np.bool_)
_TELLING[list(b"0123456789i")] = True
"""First bytes of the suffixes of steps whose name tells something: `.0` and `.interactive`."""

_FIRST_BYTES = {
    "jobid": b"0123456789",
    "jobidraw": b"0123456789",
    "state": b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "elapsed": b"0123456789I",
    "elapsedraw": b"0123456789",
    "start": b"0123456789UNI",
    "end": b"0123456789UNI",
}
"""What a value may begin with; a field that begins otherwise is part of a broken row."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """What one block held.

    Attributes:
        lines: physical lines, blank ones too.
        allocations: bytes of the well-formed rows that are no steps, whole lines.
        rows: how many rows `allocations` holds.
        steps: well-formed step rows passed over.
        step_names: `id<STEP_DELIMITER>name` lines of numbered and interactive steps.
        doubtful: lines for the joiner, in order: all that are not well formed, their neighbours,
            and the first and the last line of the block.
    """

    lines: int
    allocations: bytes
    rows: int
    steps: int
    step_names: bytes
    doubtful: list[Line]


class Scanner:
    """Scans the blocks of one delimited file.

    Args:
        careful: doubt also the lines whose fields begin as no value of their column does. It
            takes a broken row with the right number of delimiters to need this.
    """

    def __init__(self, dialect: Dialect, *, careful: bool) -> None:
        columns = dialect.columns
        self._careful = careful
        self._delimiter = ord(dialect.delimiter)
        self._per_line = len(columns) - 1 + dialect.trailing
        self._id = next((columns.index(c) for c in ("jobid", "jobidraw") if c in columns), None)
        self._name = columns.index("jobname") if "jobname" in columns else None
        self._first_bytes = [
            (columns.index(name), self._allowed(first))
            for name, first in _FIRST_BYTES.items()
            if name in columns
        ]
        self._scratch = np.empty(0, np.bool_)

    def _allowed(self, first: bytes) -> Flags:
        """A table by byte: may a field of this column begin so, or be empty?"""
        table = np.zeros(256, np.bool_)
        table[list(first)] = True
        table[self._delimiter] = table[_NEWLINE] = True
        return table

    def __call__(self, block: memoryview, first_line: int) -> Scanned:
        """Scan whole lines; `first_line` is the number of the block's first line in the file."""
        a = np.frombuffer(block, np.uint8)
        ends, odd, ascii_only = self._newlines(a)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
        sound = self._complete(a, starts)
        sound &= ends - starts < _LONGEST_LINE
        sound[np.searchsorted(ends, odd)] = False
        if not ascii_only:
            sound[_bad_utf8(block, starts, ends)] = False
        suffixes = self._suffixes(a, starts, ends, sound)
        steps = suffixes != 0
        while True:
            doubtful = _with_neighbours(~sound)
            kept = np.flatnonzero(~doubtful & ~steps)
            allocations = _join(block, starts[kept], ends[kept])
            implausible = self._implausible(allocations) if self._careful else ()
            if not len(implausible):
                break
            sound[kept[implausible]] = False
        steps &= ~doubtful
        telling = np.flatnonzero(steps & _TELLING[suffixes])
        return Scanned(
            lines=len(ends),
            allocations=allocations,
            rows=len(kept),
            steps=int(steps.sum()),
            step_names=self._step_names(a, starts[telling], ends[telling]),
            doubtful=[
                Line(first_line + i, bytes(block[starts[i] : ends[i]]), bool(sound[i]))
                for i in np.flatnonzero(doubtful).tolist()
            ],
        )

    def _room(self, size: int) -> Flags:
        """A scratch array: fresh memory for every block costs more than the scan."""
        if len(self._scratch) < size:
            self._scratch = np.empty(size, np.bool_)
        return self._scratch[:size]

    def _newlines(self, a: Bytes) -> tuple[Positions, Positions, bool]:
        """Where the newlines are, where bytes that would break a CSV parser, and if all is ASCII.

        One pass finds all three: as a signed number, a byte beyond ASCII is below zero.
        """
        low = np.flatnonzero(np.less(a.view(np.int8), _RETURN + 1, out=self._room(len(a))))
        values = a[low]
        odd = low[(values == _RETURN) | (values == 0)]
        return low[values == _NEWLINE], odd, bool(values.max(initial=0) < 128)

    def _complete(self, a: Bytes, starts: Positions) -> Flags:
        """Which lines have their delimiters, all of them and no more.

        The quick count is modulo 256. Lines that all agree with it, and together have as many as
        they should, have no 256 too many anywhere. The exact one is modulo 65,536, which no sound
        line is long enough to reach.
        """
        marks = np.equal(a, self._delimiter, out=self._room(len(a))).view(np.uint8)
        if self._per_line < 256 and np.count_nonzero(marks) == self._per_line * len(starts):
            complete: Flags = np.add.reduceat(marks, starts, dtype=np.uint8) == self._per_line
            if complete.all():
                return complete
        exact: Flags = np.add.reduceat(marks, starts, dtype=np.uint16) == self._per_line
        return exact

    def _suffixes(self, a: Bytes, starts: Positions, ends: Positions, sound: Flags) -> Bytes:
        """For each line, the byte that follows the dot in its job id; 0 for one that is no step."""
        suffixes = np.zeros(len(starts), np.uint8)
        if self._id == 0:
            suffixes[sound] = self._after_dot(a, starts[sound], _USUAL_ID)
        elif self._id is not None:
            rows = self._rows(_join(a.data, starts[sound], ends[sound]))
            suffixes[sound] = self._after_dot(rows.a, rows.column(self._id)[0], _USUAL_ID)
        return suffixes

    def _after_dot(self, a: Bytes, starts: Positions, width: int) -> Bytes:
        """The byte after a dot that stands before the first delimiter, or 0."""
        ids = _windows(a, starts, width)
        rows = np.arange(len(ids))
        first = ((ids == _DOT) | (ids == self._delimiter))[:, :-1].argmax(axis=1)
        found = ids[rows, first]
        after = np.where(found == _DOT, ids[rows, first + 1], np.uint8(0))
        longer = (found != _DOT) & (found != self._delimiter)
        if width < _LONGEST_ID and longer.any():
            after[longer] = self._after_dot(a, starts[longer], _LONGEST_ID)
        return after

    def _rows(self, data: bytes) -> _Rows:
        """Well-formed rows, taken apart."""
        a = np.frombuffer(data, np.uint8)
        marks = np.flatnonzero(np.equal(a, self._delimiter, out=self._room(len(a))))
        ends = np.flatnonzero(np.equal(a, _NEWLINE, out=self._room(len(a))))
        return _Rows(a, ends, marks.reshape(-1, self._per_line))

    def _implausible(self, allocations: bytes) -> Positions:
        """Indices of rows in which some field begins as no value of its column does."""
        rows = self._rows(allocations)
        plausible = np.ones(len(rows.ends), np.bool_)
        for column, allowed in self._first_bytes:
            plausible &= allowed[rows.a[rows.column(column)[0]]]
        return np.flatnonzero(~plausible)

    def _step_names(self, a: Bytes, starts: Positions, ends: Positions) -> bytes:
        """Id and name of numbered steps, whose name is the program's, and of `.interactive`."""
        if self._id is None or self._name is None or not len(starts):
            return b""
        ids = self._near(a, starts, ends, self._id)
        names = self._near(a, starts, ends, self._name)
        if not ids or not names:
            rows = self._rows(_join(a.data, starts, ends))
            a, ids, names = rows.a, rows.column(self._id), rows.column(self._name)
        starts = np.column_stack((ids[0], names[0])).ravel()
        ends = np.column_stack((ids[1], names[1])).ravel() + 1
        picked = _gather(a, starts, ends)
        closing = (ends - starts).cumsum() - 1
        picked[closing[0::2]] = ord(STEP_DELIMITER)
        picked[closing[1::2]] = _NEWLINE
        return picked.tobytes()

    def _near(
        self, a: Bytes, starts: Positions, ends: Positions, column: int
    ) -> tuple[Positions, Positions] | None:
        """Start and end of one field in every row, if it stands near the start or end of each."""
        before, after = column, self._per_line - column
        from_start = before < after
        if not from_start and ends[0] < _NEAR:
            return None
        windows = _windows(a, starts if from_start else ends - _NEAR, _NEAR)
        marks = np.flatnonzero(windows == self._delimiter)
        corners = np.arange(len(starts) + 1) * _NEAR
        bounds = np.searchsorted(marks, corners)
        if np.diff(bounds).min() < min(before, after) + 1:
            return None
        if from_start:
            shift, firsts = starts - corners[:-1], bounds[:-1]
            opening = marks[firsts + before - 1] + shift + 1 if before else starts
            return opening, marks[firsts + before] + shift
        shift, lasts = ends - corners[1:], bounds[1:] - 1
        closing = marks[lasts - after + 1] + shift if after else ends
        return marks[lasts - after] + shift + 1, closing


@dataclass(frozen=True, slots=True)
class _Rows:
    """Well-formed rows: their bytes, their newlines, their delimiters (one row a line)."""

    a: Bytes
    ends: Positions
    marks: npt.NDArray[np.int64]

    def column(self, index: int) -> tuple[Positions, Positions]:
        """Start and end of one field in every row."""
        if index == 0:
            starts = np.concatenate((np.zeros(1, np.int64), self.ends[:-1] + 1))[: len(self.ends)]
        else:
            starts = self.marks[:, index - 1] + 1
        return starts, self.marks[:, index] if index < self.marks.shape[1] else self.ends


def _gather(a: Bytes, starts: Positions, ends: Positions) -> Bytes:
    """The bytes of many short ranges, one after the other."""
    sizes = ends - starts
    shift = starts - (sizes.cumsum() - sizes)
    gathered: Bytes = a[np.arange(int(sizes.sum())) + np.repeat(shift, sizes)]
    return gathered


def _windows(a: Bytes, starts: Positions, width: int) -> Bytes:
    """So many bytes from each start on; shape (starts, width). The starts ascend."""
    fit = int(np.searchsorted(starts, len(a) - width, "right"))
    windows = np.empty((len(starts), width), np.uint8)
    if fit:
        every = np.ndarray(len(a) - width + 1, f"V{width}", a.data, strides=(1,))
        windows[:fit] = every[starts[:fit]].view(np.uint8).reshape(fit, width)
    tail = starts[fit:, None] + np.arange(width)
    windows[fit:] = a[np.minimum(tail, len(a) - 1)]
    return windows


def _join(block: memoryview, starts: Positions, ends: Positions) -> bytes:
    """Lines with their newlines, as one piece of bytes; adjacent lines are copied at once."""
    if not len(starts):
        return b""
    breaks = np.flatnonzero(starts[1:] != ends[:-1] + 1) + 1
    firsts = starts[np.concatenate((np.zeros(1, np.int64), breaks))].tolist()
    lasts = ends[np.concatenate((breaks - 1, np.array([len(ends) - 1])))].tolist()
    return b"".join([block[a : b + 1] for a, b in zip(firsts, lasts, strict=True)])


def _with_neighbours(flags: Flags) -> Flags:
    """Flags, the lines before and after each, and both ends of the block."""
    wide = flags.copy()
    wide[1:] |= flags[:-1]
    wide[:-1] |= flags[1:]
    wide[[0, -1]] = True
    return wide


def _bad_utf8(block: memoryview, starts: Positions, ends: Positions) -> list[int]:
    """Indices of the lines that are not UTF-8."""
    try:
        str(block, "utf-8")
    except UnicodeDecodeError:
        return [i for i in range(len(ends)) if not _is_utf8(block[starts[i] : ends[i]])]
    return []


def _is_utf8(line: memoryview) -> bool:
    try:
        str(line, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
