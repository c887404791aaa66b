"""Where published generations are: `NNNNNN.json` in the folder of generations."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from . import manifest as manifests
from .durable import Damaged

_NAME = re.compile(r"[0-9]{6,}\.json")


def place(folder: Path, number: int) -> Path:
    """Return where the generation of this number is published."""
    return folder / f"{number:06d}.json"


def numbers(folder: Path) -> list[int]:
    """Return the published numbers, newest first."""
    names = {path.name for path in _listed(folder) if _NAME.fullmatch(path.name)}
    found = {int(name.removesuffix(".json")) for name in names}
    return sorted((each for each in found if place(folder, each).name in names), reverse=True)


def is_published(folder: Path, name: str) -> bool:
    """Tell whether a folder of this name is a published generation's, or may be."""
    try:
        return manifests.read(place(folder, int(name.partition(".")[0]))).folder == name
    except FileNotFoundError:
        return False
    except Damaged:
        return True  # not known, so to be left alone


def same(one: Path, other: Path) -> bool:
    """Tell whether two paths are names of one file."""
    try:
        a, b = one.lstat(), other.lstat()
    except OSError:
        return False
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) and stat.S_ISREG(a.st_mode)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
