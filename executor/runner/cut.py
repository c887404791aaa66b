"""What a file cut is: the step's own files as they were while its processes were frozen."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .durable import Damaged, Foreign
from .store import NAME, Part

REMAPPED = re.compile(r"link_remap\.[0-9]+")
"""What CRIU calls the links it makes beside a removed file that still has another name."""

KINDS = ("file", "hard", "link", "folder", "fifo", "other")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Own:
    """The step's own set: absolute paths of files, and of folders with all that is in them."""

    files: tuple[Path, ...]
    directories: tuple[Path, ...]

    def roots(self) -> dict[str, list[str]]:
        """Return, by parent folder, the names of the set that lie in no other folder of it.

        Raises:
            Foreign: a path is not absolute and plain, or is the root of all.
        """
        folders = {_plain(path) for path in self.directories}
        found: dict[str, list[str]] = {}
        for path in sorted(folders | {_plain(path) for path in self.files}):
            if not any(above in folders for above in ancestors(path)):
                parent, name = split(path)
                found.setdefault(parent, []).append(name)
        return found

    def outside(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the paths that are neither of the set nor what CRIU may have left beside it.

        What was declared to be a file may have been a folder at the cut: all in it is of the set.
        """
        files = set(map(str, self.files))
        folders = files | set(map(str, self.directories))
        parents = {split(file)[0] for file in files}
        for path in paths:
            parent, name = split(path)
            beside = parent in parents and REMAPPED.fullmatch(name)
            within = any(above in folders for above in ancestors(path))
            if not (beside or within or path in folders):
                yield path

    def tag(self) -> str:
        """Return 8 hexadecimal digits that stand for this set."""
        text = "\0".join(sorted(map(str, self.files + self.directories)))
        return hashlib.sha256(os.fsencode(text)).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of the cut. `target` is what a link leads to, or the other name of a hard link."""

    path: str
    kind: str
    mode: int = 0
    mtime_ns: int = 0
    size: int = 0
    inode: tuple[int, int] = (0, 0)
    target: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        return split(self.path)[1]


@dataclass(frozen=True, slots=True)
class Cut:
    """The own set at one moment; a folder comes before what is in it.

    `links` are our own symbolic links on the way to the set; `new_bytes` were added to the store.
    """

    entries: tuple[Entry, ...] = ()
    links: tuple[str, ...] = ()
    new_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The sizes of all files together."""
        return sum(entry.size for entry in self.entries)

    @property
    def file_count(self) -> int:
        return sum(entry.kind in ("file", "hard") for entry in self.entries)

    def parts(self) -> Iterator[Part]:
        """Yield every part once."""
        yield from dict.fromkeys(part for entry in self.entries for part in entry.parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "new_bytes": self.new_bytes,
            "links": list(self.links),
            "entries": [_without_defaults(entry) for entry in self.entries],
        }

    @classmethod
    def from_json(cls, value: Any) -> Cut:
        """Return the cut that to_json wrote.

        Raises:
            Damaged: value is no cut, or names a path or a part that no cut can name.
        """
        try:
            if value["schema"] != 1:
                raise ValueError(f"has schema {value['schema']}, of another version")
            entries = tuple(_entry(each) for each in value["entries"])
            links = tuple(_checked(str, each) for each in value["links"])
            return cls(entries, links, _checked(int, value["new_bytes"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Damaged("file cut", f"cannot be read: {error!r}") from None


def ancestors(path: str) -> Iterator[str]:
    """Yield the folders a path lies in, the nearest first, without the root of all."""
    while (path := path.rpartition("/")[0]) != "":
        yield path


def split(path: str) -> tuple[str, str]:
    """Return the folder and the name of an absolute path."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _is_plain(path: str) -> bool:
    usual = os.path.normpath(path) == path and "\0" not in path
    return usual and path.startswith("/") and not path.startswith("//") and path != "/"


def _plain(path: Path) -> str:
    if not _is_plain(str(path)):
        raise Foreign(path, "is not an absolute path without '..', so no file of a step")
    return str(path)


def _without_defaults(entry: Entry) -> dict[str, Any]:
    found = {
        field.name: getattr(entry, field.name)
        for field in dataclasses.fields(entry)
        if getattr(entry, field.name) != field.default
    }
    if entry.parts:
        found["parts"] = [[part.name, part.size, part.sha256] for part in entry.parts]
    if "inode" in found:
        found["inode"] = list(entry.inode)
    return found


def _entry(value: dict[str, Any]) -> Entry:
    parts = tuple(_part(*each) for each in value.get("parts", ()))
    device, inode = value.get("inode", (0, 0))
    entry = Entry(
        path=_checked(str, value["path"]),
        kind=_checked(str, value["kind"]),
        mode=_checked(int, value.get("mode", 0)),
        mtime_ns=_checked(int, value.get("mtime_ns", 0)),
        size=_checked(int, value.get("size", 0)),
        inode=(_checked(int, device), _checked(int, inode)),
        target=_checked(str, value.get("target", "")),
        parts=parts,
    )
    if not _is_plain(entry.path) or entry.kind not in KINDS:
        raise ValueError(f"{entry.path} ({entry.kind}) cannot be in a cut")
    if entry.kind == "hard" and not _is_plain(entry.target):
        raise ValueError(f"{entry.target} cannot be in a cut")
    if entry.size != sum(part.size for part in parts) or not 0 <= entry.mode <= 0o7777:
        raise ValueError(f"the parts or the mode of {entry.path} are not right")
    return entry


def _part(name: Any, size: Any, sha256: Any) -> Part:
    if not NAME.fullmatch(_checked(str, name)) or not _SHA256.fullmatch(_checked(str, sha256)):
        raise ValueError(f"{name} is no part")
    if _checked(int, size) <= 0:
        raise ValueError(f"part {name} has no bytes")
    return Part(name, size, sha256)


def _checked(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
