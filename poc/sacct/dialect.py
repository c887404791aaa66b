"""Which dialect of sacct output a file is written in, decided from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cedana_poc.errors import UserError
from cedana_poc.sacct.grammar import KINDS, canonical, kind_of, well_formed

SHAPES = Literal["delimited", "quoted", "fixed", "json"]
RECOMMENDED = (
    "sacct -a -X -D -P --noconvert --delimiter=$'\\x1f' -S START -E END -o "
    "Cluster,JobIDRaw,JobID,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,"
    "ElapsedRaw,Suspended,TimelimitRaw,NNodes,NCPUS,AllocTRES,ReqTRES,Flags,NodeList,Reservation,"
    "WorkDir,JobName"
)
"""The export that avoids every trap this reader knows."""

_DELIMITERS = ("|", "\x1f", "\t", ";|;", "^|^", "☃", ";", ",")
_BOM = b"\xef\xbb\xbf"
_MANGLED = {
    "jobid": re.compile(r"\d+([.,]\d+)?E\+?\d+|\d{1,3}([,.]\d{3})+", re.ASCII),
    "elapsed": re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}.*|\d+:\d\d:\d\d [AP]M|\d+[.,]\d{4,}"),
    "start": re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}( .*)?|\d{5}[.,]\d+|#+"),
}
_MANGLED["jobidraw"] = _MANGLED["jobid"]
_MANGLED["timelimit"] = _MANGLED["elapsed"]
_MANGLED["end"] = _MANGLED["submit"] = _MANGLED["start"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to cut a file into fields.

    Attributes:
        shape: the family: one delimiter throughout, CSV with quotes, fixed width, or JSON.
        columns: canonical field names, in file order.
        delimiter: between fields; empty for fixed width and JSON.
        trailing: every line ends with a delimiter (`sacct -p`).
        crlf: lines end with CR LF.
        skip: bytes before the first row (byte order mark, header, dashes).
        header: the header line as it stands, to recognise it when files were concatenated.
        spans: byte range of each column, fixed width only.
    """

    shape: SHAPES
    columns: tuple[str, ...]
    delimiter: str = ""
    trailing: bool = False
    crlf: bool = False
    skip: int = 0
    header: bytes = b""
    spans: tuple[tuple[int, int], ...] = ()

    def describe(self) -> str:
        """One phrase for reports, such as `parsable2, delimiter '|', header, 26 columns`."""
        if self.shape == "json":
            return "sacct --json"
        count = f"{len(self.columns)} columns"
        if self.shape == "fixed":
            return f"fixed width, {count}"
        form = "CSV with quotes" if self.shape == "quoted" else "parsable2"
        form = "parsable" if self.trailing else form
        head = "header" if self.header else "no header"
        return f"{form}, delimiter {self.delimiter!r}, {head}, {count}"


def sniff(sample: bytes, named: Sequence[str] = (), where: str = "") -> Dialect:
    """The dialect of a file that starts with `sample` (whole lines).

    Args:
        sample: the first few hundred kilobytes, decompressed.
        named: column names given by the user, for files without a header.
        where: the file's name, for error messages.

    Raises:
        UserError: not sacct output, no header and no names, or a column missing that
            nothing can be computed without.
    """
    _refuse_foreign(sample, where)
    start = len(_BOM) if sample.startswith(_BOM) else 0
    start += len(sample[start:]) - len(sample[start:].lstrip(b"\r\n"))
    body = sample[start:]
    if body.lstrip()[:1] == b"{":
        return Dialect("json", ())
    lines = body.split(b"\n")
    crlf = lines[0].endswith(b"\r")
    first = lines[0].rstrip(b"\r")
    if len(lines) > 1 and re.fullmatch(rb"-[- ]*", lines[1].rstrip()):
        dialect = _fixed(first, lines[1], start + len(lines[0]) + len(lines[1]) + 2, crlf)
    else:
        dialect = _headed(lines, start, crlf) or _headless(lines, named, start, crlf, where)
    _check_names(dialect, named, where)
    _refuse_mangled(dialect, lines, where)
    return dialect


