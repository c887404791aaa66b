"""Where files go that a putting back must take out of the way: moved, never deleted."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .durable import private_folder
from .folders import FOLDER, change_mode, entered, flush, names_in, stat_in
from .store import copy_holey


class Aside:
    """A private folder that mirrors the paths of what is moved into it; made when needed.

    Across file systems a file is copied, flushed, then removed. Sockets, which cannot be copied,
    are then removed only; devices are left where they are with an error.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def move(self, folder: int, path: str, name: str) -> None:
        """Move a name of an opened folder, whose path is given, out of the way."""
        with self._mirrored(path) as place:
            free = _free_name(place, name)
            try:
                _rename(folder, name, place, free)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy(folder, name, place, free)
                flush(place)
                _remove(folder, name)

    @contextlib.contextmanager
    def _mirrored(self, path: str) -> Iterator[int]:
        private_folder(self.folder.parent)
        private_folder(self.folder)
        place = os.open(self.folder, FOLDER)
        try:
            for name in filter(None, path.split("/")):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=place)
                inner = os.open(name, FOLDER, dir_fd=place)
                place, left = inner, place
                os.close(left)
            yield place
        finally:
            os.close(place)


def _free_name(folder: int, name: str) -> str:
    """Return the name, or a numbered one where an earlier putting back has moved one like it."""
    free, count = name, 0
    while stat_in(folder, free) is not None:
        count += 1
        free = os.fsdecode(os.fsencode(name)[:200]) + f".{count}"
    return free


def _rename(folder: int, name: str, place: int, free: str) -> None:
    try:
        os.rename(name, free, src_dir_fd=folder, dst_dir_fd=place)
    except PermissionError:
        # To move a folder its own ".." changes, which needs the right to write to it.
        found = stat_in(folder, name)
        if found is None or not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise
        with entered(folder, name) as inner:
            change_mode(inner, stat.S_IMODE(found.st_mode) | 0o700)
        os.rename(name, free, src_dir_fd=folder, dst_dir_fd=place)


def _copy(folder: int, name: str, place: int, free: str) -> None:
    """Copy a file, link, fifo or folder with all that is in it; flushed, with modes and times."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        os.mkdir(free, 0o700, dir_fd=place)
        with entered(folder, name) as source, entered(place, free) as target:
            if found.st_uid == os.geteuid():
                change_mode(source, stat.S_IMODE(found.st_mode) | 0o700)
            for each in names_in(source):
                _copy(source, each, target, each)
            flush(target)
    elif stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=folder), free, dir_fd=place)
    elif stat.S_ISREG(found.st_mode):
        _copy_file(folder, name, place, free, found)
    elif stat.S_ISFIFO(found.st_mode):
        os.mkfifo(free, 0o600, dir_fd=place)
    elif not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EXDEV, "a device cannot be moved to another file system", name)


def _copy_file(folder: int, name: str, place: int, free: str, found: os.stat_result) -> None:
    reading = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    writing = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    source = os.open(name, reading, dir_fd=folder)
    try:
        target = os.open(free, writing, 0o600, dir_fd=place)
        try:
            copy_holey(source, target)
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _remove(folder: int, name: str) -> None:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        with entered(folder, name) as inner:
            for each in names_in(inner):
                _remove(inner, each)
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
