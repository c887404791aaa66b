"""Files as blocks of whole lines: decompressed while read, hashed on the way, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from cedana_poc.errors import UserError

BLOCK = 1 << 20
LONGEST_LINE = 64 << 20
T = TypeVar("T")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class _Hashed(io.RawIOBase):
    """A file that knows the SHA-256 and the number of the bytes read from it.

    Bytes are hashed in a thread of their own while the caller works on them, so a buffer must
    keep them until the next read.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._hashing: Future[None] | None = None
        self.size = 0

    def readable(self) -> bool:
        return True

    def peek(self) -> bytes:
        """The first bytes, which are not passed over."""
        return self._file.peek(4)

    def readinto(self, buffer: Any) -> int:
        if self._hashing:
            self._hashing.result()
        count = self._file.readinto(buffer)
        self._hashing = self._thread.submit(self._hash.update, memoryview(buffer)[:count])
        self.size += count
        return count

    def sha256(self) -> str:
        if self._hashing:
            self._hashing.result()
        return self._hash.hexdigest()

    def close(self) -> None:
        self._thread.shutdown()
        self._file.close()
        super().close()


class _Zstd(io.RawIOBase):
    """What zstd frames hold; EOFError where the last one is not complete."""

    _PORTION = 1 << 10
    """Bytes taken at a time: they may grow 32,000-fold."""

    def __init__(self, file: _Hashed) -> None:
        import zstandard

        self._file = io.BufferedReader(file, 1 << 16)
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new()
        self._begun = False
        self._out = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out:
            portion = self._file.read(self._PORTION)
            if not portion and self._begun:
                raise EOFError("the last frame is not complete")
            if not portion:
                return 0
            self._out = memoryview(self._decompressed(portion))
        count = min(len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        self._out = self._out[count:]
        return count

    def _decompressed(self, portion: bytes) -> bytes:
        parts = []
        while portion:
            parts.append(self._frame.decompress(portion))
            self._begun, portion = not self._frame.eof, self._frame.unused_data
            if self._frame.eof:
                self._frame = self._new()
        return b"".join(parts)


class Source:
    """One input file, read once from start to end.

    Attributes:
        path: as the user named it; `-` is standard input.
        truncated: the file is compressed and ended before its end mark.
        unterminated: the last line has no newline; known once it has been read to the end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        self.unterminated = False
        self._hashed = _Hashed(_open(path))
        self._readinto: Any = self._hashed.readinto
        try:
            magic = self._checked(self._hashed.peek)
        except UserError:
            self._hashed.close()
            raise
        if magic.startswith(_GZIP):
            unpacked = gzip.GzipFile(fileobj=io.BufferedReader(self._hashed, BLOCK))
            self._readinto = unpacked.readinto1  # readinto drops what precedes a missing end
        elif magic.startswith(_ZSTD):
            self._readinto = _Zstd(self._hashed).readinto

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hashed.close()

    @property
    def sha256(self) -> str:
        """Of the file as stored; complete once it has been read to the end."""
        return self._hashed.sha256()

    @property
    def bytes_read(self) -> int:
        """Of the file as stored, so far."""
        return self._hashed.size

    def readinto(self, view: memoryview) -> int:
        """Fill as much of `view` as there is; 0 at the end.

        Raises:
            UserError: the file cannot be read on, or its compressed data is damaged.
        """
        try:
            return self._checked(lambda: int(self._readinto(view)))
        except EOFError:
            self.truncated = True
            return 0

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except EOFError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno:
                what, hint = f"cannot be read ({error.strerror})", "check the disk it is on"
            else:
                what, hint = f"the compressed data is damaged ({error})", "copy the file again"
            raise UserError(what, where=str(self.path), hint=hint) from error


def mode(path: Path) -> int:
    """Type and mode of a file; 0 of one that cannot be looked at, which `Source` tells of."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _open(path: Path) -> io.BufferedReader:
    if str(path) == "-":
        return io.BufferedReader(io.FileIO(os.dup(sys.stdin.fileno())), BLOCK)
    try:
        return io.BufferedReader(io.FileIO(path), 1 << 16)
    except FileNotFoundError as error:
        raise UserError("no such file", where=str(path), hint="check the path") from error
    except IsADirectoryError as error:
        raise UserError(
            "this is a directory", where=str(path), hint="name the files in it"
        ) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"cannot be read ({why})", where=str(path), hint="check its permissions"
        ) from error


def blocks(source: Source) -> Iterator[memoryview]:
    """Blocks of whole lines; a last line without a newline is given one.

    A block is valid until the next one is taken.

    Raises:
        UserError: a line longer than `LONGEST_LINE` bytes.
    """
    buffer, spare, carry = bytearray(BLOCK), bytearray(BLOCK), b""
    while True:
        filled, end = _fill(source, buffer, carry)
        while end == 0 and filled == len(buffer):
            buffer = _grown(source, buffer)
            filled, end = _fill(source, buffer, bytes(buffer[:filled]))
        last = filled < len(buffer)
        if last and end < filled:
            source.unterminated = True
            buffer[filled] = ord("\n")
            end = filled + 1
        if end:
            yield memoryview(buffer)[:end]
        if last:
            return
        carry = bytes(buffer[end:filled])
        buffer, spare = spare, buffer


def _fill(source: Source, buffer: bytearray, carry: bytes) -> tuple[int, int]:
    """Fill the buffer behind `carry`; how far it is filled, and the end of its last whole line."""
    buffer[: len(carry)] = carry
    view = memoryview(buffer)
    filled = len(carry)
    while filled < len(buffer) and (count := source.readinto(view[filled:])):
        filled += count
    return filled, buffer.rfind(b"\n", 0, filled) + 1


def _grown(source: Source, buffer: bytearray) -> bytearray:
    if len(buffer) >= LONGEST_LINE:
        raise UserError(
            f"a line longer than {LONGEST_LINE >> 20} MiB",
            where=str(source.path),
            hint="this is not what sacct prints",
        )
    return buffer + bytearray(len(buffer))
