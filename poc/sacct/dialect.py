"""Which dialect of sacct output a file is written in, decided from its first lines."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cedana_poc.errors import UserError
from cedana_poc.sacct.align import align
from cedana_poc.sacct.grammar import KINDS, Kind, canonical, kind_of, well_formed

SHAPES = Literal["delimited", "quoted", "fixed", "json"]
RECOMMENDED = (
    "sacct -a -X -D -P --noconvert --delimiter=$'\\x1f' -S START -E END -o "
    "Cluster,JobIDRaw,JobID,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,"
    "ElapsedRaw,Suspended,TimelimitRaw,NNodes,NCPUS,AllocTRES,ReqTRES,Flags,NodeList,Reservation,"
    "WorkDir,JobName"
)
"""The export that avoids every trap this reader knows."""

_DELIMITERS = ("|", "\x1f", "\t", ";|;", "^|^", "☃", ";", ",")
BOM = b"\xef\xbb\xbf"
_FIRST = 200
"""Bytes at the start that tell what a file is."""

_BEFORE = re.compile(
    rb"\A(?:\xef\xbb\xbf)?(?:[\r\n]"
    rb"|(?:\S*sacct|slurm\w*: (?:error|warning|fatal|info)|-?\w*sh: (?:line \d+: )?\S*sacct): "
    rb"[^\n]*\n)*"
)
"""What may stand before the header: a byte order mark, blank lines, and what sacct, or the shell
that did not find it, said on standard error."""

_LONGEST_QUOTE = 200
"""Characters of a message that are quoted."""

_NUMBER = r"\d+([.,]\d+)?E\+?\d+|\d{1,3}([,.]\d{3})+"
_DAY = r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}"
_MANGLED = {
    name: re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern, names in {
        _NUMBER: "jobid jobidraw timelimitraw nnodes allocnodes ncpus alloccpus",
        rf"{_NUMBER}|{_DAY}.*|\d+:\d\d:\d\d [AP]M|\d+[.,]\d{{4,}}": "elapsed timelimit elapsedraw",
        rf"{_NUMBER}|{_DAY}( .*)?|\d{{5}}[.,]\d+|#+": "submit start end",
    }.items()
    for name in names.split()
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to cut a file into fields.

    Attributes:
        shape: the family: one delimiter throughout, CSV with quotes, fixed width, or JSON.
        columns: canonical field names, in file order.
        delimiter: between fields; empty for fixed width and JSON.
        trailing: every line ends with a delimiter (`sacct -p`), or with the space that follows
            each column of fixed width.
        crlf: lines end with CR LF.
        skip: bytes before the first row (byte order mark, header, dashes).
        lines_skipped: lines in those bytes.
        header: the header line as it stands, to recognise it when files were concatenated.
        spans: byte range of each column, fixed width only.
    """

    shape: SHAPES
    columns: tuple[str, ...]
    delimiter: str = ""
    trailing: bool = False
    crlf: bool = False
    skip: int = 0
    lines_skipped: int = 0
    header: bytes = b""
    spans: tuple[tuple[int, int], ...] = ()

    def describe(self) -> str:
        """One phrase for reports, such as `parsable2, delimiter '|', header, 26 columns`."""
        if self.shape == "json":
            return "sacct --json"
        count = f"{len(self.columns)} columns"
        if self.shape == "fixed":
            return f"fixed width, {count}"
        form = "parsable" if self.trailing else "parsable2"
        form = "CSV with quotes" if self.shape == "quoted" else form
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
    body = _BEFORE.sub(b"", sample, count=1)
    start = len(sample) - len(body)
    said = _quoted(sample[:start].removeprefix(BOM))
    if said and not body.strip():
        raise UserError(
            f"no output of sacct but the message {said}", where=where, hint="export it again"
        )
    if body.lstrip()[:1] == b"{":
        return Dialect("json", (), skip=start)
    lines = body.split(b"\n")
    crlf = lines[0].endswith(b"\r")
    first = lines[0].rstrip(b"\r")
    if len(lines) > 1 and re.fullmatch(rb"-[- ]*", lines[1].rstrip()):
        dialect = _fixed(first, lines[1], start + len(lines[0]) + len(lines[1]) + 2, crlf)
    else:
        dialect = _headed(lines, start, crlf) or _headless(lines, named, start, crlf, where, said)
    _check_names(dialect, named, where)
    _refuse_mangled(dialect, lines, 1 + sample[:start].count(b"\n"), where)
    return replace(dialect, lines_skipped=sample[: dialect.skip].count(b"\n"))


