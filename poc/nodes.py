"""The nodes of the site: a list with their sizes, and Slurm's host list expressions."""

from __future__ import annotations

import csv
import functools
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cedana_poc.errors import UserError

COLUMNS = ("node", "cpus", "memory_mb", "gpus")

# Slurm itself stops at 64 Ki nodes; an expression with more is no node list of a cluster, and
# expanding it could take all memory.
_MOST_NODES = 65_536
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_EXPRESSION = re.compile(
    r"""(?: (?: [A-Za-z0-9_.-]* \[ [0-9]+(?:-[0-9]+)? (?:,[0-9]+(?:-[0-9]+)?)* \] )*
            [A-Za-z0-9_.-]* (?:,|$) )+""",
    re.VERBOSE,
)
_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_BRACKET = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class NodeSize:
    """What a node offers, or several nodes together."""

    cpus: int
    memory_mb: int
    gpus: int


@dataclass(frozen=True)
class Nodes:
    """Every node of the list by name, whatever state it was in."""

    sizes: Mapping[str, NodeSize]

    def together(self, node_list: str) -> tuple[int, int, int] | None:
        """CPUs, memory in MB and GPUs of the nodes in a node list; None if one is not known."""
        found = [self.sizes.get(name) for name in expand(node_list)]
        known = [size for size in found if size]
        if not found or len(known) < len(found):
            return None
        return (
            sum(size.cpus for size in known),
            sum(size.memory_mb for size in known),
            sum(size.gpus for size in known),
        )

    def unlisted(self, node_list: str) -> set[str]:
        """The nodes of a node list that are not known."""
        return set(expand(node_list)) - self.sizes.keys()

    @functools.cached_property
    def totals(self) -> NodeSize:
        """All nodes together."""
        sizes = self.sizes.values()
        return NodeSize(
            cpus=sum(size.cpus for size in sizes),
            memory_mb=sum(size.memory_mb for size in sizes),
            gpus=sum(size.gpus for size in sizes),
        )


# --- host lists -----------------------------------------------------------------------------------


def expand(node_list: str) -> list[str]:
    """Return the names that a host list such as `cn[001-010,012]` stands for.

    No node (`None assigned`, `(null)`, empty) and what is no whole host list, because sacct cut it
    for example, give an empty list.
    """
    text = node_list.strip()
    if _PLAIN.fullmatch(text):
        return [text]
    return list(_expanded(text))


@functools.lru_cache(maxsize=4096)
def _expanded(text: str) -> tuple[str, ...]:
    # The grammar is checked first, since ClusterShell also knows operators and node groups, whose
    # lookup may start programs.
    if not _EXPRESSION.fullmatch(text) or _count(text) > _MOST_NODES:
        return ()
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ()


def _count(text: str) -> int:
    """How many names an expression stands for, without making them."""
    return sum(
        math.prod(sum(map(_width, ranges.split(","))) for ranges in _BRACKET.findall(part))
        for part in _OUTER_COMMA.split(text)
    )


def _width(item: str) -> int:
    first, _, last = item.partition("-")
    if len(item) > 40:
        return _MOST_NODES + 1  # such numbers name no node, and int() has a limit
    return int(last) - int(first) + 1 if last else 1


# --- node files -----------------------------------------------------------------------------------


def read_nodes(path: Path) -> Nodes:
    """Read the sizes of nodes from a CSV file or from what `scontrol show nodes` printed.

    The CSV file has a header with `node,cpus,memory_mb,gpus`, in any order and among others; a
    node may be a host list. A node listed twice with equal sizes counts once.

    Raises:
        UserError: the file cannot be read or one of its lines is wrong; the line and the field
            are named.
    """
    lines = _lines(path)
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise UserError("is empty", where=str(path), hint=_FORMATS)
    read = _from_scontrol if first.lstrip().startswith("NodeName=") else _from_csv
    sizes: dict[str, NodeSize] = {}
    for line, node, size in read(lines, path):
        names = expand(node)
        if not names:
            raise _wrong(path, line, f"node {node!r} is no host name or host list")
        for name in names:
            if sizes.setdefault(name, size) != size:
                raise _wrong(path, line, f"node {name} was listed before with another size")
    if not sizes:
        raise UserError("lists no node", where=str(path), hint=_FORMATS)
    return Nodes(MappingProxyType(sizes))


