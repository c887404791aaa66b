"""Taking the file cut while the step is frozen, finishing it afterwards, putting it back.

`Catalog.begin` comes before `take`: parts that belong to no draft may be swept away.

Limits: owners, groups, extended attributes and ACLs are not kept; sockets and devices are left as
they are; a hard link to a name outside the own set becomes a file of its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import replace

from .cut import REMAPPED, Cut, Entry, Own, ancestors, split
from .durable import Damaged, Foreign, fsync_folder, parallel, sha256_of_range
from .folders import entered, names_in, open_folder, stat_in
from .putback import put_back
from .store import Part, Store

__all__ = ["Cut", "Damaged", "Entry", "Foreign", "Own", "finish", "put_back", "take"]

MOST_PARTS = 64
"""A file of more parts than this is copied anew, so that appending for days stays cheap to read."""


def take(own: Own, store: Store, previous: Cut | None) -> Cut:
    """Copy the own set into the store; the step's processes must be frozen.

    A file that only grew since `previous` (same inode, all earlier bytes unchanged) adds its new
    bytes only, where blocks cannot be shared. Nothing is flushed, and only earlier bytes are
    hashed: this is time in which the step stands still.

    Raises:
        OSError: a file could not be read or stored.
        Foreign: the set leads through somebody else's link, holds the store, or changed meanwhile.
    """
    roots = own.roots()
    _check_apart(own, store)
    taking = _Taking(store, previous)
    beside = {split(str(path))[0] for path in own.files}
    for parent, names in roots.items():
        try:
            folder = open_folder(parent, taking.may_follow)
        except (FileNotFoundError, NotADirectoryError):
            continue  # nothing of the set is there yet
        try:
            remapped = _remapped(folder, names) if parent in beside else []
            taking.add(folder, parent, names + remapped)
        finally:
            os.close(folder)
    parts = {part for entry in taking.entries for part in entry.parts if not part.sha256}
    new_bytes = sum(part.size for part in parts)
    return Cut(tuple(taking.entries), tuple(sorted(taking.links)), new_bytes)


def finish(cut: Cut, store: Store) -> Cut:
    """Flush and hash the new parts of a cut, after the thaw, and return it complete.

    Raises:
        OSError, Damaged: the cut is lost; never finish it again, take a new one.
    """
    new = [part for part in cut.parts() if not part.sha256]
    known = dict(zip(new, parallel(store.finish, new), strict=True))
    if new:
        fsync_folder(store.folder)
    return replace(
        cut,
        entries=tuple(
            replace(entry, parts=tuple(known.get(part, part) for part in entry.parts))
            if entry.parts
            else entry
            for entry in cut.entries
        ),
    )


def _check_apart(own: Own, store: Store) -> None:
    folder = str(store.folder)
    for path in map(str, own.directories):
        if path == folder or path in ancestors(folder):
            raise Foreign(path, "holds the folder that its own copy would go to")


def _remapped(folder: int, names: Iterable[str]) -> list[str]:
    found = [name for name in names_in(folder) if REMAPPED.fullmatch(name) and name not in names]
    return [name for name in found if _is_own_file(stat_in(folder, name))]


def _is_own_file(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


class _Taking:
    """One take in progress: what was found and copied so far."""

    def __init__(self, store: Store, previous: Cut | None) -> None:
        self.store = store
        self.earlier = {e.path: e for e in (previous or Cut()).entries if e.kind == "file"}
        self.entries: list[Entry] = []
        self.links: set[str] = set()
        self.named: dict[tuple[int, int], str] = {}

    def may_follow(self, place: str, link: os.stat_result) -> bool:
        """Follow links of our own, which the cut remembers, and the system's."""
        if link.st_uid == os.geteuid():
            self.links.add(place)
            return True
        return link.st_uid == 0

    def add(self, folder: int, path: str, names: Iterable[str]) -> None:
        """Add these names of a folder, and all that is below them."""
        found = [entry for name in names if (entry := self._look(folder, path, name))]
        copied = iter(
            parallel(
                lambda entry: self._copy(folder, entry), [e for e in found if e.kind == "file"]
            )
        )
        for entry in found:
            self.entries.append(next(copied) if entry.kind == "file" else entry)
        for entry in found:
            if entry.kind == "folder":
                with entered(folder, entry.name) as inner:
                    self.add(inner, entry.path, names_in(inner))

    def _look(self, folder: int, path: str, name: str) -> Entry | None:
        """Return what is at a name, without its bytes."""
        found = stat_in(folder, name)
        if found is None:
            return None
        entry = Entry(
            path=f"{path.rstrip('/')}/{name}",
            kind=_kind(found.st_mode),
            mode=stat.S_IMODE(found.st_mode),
            mtime_ns=found.st_mtime_ns,
            inode=(found.st_dev, found.st_ino),
        )
        if entry.kind == "link":
            return replace(entry, target=os.readlink(name, dir_fd=folder))
        if entry.kind == "file" and found.st_nlink > 1:
            first = self.named.setdefault(entry.inode, entry.path)
            if first != entry.path:
                return replace(entry, kind="hard", target=first)
        return entry

    def _copy(self, folder: int, entry: Entry) -> Entry:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(entry.name, flags, dir_fd=folder)
        try:
            found = os.fstat(file)
            if (found.st_dev, found.st_ino) != entry.inode:
                raise Foreign(entry.path, "was replaced while the step was frozen")
            parts = self._parts(file, entry, found.st_size)
        except EOFError:
            raise Foreign(entry.path, "was cut short while the step was frozen") from None
        finally:
            os.close(file)
        return replace(entry, size=found.st_size, mtime_ns=found.st_mtime_ns, parts=parts)

    def _parts(self, file: int, entry: Entry, size: int) -> tuple[Part, ...]:
        """Return the parts that make up the file, of which the last may be new."""
        kept = () if self.store.clones(file) else self._unchanged(file, entry, size)
        start = sum(part.size for part in kept)
        if start == size:
            return kept
        return (*kept, self.store.add_copy(file, start, size - start))

    def _unchanged(self, file: int, entry: Entry, size: int) -> tuple[Part, ...]:
        """Return the earlier parts of a file whose bytes are still its beginning, or none."""
        earlier = self.earlier.get(entry.path)
        if earlier is None or earlier.inode != entry.inode or earlier.size > size:
            return ()
        if len(earlier.parts) >= MOST_PARTS:
            return ()
        start = 0
        for part in earlier.parts:
            if not self.store.has(part) or part.sha256 != sha256_of_range(file, start, part.size):
                return ()
            start += part.size
        return earlier.parts


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "folder"
    return "fifo" if stat.S_ISFIFO(mode) else "other"
