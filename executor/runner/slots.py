"""A bound on the dumps that go on at once on one file system. It is a courtesy, not a lock: where
the file system has no locks between machines it holds for one machine only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


@contextlib.contextmanager
def slot(folder: Path, slots: int) -> Iterator[bool]:
    """Hold one of `slots` places (0 = no bound); says whether there was one."""
    if slots == 0:
        yield True
        return
    with contextlib.ExitStack() as held:
        yield any(_take(held, folder / f"slot.{number}") for number in range(slots))


def _take(held: contextlib.ExitStack, path: Path) -> bool:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, flags, 0o600)
    except OSError:
        return True  # no place to count in is no reason to go without checkpoints
    held.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