_FORMATS = f"give CSV with the header {','.join(COLUMNS)}, or the output of scontrol show nodes"


def _lines(path: Path) -> list[str]:
    try:
        return list(io.StringIO(path.read_text(encoding="utf-8-sig"), newline=""))
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=str(path), hint="name a node list"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8 text", where=str(path), hint=_FORMATS) from error


def _wrong(path: Path, line: int, what: str) -> UserError:
    return UserError(what, where=f"{path}, line {line}", hint="correct the line")


def _number(text: str, field: str, least: int, path: Path, line: int) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < least:
        raise _wrong(path, line, f"{field} is {text!r}, not a whole number from {least} up")
    return int(text)


def _from_csv(lines: Iterable[str], path: Path) -> Iterator[tuple[int, str, NodeSize]]:
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if header:
                yield _csv_row(header, row, path, reader.line_num)
            else:
                header = _csv_header(row, path, reader.line_num)
    except csv.Error as error:
        raise _wrong(path, reader.line_num, f"is no CSV: {error}") from error


def _csv_header(row: list[str], path: Path, line: int) -> list[str]:
    header = [name.strip().lower() for name in row]
    missing = [name for name in COLUMNS if header.count(name) != 1]
    if missing:
        raise UserError(
            f"the header has not exactly one column {' and '.join(missing)}",
            where=f"{path}, line {line}",
            hint=_FORMATS,
        )
    return header


def _csv_row(header: list[str], row: list[str], path: Path, line: int) -> tuple[int, str, NodeSize]:
    if len(row) != len(header):
        raise UserError(
            f"{len(row)} fields, but the header has {len(header)}",
            where=f"{path}, line {line}",
            hint='a host list with a comma needs quotes: "cn[1-4,7]"',
        )
    fields = dict(zip(header, (cell.strip() for cell in row), strict=True))
    return line, fields["node"], _size(fields, COLUMNS[1:], path, line)


def _size(fields: Mapping[str, str], names: tuple[str, ...], path: Path, line: int) -> NodeSize:
    cpus, memory_mb, gpus = names
    return NodeSize(
        cpus=_number(fields[cpus], cpus, 1, path, line),
        memory_mb=_number(fields[memory_mb], memory_mb, 1, path, line),
        gpus=_number(fields[gpus], gpus, 0, path, line),
    )


# --- scontrol show nodes --------------------------------------------------------------------------

# The first of each in a record: free text (Comment, Reason) comes last and may look like a field.
_FIELD = re.compile(r"(?:^|\s)(NodeName|CPUTot|RealMemory|Gres|CfgTRES)=(\S*)")


def _from_scontrol(lines: Iterable[str], path: Path) -> Iterator[tuple[int, str, NodeSize]]:
    for line, record in _records(lines):
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(record):
            fields.setdefault(name, value)
        for name in ("CPUTot", "RealMemory"):
            if name not in fields:
                raise _wrong(path, line, f"node {fields['NodeName']} has no {name}")
        fields["GPUs"] = str(_gpus(fields, path, line))
        yield line, fields["NodeName"], _size(fields, ("CPUTot", "RealMemory", "GPUs"), path, line)


def _records(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the text of each node and the line it begins on, for one line a node or several."""
    start, record = 0, ""
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("NodeName="):
            if record:
                yield start, record
            start, record = number, line
        elif record:
            record += line
    yield start, record


def _gpus(fields: Mapping[str, str], path: Path, line: int) -> int:
    """The node's GPUs: the total that accounting knows, else what its Gres line up to."""
    tres = dict(item.partition("=")[::2] for item in fields.get("CfgTRES", "").split(",") if item)
    if "gres/gpu" in tres:
        return _number(tres["gres/gpu"], "gres/gpu in CfgTRES", 0, path, line)
    # gpu, gpu:4, gpu:a100:4(S:0-1), gpu:a100:2(S:0,1),shard:8 or (null)
    items = re.sub(r"\([^)]*\)", "", fields.get("Gres", "")).split(",")
    return sum(_gres_count(item) for item in items if item.partition(":")[0] == "gpu")


def _gres_count(item: str) -> int:
    last = item.rpartition(":")[2]
    return int(last) if re.fullmatch("[0-9]{1,9}", last) else 1  # Slurm's default
