"""What this machine lets a test do: a small real file system, an ordinary user."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

NOBODY = 65534


@contextlib.contextmanager
def small_file_system(place: Path, options: str = "size=64k") -> Iterator[Path]:
    """Mount a tmpfs of 64 KiB at place; skip the test where that is not allowed."""
    place.mkdir(exist_ok=True)
    refused = _run("mount", "-t", "tmpfs", "-o", options, "none", str(place))
    if refused:
        pytest.skip(f"needs the right to mount a small file system: {refused}")
    try:
        yield place
    finally:
        assert not _run("umount", str(place))


def make_read_only(mounted: Path) -> None:
    assert not _run("mount", "-o", "remount,ro", str(mounted))


def _run(program: str, *arguments: str) -> str:
    """Run a program of the system and return why it failed, or nothing."""
    found = shutil.which(program)
    if found is None:
        return f"there is no {program}"
    ended = subprocess.run([found, *arguments], capture_output=True, text=True)
    return (ended.stderr.partition("\n")[0] or "no reason given") if ended.returncode else ""


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Be without root's powers for a while; a test that already is goes on as it is."""
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
