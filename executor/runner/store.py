"""The bytes of file cuts: private files under random names, shared between generations.

A part is written once and never changed. Where the file system can share blocks between files
(reflink), a part costs no copying; elsewhere its data is copied and its holes are kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .durable import CHUNK, Damaged, Unsafe, open_own, private_folder, sha256_of_range, write_all

NAME = re.compile(r"[0-9a-f]{32}")
_FICLONE = 0x40049409
_ZEROS = bytes(CHUNK)
_NO_CLONE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
_NO_RANGE = {*_NO_CLONE, errno.EBADF, errno.ETXTBSY}


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the store: its name, its size in bytes, its SHA-256 ("" = not yet known)."""

    name: str
    size: int
    sha256: str = ""


class Store:
    """A folder of parts. Not more than one process adds and sweeps at a time (the lease)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._clones: dict[int, bool] = {}

    def add_copy(self, source: int, offset: int, length: int) -> Part:
        """Copy length bytes from offset of an open file; neither flushed nor hashed.

        Raises:
            OSError: nothing was kept.
            EOFError: the file is shorter.
        """
        private_folder(self.folder)
        name = secrets.token_hex(16)
        path = self.folder / name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        try:
            try:
                os.fchmod(file, 0o600)
                if not (offset == 0 and self._clone(source, file, length)):
                    _copy_range(source, offset, length, file)
            finally:
                os.close(file)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return Part(name, length)

    def clones(self, source: int) -> bool:
        """Tell whether files of this source's file system are known to share blocks with parts."""
        return self._clones.get(os.fstat(source).st_dev, False)

    def _clone(self, source: int, file: int, length: int) -> bool:
        """Make file share the blocks of source, if the file system can and source is so long."""
        found = os.fstat(source)
        if found.st_size != length or not self._clones.get(found.st_dev, True):
            return False
        cloned = _clone(source, file)
        self._clones[found.st_dev] = cloned
        return cloned and os.fstat(file).st_size == length

    def open(self, part: Part) -> int:
        """Return a descriptor of a part, for reading.

        Raises:
            Damaged: it is missing, of another size, or not a file of ours.
        """
        path = self.folder / part.name
        if not NAME.fullmatch(part.name):
            raise Damaged(path, "is no name of a part")
        try:
            file = open_own(path)
        except FileNotFoundError:
            raise Damaged(path, "is missing") from None
        except Unsafe as error:
            raise Damaged(path, error.why) from None
        size = os.fstat(file).st_size
        if size != part.size:
            os.close(file)
            raise Damaged(path, f"is {size} bytes long, not {part.size}")
        return file

    def has(self, part: Part) -> bool:
        """Tell whether a part is there with its size; says nothing about its bytes."""
        try:
            os.close(self.open(part))
        except Damaged:
            return False
        return True

    def finish(self, part: Part) -> Part:
        """Flush a part and return it with its SHA-256. Never call it again after an error."""
        file = self.open(part)
        try:
            os.fsync(file)
            return Part(part.name, part.size, sha256_of_range(file, 0, part.size))
        finally:
            os.close(file)

    def verify(self, part: Part) -> None:
        """Raise Damaged unless the part's bytes are what they were."""
        file = self.open(part)
        try:
            self._compare(part, sha256_of_range(file, 0, part.size))
        finally:
            os.close(file)

    def copy_out(self, part: Part, file: int, offset: int) -> None:
        """Write a part's bytes to an open file at offset, keeping holes; the file is grown.

        Raises:
            Damaged: the bytes are not what they were; what was written must not be used.
        """
        source = self.open(part)
        try:
            if offset == 0 and os.fstat(file).st_size == 0 and _clone(source, file):
                digest = sha256_of_range(file, 0, part.size)
            else:
                digest = _copy_hashing(source, part.size, file, offset)
        finally:
            os.close(source)
        self._compare(part, digest)

    def _compare(self, part: Part, digest: str) -> None:
        if digest != part.sha256:
            raise Damaged(self.folder / part.name, "has other bytes than were stored")

    def names(self) -> set[str]:
        """Return the names of all parts there are."""
        try:
            return {path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name)}
        except FileNotFoundError:
            return set()

    def sweep(self, referenced: set[str]) -> None:
        """Remove all parts but those referenced."""
        self.remove(self.names() - referenced)

    def remove(self, names: set[str]) -> None:
        """Remove these parts, if there."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)


# --- copying --------------------------------------------------------------------------------------


def data_ranges(file: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of what is not a hole from start to end."""
    while start < end:
        try:
            data = os.lseek(file, start, os.SEEK_DATA)
            hole = os.lseek(file, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
            data, hole = start, end  # the file system knows of no holes
        if data >= end:
            return
        yield data, min(hole, end) - data
        start = hole


def copy_holey(source: int, file: int) -> None:
    """Copy all of an open file into an empty one, keeping holes."""
    _copy_range(source, 0, os.fstat(source).st_size, file)


def _clone(source: int, file: int) -> bool:
    try:
        fcntl.ioctl(file, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True


def _copy_range(source: int, offset: int, length: int, file: int) -> None:
    if os.fstat(source).st_size < offset + length:
        raise EOFError
    for start, size in data_ranges(source, offset, offset + length):
        _copy_data(source, start, size, file, start - offset)
    os.ftruncate(file, length)


def _copy_data(source: int, start: int, size: int, file: int, target: int) -> None:
    in_kernel = True
    while size:
        if in_kernel:
            try:
                count = os.copy_file_range(source, file, size, start, target)
            except OSError as error:
                if error.errno not in _NO_RANGE:
                    raise
                count = 0
            if count == 0:  # not possible between these two; or the end, which read tells
                in_kernel = False
                continue
        else:
            chunk = os.pread(source, min(CHUNK, size), start)
            if not chunk:
                raise EOFError
            count = os.pwrite(file, chunk, target)
        start, target, size = start + count, target + count, size - count


def _copy_hashing(source: int, length: int, file: int, target: int) -> str:
    """Copy a whole part to target in file; the hash is of the very bytes that are written."""
    digest, done = hashlib.sha256(), 0
    for start, size in data_ranges(source, 0, length):
        _hash_zeros(digest, start - done)
        os.lseek(file, target + start, os.SEEK_SET)
        done = start
        while done < start + size:
            chunk = os.pread(source, min(CHUNK, start + size - done), done)
            if not chunk:
                break
            digest.update(chunk)
            write_all(file, chunk)
            done += len(chunk)
    _hash_zeros(digest, length - done)
    os.ftruncate(file, target + length)
    return digest.hexdigest()


def _hash_zeros(digest: hashlib._Hash, count: int) -> None:
    while count > 0:
        digest.update(_ZEROS[: min(CHUNK, count)])
        count -= CHUNK
