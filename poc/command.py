"""`cedana-poc analyze` from request to files: checks first, then work, then the writing."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb

from cedana_poc import analysis, output, terminal
from cedana_poc.errors import UserError
from cedana_poc.nodes import Nodes, read_nodes
from cedana_poc.pseudonyms import load_key
from cedana_poc.sacct import records
from cedana_poc.sacct.account import Account
from cedana_poc.sacct.load import Loaded, Progress, load
from cedana_poc.sacct.source import mode
from cedana_poc.sacct.wanted import Filter

_NO_JOBS = ("steps", "unreadable", "cut last row")
"""Reasons a row is left out for that say nothing of a job."""

_MOST_NAMED = 10
"""Partitions named to the user who asked for one that is not there."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of the command, as typed."""

    files: tuple[Path, ...]
    columns: tuple[str, ...] = ()
    timezone: str | None = None
    since: str = ""
    until: str = ""
    partitions: tuple[str, ...] = ()
    nodes: Path | None = None
    json: str = ""
    html: Path | None = None
    data: Path | None = None
    pseudonyms: bool = True
    pseudonym_key: Path | None = None
    top: int = 10


def run(request: Request) -> int:
    """Do it; the exit code.

    Raises:
        UserError: bad usage or input; nothing has been written then.
    """
    wanted = _filter(request)
    _check_inputs(request.files)
    _check_outputs(request)
    nodes = read_nodes(request.nodes) if request.nodes else None
    options = _options(request)
    with (
        _room_told_of(),
        _progress(request.files) as progress,
        load(
            request.files,
            columns=request.columns,
            zone=request.timezone,
            wanted=wanted,
            node_set_size=nodes.together if nodes else None,
            progress=progress,
        ) as loaded,
    ):
        return _answer(request, loaded, options, nodes)


def _answer(
    request: Request, loaded: Loaded, options: analysis.Options, nodes: Nodes | None
) -> int:
    if not loaded.account.readable:
        document = analysis.account_only(loaded, options)
        print(terminal.refusal(document), file=sys.stderr)
        return 2
    _check_rows(loaded.account)
    _check_partitions(loaded, options.partitions)
    document = analysis.analyse(loaded, options, nodes)
    _write(request, document)
    return 0


def _write(request: Request, document: dict[str, Any]) -> None:
    texts: dict[Path, str] = {}
    folders: dict[Path, Mapping[str, output.Table]] = {}
    if request.html:
        from cedana_poc.report import render

        texts[request.html] = render(document)
    if request.data:
        from cedana_poc.data_tables import tables

        folders[request.data] = tables(document)
    if request.json and request.json != "-":
        texts[Path(request.json)] = output.to_json(document)
    output.write(texts, folders)
    if request.json == "-":
        _show(output.to_json(document))
    else:
        _show(f"{terminal.summary(document)}\n")


def _show(text: str) -> None:
    """Print to standard output; a full disk is told, a reader that has gone is no error."""
    try:
        print(text, end="", flush=True)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        # What is still buffered would fail again, with a traceback, when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UserError(
            f"cannot be written ({error.strerror})", where="standard output", hint="free some space"
        ) from error


@contextmanager
def _room_told_of() -> Iterator[None]:
    """A full disk under the temporary folder as something the user can act on."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if not re.search(r"No space left on device|Disk quota exceeded", str(error)):
            raise
        raise UserError(
            "no space left for temporary files",
            where=tempfile.gettempdir(),
            hint="set TMPDIR to a folder with as much free space as the input is long",
        ) from error


def _check_inputs(files: tuple[Path, ...]) -> None:
    """Refuse a pipe that is named twice: the second reading would find nothing, or never end."""
    for path in (path for path, count in Counter(files).items() if count > 1):
        if str(path) == "-" or stat.S_ISFIFO(mode(path)):
            raise UserError(
                "is named twice and can be read only once",
                where="standard input" if str(path) == "-" else str(path),
                hint="name it once",
            )


def _check_rows(account: Account) -> None:
    """Refuse an input in which no row is a job's."""
    others = Counter({name: account.left_out[name] for name in _NO_JOBS})
    if account.rows_in > others.total():
        return
    first, *more = (file.path for file in account.inputs)
    where = f"{first} and {len(more)} more" if more else first
    if not account.rows_in:
        raise UserError(
            "no rows: sacct found no jobs",
            where=where,
            hint="export again with -a and a wider -S and -E",
        )
    counts = ", ".join(f"{n:,} {name}" for name, n in others.items() if n)
    raise UserError(
        f"none of the {account.rows_in:,} rows is a job ({counts})",
        where=where,
        hint="export again with sacct -X",
    )