def _refuse_foreign(sample: bytes, where: str) -> None:
    if not sample.strip():
        raise UserError("the file is empty", where=where, hint="export it again with sacct -P")
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(
            "the file is UTF-16 text", where=where, hint="save it as UTF-8, or redirect with cmd"
        )
    if sample.startswith(b"PK\x03\x04"):
        raise UserError(
            "this is a spreadsheet or zip file, not sacct output",
            where=where,
            hint="give the text file that sacct wrote",
        )
    if b"\0" in sample:
        raise UserError(
            "this is a binary file, not sacct output",
            where=where,
            hint="give text, gzip or zstd as written by sacct -P",
        )
    if re.match(rb"\s*<(!doctype|html|\?xml|head|body)", sample.lstrip(_BOM)[:200], re.IGNORECASE):
        raise UserError(
            "this is an HTML or XML page, not sacct output",
            where=where,
            hint="the download probably failed or asked for a login; fetch it again",
        )


def _names(line: str, delimiter: str) -> tuple[tuple[str, ...], bool]:
    printed = next(csv.reader([line], delimiter=delimiter)) if '"' in line else line.split(delimiter)
    trailing = len(printed) > 1 and printed[-1] == ""
    return tuple(canonical(name) for name in printed[: len(printed) - trailing]), trailing


def _headed(lines: list[bytes], start: int, crlf: bool) -> Dialect | None:
    """The dialect, if the first line is a header of sacct's field names."""
    header = lines[0].rstrip(b"\r").decode("utf-8", "replace")
    between = re.findall(r"(?<=\w)\W+(?=\w)", header)
    if not between:
        return None
    delimiter = Counter(between).most_common(1)[0][0]
    quoted = delimiter.startswith('"') and delimiter.endswith('"') and len(delimiter) > 2
    delimiter = delimiter[1:-1] if quoted else delimiter
    if '"' in header and len(delimiter) != 1:
        return None
    columns, trailing = _names(header, delimiter)
    known = sum(name in KINDS for name in columns)
    if known < 2 or known * 2 < len(columns):
        return None
    shape: SHAPES = "quoted" if quoted or _is_quoted(lines[1:], delimiter, columns) else "delimited"
    return Dialect(
        shape,
        columns,
        delimiter,
        trailing,
        crlf,
        start + len(lines[0]) + 1,
        lines[0].rstrip(b"\r"),
    )


def _is_quoted(lines: list[bytes], delimiter: str, columns: Sequence[str]) -> bool:
    """Whether rows are CSV with quotes: they come out even only when quotes are honoured."""
    if delimiter not in (",", ";", "\t", "|"):
        return False
    text = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines[:200] if line.strip()]
    if not any('"' in line for line in text):
        return False
    raw = sum(line.count(delimiter) == len(columns) - 1 for line in text)
    parsed = sum(len(row) == len(columns) for row in csv.reader(text, delimiter=delimiter))
    return parsed > raw


def _headless(
    lines: list[bytes], named: Sequence[str], start: int, crlf: bool, where: str
) -> Dialect:
    if not named:
        raise UserError(
            "the first line is no header of sacct fields",
            where=where,
            hint="name the columns in file order with --columns JobID,State,Elapsed,…",
        )
    columns = tuple(canonical(name) for name in named)
    text = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines[:100] if line.strip()]
    candidates = [d for d in (*_DELIMITERS, *_unusual(text[0])) if d in text[0]]
    best = max(candidates, key=lambda d: _evenness(text, d, len(columns)), default="")
    if not best or _evenness(text, best, len(columns)) == (0, 0):
        counts = Counter(line.count(best or "|") + 1 for line in text)
        raise UserError(
            f"--columns names {len(columns)} columns, the lines have "
            f"{counts.most_common(1)[0][0]} (delimiter {best or '|'!r})",
            where=where,
            hint="name every column of the file, in file order",
        )
    even = [line for line in text if line.count(best) == len(columns) and line.endswith(best)]
    trailing = len(even) * 2 > len(text)
    shape: SHAPES = "quoted" if _is_quoted(lines, best, columns) else "delimited"
    return Dialect(shape, columns, best, trailing, crlf, start)


