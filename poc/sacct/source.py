"""Files as blocks of whole lines: decompressed while read, hashed on the way, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cedana_poc.errors import UserError

BLOCK = 1 << 20
LONGEST_LINE = 64 << 20
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


class Source:
    """One input file, read once from start to end.

    Attributes:
        path: as the user named it; `-` is standard input.
        truncated: the file is compressed and ended before its end mark.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        file = _open(path)
        magic = file.peek(4)
        self._hashed = _Hashed(file)
        self._stream: Any = self._hashed
        if magic.startswith(_GZIP):
            self._stream = gzip.GzipFile(fileobj=io.BufferedReader(self._hashed, BLOCK))
        elif magic.startswith(_ZSTD):
            import zstandard

            decompressor = zstandard.ZstdDecompressor()
            self._stream = decompressor.stream_reader(self._hashed, read_across_frames=True)

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
            return int(self._stream.readinto(view))
        except EOFError:
            self.truncated = True
            return 0
        except Exception as error:
            if isinstance(error, OSError) and error.errno:
                raise UserError(error.strerror, where=str(self.path)) from error
            raise UserError(
                f"the compressed data is damaged ({error})",
                where=str(self.path),
                hint="copy the file again",
            ) from error


def _open(path: Path) -> io.BufferedReader:
    if str(path) == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=BLOCK)
    try:
        return path.open("rb", buffering=1 << 16)
    except FileNotFoundError as error:
        raise UserError("no such file", where=str(path), hint="check the path") from error
    except IsADirectoryError as error:
        raise UserError(
            "this is a directory", where=str(path), hint="name the files in it"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=str(path), hint="check its permissions"
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


def read_all(source: Source, most: int) -> bytes:
    """The whole decompressed content, or an empty string if it is more than `most` bytes."""
    parts: list[bytes] = []
    size = 0
    for block in blocks(source):
        parts.append(bytes(block))
        size += len(block)
        if size > most:
            return b""
    return b"".join(parts)