def _quoted(messages: bytes) -> str:
    """The first of some lines, quoted; nothing if all are blank."""
    first = next(iter(_text(messages.split(b"\n"))), "")
    return repr(first[:_LONGEST_QUOTE]) if first else ""


def _refuse_foreign(sample: bytes, where: str) -> None:
    if not sample.removeprefix(BOM).strip():
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
    if b"\0" in sample[:_FIRST] or sample.count(b"\0") * 1000 > len(sample):
        raise UserError(
            "this is a binary file, not sacct output",
            where=where,
            hint="give text, gzip or zstd as written by sacct -P",
        )
    if re.match(rb"\s*<[!?a-z]", sample.removeprefix(BOM)[:_FIRST], re.IGNORECASE):
        raise UserError(
            "this is an HTML or XML page, not sacct output",
            where=where,
            hint="the download probably failed or asked for a login; fetch it again",
        )


def _names(line: str, delimiter: str) -> tuple[tuple[str, ...], bool]:
    printed = next(_unquoted([line], delimiter), []) if '"' in line else line.split(delimiter)
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
        header=lines[0].rstrip(b"\r"),
    )


def header_names(printed: Sequence[str]) -> tuple[str, ...] | None:
    """The canonical names that a line of fields holds, if it holds nothing but names of fields."""
    if printed and printed[-1] == "":
        printed = printed[:-1]
    if len(printed) < 2 or canonical(printed[0]) not in KINDS:
        return None
    names = tuple(map(canonical, printed))
    return names if all(name in KINDS for name in names) else None


def other_header(number: int, where: str) -> UserError:
    """The error for a header with other columns in the midst of a file."""
    return UserError(
        f"line {number:,} is the header of another export, with other columns",
        where=where,
        hint=f"put what begins there into a file of its own (tail -n +{number}), and give both",
    )


def _is_quoted(lines: list[bytes], delimiter: str, columns: Sequence[str]) -> bool:
    """Whether rows are CSV with quotes: more of them read well so, or quotes are doubled."""
    if delimiter not in (",", ";", "\t", "|"):
        return False
    text = _text(lines[:200])
    if not any('"' in line for line in text):
        return False
    plain = sum(_reads_well(line.split(delimiter), columns) for line in text)
    unquoted = sum(_reads_well(row, columns) for row in _unquoted(text, delimiter))
    if unquoted == plain and delimiter in ",;":
        return any(map(_has_doubled_quotes, (f for line in text for f in line.split(delimiter))))
    return unquoted > plain