def _unusual(line: str) -> list[str]:
    """Separators of up to three characters that no field of sacct holds, as they stand in a line."""
    runs = re.findall(r"[^\w\s.,:;=/+\-\[\]()%|]{1,3}", line)
    return [run for run, _ in Counter(runs).most_common(3)]


def _evenness(text: list[str], delimiter: str, columns: int) -> tuple[int, int]:
    """How many lines have the right number of delimiters, and how many at least as many."""
    counts = [line.count(delimiter) for line in text]
    exact = sum(
        n == columns - 1 or (n == columns and line.endswith(delimiter))
        for n, line in zip(counts, text, strict=True)
    )
    holds_commas = delimiter == ","
    enough = sum(n >= columns for n in counts) if holds_commas else 0
    return (exact, enough)


def _fixed(header: bytes, dashes: bytes, skip: int, crlf: bool) -> Dialect:
    spans = tuple((m.start(), m.end()) for m in re.finditer(rb"-+", dashes))
    printed = [header[a:b].decode("utf-8", "replace").strip() for a, b in spans]
    return Dialect(
        "fixed", tuple(_completed(p) for p in printed), "", False, crlf, skip, header, spans
    )


def _completed(printed: str) -> str:
    """A header name that fixed width has cut: `TimelimitR` -> `timelimitraw`."""
    name = canonical(printed)
    if name in KINDS:
        return name
    fitting = [known for known in KINDS if known.startswith(name)] if len(name) > 5 else []
    return fitting[0] if len(fitting) == 1 else name


def _check_names(dialect: Dialect, named: Sequence[str], where: str) -> None:
    columns = dialect.columns
    given = tuple(canonical(name) for name in named)
    if dialect.header and given and given != columns:
        raise UserError(
            "--columns differs from the header in the file",
            where=where,
            hint="leave --columns out; the header is used",
        )
    twice = [name for name, n in Counter(columns).items() if n > 1 and name in KINDS]
    if twice:
        raise UserError(
            f"column {twice[0]} is named twice", where=where, hint="name each column once"
        )
    if "state" not in columns:
        raise UserError(
            "no State column: nothing can be said about how jobs ended",
            where=where,
            hint="export again with State among the fields",
        )
    has = set(columns)
    if not has & {"elapsed", "elapsedraw"} and not {"start", "end"} <= has:
        raise UserError(
            "no usable time column: neither Elapsed, ElapsedRaw, nor Start with End",
            where=where,
            hint="export again with ElapsedRaw among the fields",
        )


def _refuse_mangled(dialect: Dialect, lines: list[bytes], where: str) -> None:
    """Refuse a file that a spreadsheet has rewritten: its ids and times cannot be got back."""
    if dialect.shape not in ("delimited", "quoted"):
        return
    watched = [(i, name) for i, name in enumerate(dialect.columns) if name in _MANGLED]
    text = (line.rstrip(b"\r").decode("utf-8", "replace") for line in lines[:2000])
    if dialect.shape == "quoted":
        rows = enumerate(csv.reader(text, delimiter=dialect.delimiter), start=1)
    else:
        rows = enumerate((line.split(dialect.delimiter) for line in text), start=1)
    for number, row in rows:
        if len(row) < len(dialect.columns):
            continue
        for index, name in watched:
            value = row[index].strip()
            if not well_formed(kind_of(name), value) and _MANGLED[name].fullmatch(value):
                raise UserError(
                    f"line {number}, column {name}: {value!r} was rewritten by a spreadsheet",
                    where=where,
                    hint="ids and times cannot be got back; use the file sacct wrote, unopened",
                )