def _check_partitions(loaded: Loaded, asked: tuple[str, ...]) -> None:
    """Tell of partitions that no run has; refuse if no other was asked for."""
    if not asked:
        return
    if "partition" not in loaded.columns:
        raise UserError(
            "there is no Partition column",
            where="--partition",
            hint="leave the option out, or export again with Partition among the fields",
        )
    seen = dict(records.partitions(loaded.connection))
    missing = [name for name in asked if name not in seen]
    if not missing:
        return
    named = [f"{name} ({count:,})" for name, count in seen.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    problem = UserError(
        f"no run is in {' or '.join(missing)}",
        where="--partition",
        hint=f"there are {', '.join(named[:_MOST_NAMED])}{more}" if named else "no run has one",
    )
    if len(missing) == len(asked):
        raise problem
    print(f"cedana-poc: {problem}", file=sys.stderr)


def _check_outputs(request: Request) -> None:
    named = [Path(request.json) if request.json not in ("", "-") else None, request.html]
    outputs = [path.resolve() for path in (*named, request.data) if path]
    inputs = {path.resolve() for path in (*request.files, request.nodes) if path}
    for place, output_path in enumerate(outputs):
        if output_path in inputs:
            raise UserError(
                "an output would replace an input", where=str(output_path), hint="name another file"
            )
        if output_path in outputs[:place]:
            raise UserError(
                "two outputs have one path", where=str(output_path), hint="name another file"
            )
    if request.data and any(request.data.resolve() in path.parents for path in outputs):
        raise UserError(
            "another output is in this folder, which is replaced as a whole",
            where=str(request.data),
            hint="name a place outside it",
        )
    if request.json and request.json != "-":
        output.check_writable(Path(request.json))
    if request.html:
        output.check_writable(request.html)
    if request.data:
        output.check_tables_folder(request.data)


def _filter(request: Request) -> Filter:
    if request.timezone:
        try:
            ZoneInfo(request.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UserError(
                f"{request.timezone!r} is not a time zone",
                where="--timezone",
                hint="give an IANA name such as Europe/Berlin or UTC",
            ) from error
    since = _seconds("--since", request.since, request.timezone)
    until = _seconds("--until", request.until, request.timezone)
    if since is not None and until is not None and since >= until:
        raise UserError(
            f"--since {request.since} is not before --until {request.until}",
            hint="--until is exclusive: the first moment that no longer counts",
        )
    return Filter(since, until, _partitions(request))


def _partitions(request: Request) -> tuple[str, ...]:
    """The partitions asked for, each once; a comma separates them as in sacct's own option."""
    words = [word.strip() for text in request.partitions for word in text.split(",")]
    names = tuple(dict.fromkeys(filter(None, words)))
    if request.partitions and not names:
        raise UserError(
            "no partition is named", where="--partition", hint="leave the option out for all"
        )
    return names


def _seconds(option: str, text: str, zone: str | None) -> int | None:
    if not text:
        return None
    try:
        return analysis.seconds_of(text, zone)
    except ValueError as error:
        raise UserError(
            f"{text!r} is not a date", where=option, hint="write 2026-03-31 or 2026-03-31T12:00"
        ) from error


def _options(request: Request) -> analysis.Options:
    key = load_key(request.pseudonym_key) if request.pseudonyms else None
    nodes = request.nodes
    return analysis.Options(
        timezone=request.timezone,
        since=request.since,
        until=request.until,
        partitions=_partitions(request),
        nodes_path=str(nodes or ""),
        nodes_sha256=hashlib.sha256(nodes.read_bytes()).hexdigest() if nodes else "",
        key=key,
        top=request.top,
    )


@contextmanager
def _progress(files: tuple[Path, ...]) -> Iterator[Progress | None]:
    """A bar by bytes with the rate of rows, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    sizes = {str(path): path.stat().st_size for path in files if stat.S_ISREG(mode(path))}
    bar = Bar(
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=sum(sizes.values()) or None, rate="")
        done: dict[str, int] = {}

        def tell(path: str, size: int, rows: int) -> None:
            done[path] = size
            elapsed = bar.tasks[task].elapsed or 0
            rate = f"{rows / elapsed:,.0f} rows/s" if elapsed > 0.2 else ""
            bar.update(task, completed=sum(done.values()), rate=rate)

        yield tell