def _unquoted(text: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Rows of CSV, up to one that is none."""
    with contextlib.suppress(csv.Error):
        yield from csv.reader(text, delimiter=delimiter)


def _has_doubled_quotes(field: str) -> bool:
    inner = field[1:-1]
    return field == f'"{inner}"' and '""' in inner and '"' not in inner.replace('""', "")


def _reads_well(row: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a row has as many fields as there are columns, and its state where it belongs."""
    count = len(row) - (len(row) == len(columns) + 1 and row[-1] == "")
    state = columns.index("state") if "state" in columns else None
    return count == len(columns) and (state is None or well_formed(Kind.STATE, row[state]))


def _text(lines: Iterable[bytes]) -> list[str]:
    return [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines if line.strip()]


def _headless(
    lines: list[bytes], named: Sequence[str], start: int, crlf: bool, where: str, said: str
) -> Dialect:
    if not named:
        after = f" after the message {said}" if said else ""
        raise UserError(
            f"the first line{after} is no header of sacct fields",
            where=where,
            hint="name the columns in file order with --columns JobID,State,Elapsed,…",
        )
    columns = tuple(canonical(name) for name in named)
    text = _text(lines[:100])
    candidates = [d for d in (*_DELIMITERS, *_unusual(text)) if any(d in line for line in text)]
    best = max(candidates, key=lambda d: _evenness(text, d, columns), default="")
    if not best or not any(_evenness(text, best, columns)):
        common = max(candidates, key=lambda d: sum(line.count(d) for line in text), default="|")
        counts = Counter(line.count(common) + 1 for line in text)
        raise UserError(
            f"--columns names {len(columns)} columns, the lines have "
            f"{counts.most_common(1)[0][0] if counts else 0} (delimiter {common!r})",
            where=where,
            hint="name every column of the file, in file order",
        )
    trailing = 2 * sum(_has_trailing(line, best, columns) for line in text) > len(text)
    shape: SHAPES = "quoted" if _is_quoted(lines, best, columns) else "delimited"
    return Dialect(shape, columns, best, trailing, crlf, start)


def _has_trailing(line: str, delimiter: str, columns: Sequence[str]) -> bool:
    if not line.endswith(delimiter):
        return False
    row = line.removesuffix(delimiter).split(delimiter)
    if delimiter != ",":
        return len(row) == len(columns)
    return align(row, tuple(map(kind_of, columns)), ",") is not None


def _unusual(text: list[str]) -> list[str]:
    """Separators of up to three characters that no field of sacct holds, as they stand in lines."""
    found = Counter[str]()
    for line in text:
        found.update(re.findall(r"[^\w\s.,:;=/+\-\[\]()%|]{1,3}", line))
    return [separator for separator, _ in found.most_common(3)]


def _evenness(text: list[str], delimiter: str, columns: Sequence[str]) -> tuple[int, int, int]:
    """How many lines a delimiter cuts into the columns: well, at all, if commas may be values."""
    rows = [line.split(delimiter) for line in text]
    well = sum(_reads_well(row, columns) for row in rows)
    exact = sum(len(row) == len(columns) for row in rows)
    if len(delimiter) == 1 and any('"' in line for line in text):
        unquoted = _unquoted(text, delimiter)
        well = max(well, sum(_reads_well(row, columns) for row in unquoted))
    if delimiter != ",":
        return well, exact, 0
    kinds = tuple(map(kind_of, columns))
    return well, exact, sum(align(row, kinds, ",") is not None for row in rows)


def _fixed(header: bytes, dashes: bytes, skip: int, crlf: bool) -> Dialect:
    spans = tuple((m.start(), m.end()) for m in re.finditer(rb"-+", dashes))
    printed = [header[a:b].decode("utf-8", "replace").strip() for a, b in spans]
    columns = tuple(_completed(name) for name in printed)
    padded = dashes.rstrip(b"\r").endswith(b" ")
    return Dialect("fixed", columns, "", padded, crlf, skip, header=header, spans=spans)


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


def _refuse_mangled(dialect: Dialect, lines: list[bytes], first: int, where: str) -> None:
    """Refuse a file that a spreadsheet has rewritten: its ids and times cannot be got back.

    Args:
        first: number of the first of `lines` in the file.
    """
    if dialect.shape not in ("delimited", "quoted"):
        return
    watched = [(i, name) for i, name in enumerate(dialect.columns) if name in _MANGLED]
    text = (line.rstrip(b"\r").decode("utf-8", "replace") for line in lines[:2000])
    if dialect.shape == "quoted":
        rows = enumerate(_unquoted(text, dialect.delimiter), start=first)
    else:
        rows = enumerate((line.split(dialect.delimiter) for line in text), start=first)
    for number, row in rows:
        if not _reads_well(row, dialect.columns):
            continue
        for index, name in watched:
            value = row[index].strip()
            if not well_formed(kind_of(name), value) and _MANGLED[name].fullmatch(value):
                raise UserError(
                    f"line {number}, column {name}: {value!r} was rewritten by a spreadsheet",
                    where=where,
                    hint="ids and times cannot be got back; use the file sacct wrote, unopened",
                )
