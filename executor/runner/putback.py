"""Putting the step's files back as a cut has them, before its processes are restored."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from .aside import Aside
from .cut import Cut, Entry, Own, split
from .durable import Foreign, parallel
from .folders import change_mode, entered, names_in, open_folder, stat_in
from .store import Store


def put_back(cut: Cut, store: Store, own: Own, aside: Path) -> None:
    """Make the own set exactly what it was at the cut: bytes, holes, modes, times, links.

    Every file is built anew under a private name, verified and renamed into place, so that nobody
    who still has an earlier one open reaches it. Files of the set that the cut does not have go to
    the folder `aside`, which is made when needed. Killed half-way and called again, also with
    another cut, it ends the same.

    Raises:
        Damaged: a part is not what was stored; names the part.
        Foreign: the cut is not of this set, or somebody else's link is in the way.
        OSError: the set is partly put back; call again.
    """
    for path in own.outside(entry.path for entry in cut.entries):
        raise Foreign(path, "is in the file cut, but is none of the step's own files")
    back = _PuttingBack(cut, store, own, Aside(aside))
    for parent, names in back.roots(own).items():
        try:
            folder = open_folder(parent, back.may_follow, create=parent in back.wanted)
        except FileNotFoundError:
            continue  # and the cut has nothing there
        except NotADirectoryError:
            raise Foreign(parent, "is no folder any more") from None
        try:
            back.discard_temps(folder, names_in(folder))
            back.fill(folder, parent, names)
        finally:
            os.close(folder)
    back.join_hard_links()
    back.finish_folders()


class _PuttingBack:
    """One putting back in progress."""

    def __init__(self, cut: Cut, store: Store, own: Own, aside: Aside) -> None:
        self.cut, self.store, self.aside = cut, store, aside
        self.links = set(cut.links)
        self.tag = f".cedana.{own.tag()}."
        self.wanted: dict[str, dict[str, Entry]] = {}
        for entry in cut.entries:
            parent, name = split(entry.path)
            self.wanted.setdefault(parent, {})[name] = entry

    def roots(self, own: Own) -> dict[str, list[str]]:
        """Return the names to care for by parent: those of the set, and remapped links."""
        roots = own.roots()
        return {
            parent: names + [name for name in self.wanted.get(parent, {}) if name not in names]
            for parent, names in roots.items()
        }

    def may_follow(self, place: str, link: os.stat_result) -> bool:
        """Follow our links that were there at the cut, and the system's."""
        if link.st_uid == os.geteuid():
            return place in self.links
        return link.st_uid == 0

    def fill(self, folder: int, path: str, names: Iterable[str]) -> None:
        """Make these names of a folder what the cut has, or have them moved aside."""
        wanted = self.wanted.get(path, {})
        for name in names:
            self._clear(folder, path, name, wanted.get(name))
        here = [wanted[name] for name in names if name in wanted]
        files = [entry for entry in here if entry.kind == "file"]
        parallel(lambda entry: self._build_file(folder, entry), files)
        for entry in here:
            if entry.kind in ("link", "fifo"):
                self._replace(folder, entry, _MAKERS[entry.kind])
            elif entry.kind == "folder":
                self._fill_folder(folder, entry)

    def discard_temps(self, folder: int, names: Iterable[str]) -> None:
        """Remove what a killed putting back of this very set left behind."""
        for name in names:
            if name.startswith(self.tag):
                os.unlink(name, dir_fd=folder)

    def _clear(self, folder: int, path: str, name: str, entry: Entry | None) -> None:
        """Move aside what the cut does not have, or has as another kind."""
        found = stat_in(folder, name)
        if found is None:
            return
        is_folder = stat.S_ISDIR(found.st_mode)
        if entry is not None and entry.kind == "other":
            return
        if entry is not None and not is_folder and entry.kind != "folder":
            return  # will be renamed over
        ours = found.st_uid == os.geteuid()
        if entry is not None and is_folder and entry.kind == "folder" and ours:
            return
        self.aside.move(folder, path, name)

    def _fill_folder(self, folder: int, entry: Entry) -> None:
        name = entry.name
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        with entered(folder, name) as inner:
            change_mode(inner, entry.mode | 0o700)  # its own comes last, when all is in it
            there = names_in(inner)
            self.discard_temps(inner, there)
            kept = [each for each in there if not each.startswith(self.tag)]
            missing = self.wanted.get(entry.path, {}).keys() - set(kept)
            self.fill(inner, entry.path, [*kept, *sorted(missing)])

    def _build_file(self, folder: int, entry: Entry) -> None:
        self._replace(folder, entry, self._write_file)

    def _write_file(self, folder: int, name: str, entry: Entry) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            offset = 0
            for part in entry.parts:
                self.store.copy_out(part, file, offset)
                offset += part.size
            os.fchmod(file, entry.mode)
            os.utime(file, ns=(entry.mtime_ns, entry.mtime_ns))
        finally:
            os.close(file)

    def _replace(self, folder: int, entry: Entry, make: Callable[[int, str, Entry], None]) -> None:
        """Make an entry under a private name and rename it over whatever has its name."""
        name = entry.name
        temp = self.tag + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        _unlink(folder, temp)
        try:
            make(folder, temp, entry)
            os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                _unlink(folder, temp)
            raise

    def join_hard_links(self) -> None:
        """Give files their further names; the first ones are in place by now."""
        for entry in self.cut.entries:
            if entry.kind == "hard":
                with self._parent(entry.target) as source, self._parent(entry.path) as folder:
                    self._replace(folder, entry, partial(_make_hard_link, source))

    def finish_folders(self) -> None:
        """Give folders their modes and times, the innermost first."""
        for entry in reversed(self.cut.entries):
            if entry.kind == "folder":
                with self._parent(entry.path) as parent, entered(parent, entry.name) as folder:
                    times = (entry.mtime_ns, entry.mtime_ns)
                    os.utime(f"/proc/self/fd/{folder}", ns=times)
                    change_mode(folder, entry.mode)

    @contextlib.contextmanager
    def _parent(self, path: str) -> Iterator[int]:
        folder = open_folder(split(path)[0], self.may_follow)
        try:
            yield folder
        finally:
            os.close(folder)


def _make_link(folder: int, name: str, entry: Entry) -> None:
    os.symlink(entry.target, name, dir_fd=folder)
    times = (entry.mtime_ns, entry.mtime_ns)
    os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)


def _make_fifo(folder: int, name: str, entry: Entry) -> None:
    os.mkfifo(name, 0o600, dir_fd=folder)
    fifo = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        change_mode(fifo, entry.mode)
    finally:
        os.close(fifo)
    times = (entry.mtime_ns, entry.mtime_ns)
    os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)


def _make_hard_link(source: int, folder: int, name: str, entry: Entry) -> None:
    first = split(entry.target)[1]
    os.link(first, name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


_MAKERS: dict[str, Callable[[int, str, Entry], None]] = {"link": _make_link, "fifo": _make_fifo}
