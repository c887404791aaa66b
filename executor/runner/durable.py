"""The one way the runner writes, reads and flushes files that must outlive a crash.

A file is written under a private name in the folder it goes to, flushed, and renamed over the
earlier one: whoever opens the path finds the whole earlier file or the whole new one. A file
whose flush failed is given up and never flushed again: the kernel may have marked its pages clean,
so that a second flush would report a success that did not happen.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

CHUNK = 1 << 20
"""Bytes read or written at a time."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Unsafe(Exception):
    """A file or folder of ours that somebody else could have put there, or can read."""

    def __init__(self, path: Path | str, why: str) -> None:
        self.path, self.why = str(path), why
        super().__init__(f"{shown(path)} {why}")


class Damaged(Exception):
    """A stored file is not what was stored; it must not be used."""

    def __init__(self, file: Path | str, why: str) -> None:
        self.file, self.why = str(file), why
        super().__init__(f"{shown(file)} {why}")


class Foreign(Exception):
    """Somebody else's file, link or folder stands where the step's own should be."""

    def __init__(self, file: Path | str, why: str) -> None:
        self.file, self.why = str(file), why
        super().__init__(f"{shown(file)} {why}")


def shown(path: Path | str) -> str:
    """Return a path as one line of valid text, whatever bytes and line feeds it has."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return text if text.isprintable() else repr(text)


# --- writing --------------------------------------------------------------------------------------


def write_json(path: Path, value: object, mode: int = 0o600) -> None:
    """Replace path by value as JSON, whole or not at all, whatever the umask.

    Raises:
        OSError: path is as it was, unless only the flush of its folder failed.
    """
    data = json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"
    temp = path.with_name(f".{secrets.token_hex(8)}.tmp")
    write_new(temp, data, mode)
    try:
        temp.replace(path)
    except BaseException:
        _discard(temp)
        raise
    fsync_folder(path.parent)


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Create path with data and flush it; the entry in its folder is the caller's to flush.

    Raises:
        FileExistsError: something is there, be it a link; it is untouched.
        OSError: nothing is left at path.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(file, mode)
            write_all(file, data)
            os.fsync(file)
        finally:
            # On NFS a full disk may be told only here, so an error of close is an error of write.
            os.close(file)
    except BaseException:
        _discard(path)
        raise


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of data at the file's position; a short write is not an end."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def fsync_folder(path: Path) -> None:
    """Flush a folder's entries; file systems that cannot do so (EINVAL, ENOTSUP) are tolerated."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flush_entries(folder)
    finally:
        os.close(folder)


def flush_entries(folder: int) -> None:
    """Do what fsync_folder does with a folder that is open for reading."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def private_folder(path: Path) -> None:
    """Make a folder that only we can enter, or check that the one there is.

    Raises:
        Unsafe: it is a link or no folder, somebody else's, or open to others.
    """
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        path.chmod(0o700)  # takes back what the umask, a setgid parent or its ACL made of it
    check_private(path)


def check_private(path: Path) -> None:
    """Raise Unsafe unless path is a folder of ours that only we can enter."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise Unsafe(path, "is a symbolic link, not a folder of ours")
    if not stat.S_ISDIR(found.st_mode):
        raise Unsafe(path, "is no folder")
    if found.st_uid != os.geteuid():
        raise Unsafe(path, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise Unsafe(path, f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}, not 0700)")


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


# --- reading --------------------------------------------------------------------------------------


def read_json(path: Path, most_bytes: int) -> Any:
    """Return the JSON value in a file of ours.

    Raises:
        FileNotFoundError: there is none.
        Unsafe: it is a link, no regular file, or somebody else's.
        Damaged: it is larger than most_bytes or is not JSON.
    """
    return parse_json(path, read_own(path, most_bytes))


def parse_json(path: Path, data: bytes) -> Any:
    """Return data, which was read from path, as a JSON value; raise Damaged where it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"is not JSON ({error})") from None


def read_own(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file of ours; raises what read_json raises."""
    file = open_own(path)
    try:
        data = bytearray()
        while chunk := os.read(file, CHUNK):
            data += chunk
            if len(data) > most_bytes:
                raise Damaged(path, f"is larger than {most_bytes} bytes")
        return bytes(data)
    finally:
        os.close(file)


def open_own(path: Path) -> int:
    """Open a regular file of ours for reading, never through a link at its name."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Unsafe(path, "is a symbolic link or a socket, not a file") from None
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Unsafe(path, "is no regular file")
        if found.st_uid != os.geteuid():
            raise Unsafe(path, f"belongs to user {found.st_uid}, not to {os.geteuid()}")
    except BaseException:
        os.close(file)
        raise
    return file


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file of ours as hexadecimal digits."""
    file = open_own(path)
    try:
        return sha256_of_range(file, 0, os.fstat(file).st_size)
    finally:
        os.close(file)


def sha256_of_range(file: int, start: int, length: int) -> str:
    """Return the SHA-256 of length bytes from start, or of those there are."""
    digest, end = hashlib.sha256(), start + length
    while start < end:
        chunk = os.pread(file, min(CHUNK, end - start), start)
        if not chunk:
            break
        digest.update(chunk)
        start += len(chunk)
    return digest.hexdigest()


# --- several at a time ----------------------------------------------------------------------------


def parallel(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return work(item) for every item in order, on as many threads as there are CPUs.

    For work that waits or hashes, both of which let go of the interpreter. The first error is
    raised when all threads have ended; items not begun by then are not begun.
    """
    todo = list(items)
    workers = min(len(todo), len(os.sched_getaffinity(0)))
    if workers <= 1:
        return [work(item) for item in todo]
    from concurrent.futures import ThreadPoolExecutor  # costs a third of the runner's start

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, item) for item in todo]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
