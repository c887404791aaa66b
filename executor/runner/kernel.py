"""The few Linux calls that Python 3.11 lacks. Each raises OSError naming the call."""

from __future__ import annotations

import ctypes
import os

NEW_MOUNT = 0x00020000
NEW_PID = 0x20000000

_PRIVATE = 1 << 18
_RECURSIVE = 1 << 14
_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 2, 4, 8
_PARENT_DEATH_SIGNAL = 1
_ADOPT_ORPHANS = 36
_KILL = 9

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    _checked("unshare", _libc.unshare(kinds))


def enter(namespace: int, kind: int) -> None:
    """Enter the namespace that an open descriptor of /proc/PID/ns names."""
    _checked("setns", _libc.setns(namespace, kind))


def own_proc() -> None:
    """In a new mount namespace: let nothing spread to the outside, and show the own processes."""
    private = _PRIVATE | _RECURSIVE
    _checked("mount", _libc.mount(b"none", b"/", None, ctypes.c_ulong(private), None))
    flags = ctypes.c_ulong(_NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    _checked("mount /proc", _libc.mount(b"proc", b"/proc", b"proc", flags, None))


def die_with_parent() -> None:
    """Be killed when the parent ends. It survives execve and a dump with its restore."""
    _prctl(_PARENT_DEATH_SIGNAL, _KILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends. It survives execve."""
    _prctl(_ADOPT_ORPHANS, 1)


def _prctl(option: int, value: int) -> None:
    rest = (ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    _checked("prctl", _libc.prctl(option, *rest))


def _checked(call: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
