"""Opening folders component by component, so that no planted link leads the runner astray."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from .durable import Foreign, flush_entries

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Opens a folder as a place to start from; needs the right to pass through it only."""

MayFollow: TypeAlias = Callable[[str, os.stat_result], bool]
"""Tells whether the symbolic link at this real path, of this owner, may be followed."""

_MOST_LINKS = 40  # as the kernel has it


def open_folder(path: str, may_follow: MayFollow, *, create: bool = False) -> int:
    """Return a descriptor (O_PATH) of the folder at an absolute path.

    Every symbolic link on the way is shown to may_follow first. With create, missing folders are
    made as the umask says.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        Foreign: a link on the way may not be followed.
    """
    pending = _names(path)
    folder, place, links = os.open("/", FOLDER), "", 0
    try:
        while pending:
            name = pending.pop()
            try:
                inner = _enter(folder, name, create)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                target = _follow(folder, name, f"{place}/{name}", may_follow)
                links += 1
                if links > _MOST_LINKS:
                    raise Foreign(path, "leads through too many symbolic links") from None
                pending += _names(target)
                if not target.startswith("/"):
                    continue
                inner, name, place = os.open("/", FOLDER), "", ""
            folder, left = inner, folder
            os.close(left)
            place = _below(place, name)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _names(path: str) -> list[str]:
    """Return the components of a path, the first last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _below(place: str, name: str) -> str:
    if name == "..":
        return place.rpartition("/")[0]
    return f"{place}/{name}" if name else place


def _enter(folder: int, name: str, create: bool) -> int:
    try:
        return os.open(name, FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, FOLDER, dir_fd=folder)


def _follow(folder: int, name: str, place: str, may_follow: MayFollow) -> str:
    """Return where a link leads, if it is one and may be followed."""
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
        if not may_follow(place, found):
            raise Foreign(place, f"is a symbolic link (of user {found.st_uid}) and not followed")
        return os.readlink("", dir_fd=link)  # of the very link that was looked at
    finally:
        os.close(link)


@contextlib.contextmanager
def entered(folder: int, name: str) -> Iterator[int]:
    """Open a folder by name in another, never through a link, and close it afterwards."""
    inner = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield inner
    finally:
        os.close(inner)


def names_in(folder: int) -> list[str]:
    """Return the sorted names in a folder that was opened as a place."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return sorted(os.listdir(readable))  # noqa: PTH208 - Path cannot list a descriptor
    finally:
        os.close(readable)


def flush(folder: int) -> None:
    """Flush the entries of a folder that was opened as a place, where the file system can."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        flush_entries(readable)
    finally:
        os.close(readable)


def stat_in(folder: int, name: str) -> os.stat_result | None:
    """Return what is at a name in a folder, of a link itself, or None."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def change_mode(place: int, mode: int) -> None:
    """Change the mode of what was opened as a place, also where it may not be read."""
    Path(f"/proc/self/fd/{place}").chmod(mode)
